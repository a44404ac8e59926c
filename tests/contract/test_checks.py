"""Safety by construction: no writer can be made without its check, and none sends once its check fails."""

from __future__ import annotations

import ast
import inspect
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import migrator
from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ConditionalWrites, FirstTries
from migrator.dynamodb.control import ControlItem, DynamoStripping
from migrator.dynamodb.store import DynamoStore, reads_only
from migrator.features.revisions.migrate_work import Gone
from migrator.mapping.model.edges import Kept
from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import StoppedError, TargetError
from migrator.runtime.values import replace
from migrator.source.adapter.events import Rules
from migrator.source.sql.transactions import Reading
from migrator.stages.backfill.stage import Backfill
from migrator.stages.backfill.write import ConditionalPath, FastPath
from migrator.stages.core.removal import Strip, Undo
from migrator.stages.live.instances import ServiceRole
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay
from migrator.stages.live.send import send
from migrator.stages.live.service import Strict
from migrator.stages.live.writers import Purge, WriterHeartbeats
from migrator.stages.session.forget import Forget
from migrator.stages.verify.stage import Verify
from tests import pins
from tests.fakes.store import FakeStore
from tests.fakes.stripping import FakeStripping
from tests.support_fence import no_fence, page_of
from tests.support_items import encoded, put_items, write_groups, write_items
from tests.unit.stages.core.live_world import Shop

NEEDS: list[tuple[Callable[..., Any], str]] = [
    (DynamoStore, "check"),
    (ConditionalWrites, "store"),
    (FirstTries, "store"),
    (ControlItem, "store"),
    (DynamoStripping, "store"),
    (send, "check"),
    (Refresh, "check"),
    (Relay, "refresh"),
    (FastPath, "check"),
    (FastPath, "memory"),
    (ConditionalPath, "refresh"),
    (Backfill, "path"),
    (Strict, "check"),
    (Undo, "check"),
    (Gone, "refresh"),
    (Strip, "check"),
    (Forget, "check"),
    (Purge, "check"),
    (Verify, "check"),
    (Verify, "confirm"),
    (Rules, "check"),
    (Rules, "before_commit"),
    (Reading, "admit"),
    (ServiceRole, "look"),
    (WriterHeartbeats, "unanswered"),
    (FakeStore, "check"),
]
"""Each writer, with the argument that keeps it from writing when it must not: a check, or what was made with one."""


@pytest.mark.parametrize(("made", "name"), NEEDS, ids=lambda one: getattr(one, "__name__", one))
def test_no_writer_is_made_without_its_check(made: Callable[..., Any], name: str) -> None:
    assert inspect.signature(made).parameters[name].default is inspect.Parameter.empty


# ── no writer beside those ──

ROOT = Path(inspect.getfile(migrator)).parent
SENDS = {
    *("put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items"),
    *("batch_execute_statement", "execute_statement", "execute_transaction"),
}
PROBES = {"_writes", "_probe_insert", "_insert"}
WRITES = {
    "put",
    "write",
    "write_own",
    "write_together",
    "remove_tombstones",
    "delete",
    "delete_own",
    "strip",
    "remove",
}
STORES = {"store", "dead", "stripping"}


def calls(
    path: Path, is_one: Callable[[ast.Attribute], bool]
) -> Iterator[tuple[ast.Attribute, list[ast.AST]]]:
    """Each mention of an attribute that is one, with what it stands in, the innermost last."""

    def walk(node: ast.AST, around: list[ast.AST]) -> Iterator[tuple[ast.Attribute, list[ast.AST]]]:
        if isinstance(node, ast.Attribute) and is_one(node):
            yield node, around
        for child in ast.iter_child_nodes(node):
            yield from walk(child, [*around, node])

    yield from walk(ast.parse(path.read_text()), [])


def _function(around: list[ast.AST]) -> str:
    return next((one.name for one in around if isinstance(one, ast.FunctionDef)), "")


def test_every_item_writing_request_is_sent_under_the_check() -> None:
    """`metered` asks the check before each request, and once more when it is signed."""
    unchecked = [
        f"{path.name}:{node.lineno} {node.attr}"
        for path in sorted((ROOT / "dynamodb").glob("*.py"))
        for node, around in calls(path, lambda one: one.attr in SENDS)
        # It asks what this user may do, by requests that no table takes.
        if not (path.name == "admin.py" and _function(around) in PROBES)
        if not any(isinstance(one, ast.Call) and ast.unparse(one.func).endswith(".metered") for one in around)
    ]
    assert unchecked == []
    signed = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "dynamodb").glob("*.py"))
        for node, around in calls(path, lambda one: ast.unparse(one) == "sockets.request")
        if not any(
            isinstance(one, ast.With) and "checked_last(" in ast.unparse(one.items[0]) for one in around
        )
    ]
    assert signed == []
    # The one request whose operation is a text.
    store, control = ((ROOT / "dynamodb" / f"{name}.py").read_text() for name in ("store", "control"))
    assert store.count("self.metered(units, lambda: getattr(self.client, operation)(") == 1
    assert control.count("self.store.write_if(") == 2
    assert "getattr(" not in control


def test_every_stage_that_writes_items_needs_a_check() -> None:
    needs = {one.__name__ for one, _ in NEEDS}
    found = set()
    for path in sorted((ROOT / "stages").rglob("*.py")):
        for node, around in calls(path, lambda one: one.attr in WRITES):
            if ast.unparse(node.value).split(".")[-1] in STORES:
                found |= {
                    next(one.name for one in around if isinstance(one, (ast.ClassDef, ast.FunctionDef)))
                }
    # A store that a path is given with its check; what `send` does once it has asked.
    assert found - {"PutsAmongOthers", "_send_groups"} <= needs
    assert {"FastPath", "Undo", "Strip", "Purge", "send"} <= found


@pytest.mark.slow
def test_no_check_has_a_default_that_does_nothing() -> None:
    """Whatever is called a check, a fence or a guard: no argument or field of that name has a default."""
    names = {"check", "fence", "guard", "admit", "look", "before_commit"}
    loose = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                fields = [
                    one for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None
                ]
                loose += [
                    f"{path.name}:{node.name}.{name}"
                    for one in fields
                    if (name := ast.unparse(one.target)) in names
                ]
            elif isinstance(node, ast.FunctionDef):
                given = [*node.args.posonlyargs, *node.args.args]
                with_default = [*given[len(given) - len(node.args.defaults) :]]
                with_default += [
                    a for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d
                ]
                loose += [f"{path.name}:{node.name}({one.arg})" for one in with_default if one.arg in names]
    # What a verify was told of the source when it began; whether a filter's arguments are right.
    assert sorted(loose) == ["evidence.py:VerifyOnRecord.look", "filters.py:FilterSpec.check"]


def test_nothing_is_set_on_a_stage_or_a_store_once_it_is_made() -> None:
    """Commands and sessions build them whole; what they set is theirs, or the terminal's."""
    allowed = {"command_line.context", "sys.stdout", "sys.stderr"}
    of_printing = ("pages", "table", "part", "listed")
    folders = ("commands", "cli", "features/spark", "stages/session")
    patched = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in [
            ROOT / "main.py",
            ROOT / "stages" / "process.py",
            *(path for folder in folders for path in (ROOT / folder).rglob("*.py")),
        ]
        for node, _ in calls(path, lambda one: isinstance(one.ctx, ast.Store))
        if ast.unparse(node.value) not in ("self", *of_printing) and ast.unparse(node) not in allowed
    ]
    assert patched == []


# ── a check that fails stops what is sent ──


def lost() -> None:
    raise StoppedError("the lease is lost")


DESIGN = TableDesign("T", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expires")
ITEM: Item = {"PK": "P", "SK": "S", "type": "Order", "_src": "order:[1]", "_tk": 5, "_rev": "r"}
DEAD: Item = {**ITEM, "SK": "DEAD", "type": TOMBSTONE, "expires": 1}
NEW: Item = {**ITEM, "SK": "NEW"}


@dataclass
class Table:
    """One table's edges under one check; `there`: all that stands in it."""

    items: Any
    writes: Any
    control: Any
    stripping: Any

    def there(self) -> list[Item]:
        found = [item for page in self.items.scan(0, 1) for item in page.items]
        return sorted(found, key=lambda item: str(item["SK"]))


@pytest.fixture(scope="module", params=["fake", "dynamodb"])
def tables(request: pytest.FixtureRequest) -> Iterator[Callable[[Callable[[], None]], Table]]:
    """Gives the edges of one table that holds two items, under the check that it is given."""
    if request.param == "fake":
        fake = FakeStore(DESIGN, no_fence)
        put_items(fake, [ITEM, DEAD])

        def made(check: Callable[[], None]) -> Table:
            store = FakeStore(DESIGN, check)
            store.items = fake.items
            return Table(store, store, store, FakeStripping(store))

        yield made
        return
    design = replace(DESIGN, name=f"T{secrets.token_hex(6)}")
    client = dynamodb_client(region=None, profile=None, endpoint=request.getfixturevalue("dynamodb_url"))
    DynamoTableAdmin(client).create(design)
    free = DynamoStore(client, design, no_fence)
    put_items(free, [ITEM, DEAD])

    def real(check: Callable[[], None]) -> Table:
        store = free.fenced(check)
        control = ControlItem(store, lambda state: None)
        return Table(store, ConditionalWrites(store), control, DynamoStripping(store))

    yield real
    client.delete_table(TableName=design.name)


SENT: dict[str, Callable[[Table], object]] = {
    "put": lambda table: put_items(table.items, [NEW]),
    "delete": lambda table: table.items.delete([("P", "S")]),
    "delete_own": lambda table: table.items.delete_own([ITEM]),
    "write": lambda table: write_items(table.writes, [NEW]),
    "insert": lambda table: write_items(table.writes, [NEW], fresh=True),
    "write_own": lambda table: table.writes.write_own(encoded([NEW], DESIGN)),
    "write_together": lambda table: write_groups(table.writes, [[NEW, {**NEW, "SK": "NEW2"}]]),
    "write_together, many": lambda table: write_groups(
        table.writes, [[{**NEW, "SK": f"{group}{n}"} for n in range(2)] for group in range(3)]
    ),
    "write, many": lambda table: write_items(table.writes, [{**NEW, "SK": f"{n}"} for n in range(3)]),
    "remove_tombstones": lambda table: table.writes.remove_tombstones([DEAD]),
    "raise_control": lambda table: table.control.raise_control(7),
    "keep": lambda table: table.control.keep("id", "shop", Kept("one")),
    "strip": lambda table: table.stripping.strip([ITEM]),
    "remove": lambda table: table.stripping.remove([DEAD]),
}


@pytest.mark.parametrize("name", SENT)
def test_a_check_that_fails_stops_every_kind_of_write(
    tables: Callable[[Callable[[], None]], Table], name: str
) -> None:
    before = tables(lost).there()
    assert [item["SK"] for item in before] == ["DEAD", "S"]
    with pins.refused(StoppedError, "lease"):
        SENT[name](tables(lost))
    with pins.refused(TargetError, "opened"):
        SENT[name](tables(reads_only))
    assert tables(no_fence).there() == before


# ── stages ask before they write ──


class Claimed:
    def types_of(self, entity: object) -> frozenset[str]:
        return frozenset()

    def sift(self, entity: object, items: list[Item]) -> tuple[list[Item], list[object]]:
        return items, []


def by_fast_path(shop: Shop) -> None:
    entity = shop.refresh.entities["users"].compiled
    encoders = {"users": shop.refresh.entities["users"].encoder}
    path = FastPath(shop.store, Claimed(), encoders, lambda: 0.0, lost, None, None, frozenset())  # type: ignore[arg-type]
    path.copy(entity, *page_of(lambda: shop.source.read_page(entity.plan, None, None)))


def by_beside_path(shop: Shop) -> None:
    entity = shop.refresh.entities["users"].compiled
    path = ConditionalPath(replace(shop.refresh, check=lost), shop.open_findings, {})
    path.copy(entity, *page_of(lambda: shop.source.read_page(entity.plan, None, None)))


STAGES: dict[str, Callable[[Shop], object]] = {
    "refresh": lambda shop: replace(shop.refresh, check=lost)({("users", "[2]"): set()}),
    "fast path": by_fast_path,
    "conditional path": by_beside_path,
    "undo": lambda shop: Undo(shop.store, shop.store.design, frozenset({"users"}), lost).delete(),
    "purge": lambda shop: list(
        Purge(shop.store, NoWriters(), DESIGN, Lifetimes(20.0, 60.0), lost).run([[DEAD]], 1e12)  # type: ignore[arg-type]
    ),
}


class NoWriters:
    def living(self, silent_s: float) -> list[object]:
        return []


@pytest.mark.parametrize("name", STAGES)
def test_stage_with_a_failing_check_writes_nothing(name: str) -> None:
    shop = Shop()
    shop.change("users", 1, name="Ann")
    shop.relay.once()
    shop.change("users", 2, name="Bea")
    shop.store.items.update({("P", "DEAD"): dict(DEAD)})
    before = written(shop)
    with pins.refused(StoppedError):
        STAGES[name](shop)
    assert written(shop) == before


def written(shop: Shop) -> list[Item]:
    """All but the control item, which a ticket is told before its rows are read."""
    return [dict(item) for item in shop.store.items.values() if item["type"] != CONTROL]
