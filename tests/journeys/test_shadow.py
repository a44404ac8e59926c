"""`migrator shadow replay` over the shop: clean on a table that is right, and every planted corruption found and classed."""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.journal.phases import SqlEvidence
from migrator.mapping.model.evidence import DiffKey, Sample, Window
from migrator.mapping.model.table import Item, KeyAttribute, TableDesign
from tests import pins
from tests.forking import run_python
from tests.journeys.command import ROOT, Project, project
from tests.journeys.in_process import Ended
from tests.support_fence import no_fence
from tests.support_items import put_items
from tests.support_journal_file import journal_in_file
from tests.support_mapping import parse_mapping

# One worker fills the shop once.
pytestmark = pytest.mark.xdist_group("shadow")

PATTERNS = set(
    parse_mapping((ROOT / "mappings" / "ecommerce.yaml").read_text(encoding="utf-8"), "m").mapping.patterns
)
FEWER = """
DELETE FROM order_items WHERE order_id % 16 > 0;
DELETE FROM orders WHERE id % 16 > 0;
DELETE FROM users WHERE id > 50 AND id NOT IN (SELECT user_id FROM orders);
DELETE FROM sessions WHERE rowid % 10 > 0;
"""
"""The embedded table takes seconds for the thousands of orders of one status."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    folder = tmp_path_factory.mktemp("shadow")
    source = f"sqlite:///{folder / 'shop.db'}"
    build = [ROOT / "docker" / "shop" / "build.py", "--scale", "1", source]
    run_python(build, check=True)
    with sqlite3.connect(folder / "shop.db") as database:
        database.executescript(FEWER)
    made = project(folder, source, dynamodb_url, f"App{secrets.token_hex(4)}", mapping="ecommerce")
    return made.prepared("table create", "backfill")


def replay(shop: Project, *words: str) -> Ended:
    return shop.run("shadow", "replay", str(shop.job), "--seed", "7", "--settle", "0.3s", *words)


def test_every_pattern_is_clean(shop: Project) -> None:
    ended = replay(shop, "--sample", "12", "--json")
    assert ended.code == 0, ended.out
    found = {one["pattern"]: one for one in ended.data["patterns"]}
    assert set(found) == PATTERNS
    for name, one in found.items():
        assert one["same"] == one["samples"] == 12, name
        assert one["empty"] < one["samples"], name
        assert set(one["latency_ms"]) == {"table", "sql"}
    assert found["get_orders_by_status"]["parameters"] == {
        "status": "orders.status",
        "since": "orders.created_at",
    }
    assert {tuple(kind["set"]) for kind in found["get_orders_by_status"]["kinds"]} == {(), ("since",)}
    assert found["recent_orders"]["parameters"]["limit"] == "made up"


def test_sql_against_sql_needs_no_table(shop: Project, tmp_path: Path) -> None:
    job = tmp_path / "control.yaml"
    job.write_text(shop.job.read_text(encoding="utf-8").replace(f"table: {shop.table}", "table: NoSuchTable"))
    ended = shop.run("shadow", "replay", str(job), "--control", "--sample", "3")
    assert ended.code == 0, ended.err
    assert "SQL (again) p50" in ended.out
    without = shop.run("shadow", "replay", str(job), "--sample", "3")
    assert without.code == 2
    assert pins.said(without.err)


# ── corruptions ──


def design(shop: Project) -> TableDesign:
    return TableDesign(shop.table, (KeyAttribute("PK"), KeyAttribute("SK")), "EntityType")


class Spoiler:
    """The table's items as they are, to be written otherwise."""

    def __init__(self, shop: Project) -> None:
        self.key_of = design(shop).key_of
        self.store = DynamoStore(
            dynamodb_client(region=None, profile=None, endpoint=shop.endpoint), design(shop), no_fence
        )
        self.before = self._items()

    def _items(self) -> list[Item]:
        return [item for page in self.store.scan(0, 1) for item in page.items]

    def all(self, type_: str) -> list[Item]:
        return [dict(item) for item in self.before if item["EntityType"] == type_]

    def __call__(self, type_: str, how: Callable[[Item], Item | None]) -> None:
        """Changes every item of a type; None takes it away."""
        made = [how(item) for item in self.all(type_)]
        put_items(self.store, [item for item in made if item is not None])
        if None in made:
            self.store.delete([self.key_of(item) for item in self.all(type_)])

    def put_back(self) -> None:
        known = {self.key_of(item): item for item in self.before}
        now = {self.key_of(item): item for item in self._items()}
        self.store.delete([key for key in now if key not in known])
        put_items(self.store, [item for key, item in known.items() if now.get(key) != item])


@pytest.fixture
def spoil(shop: Project) -> Iterator[Spoiler]:
    """What spoils items, which are put back at the end."""
    made = Spoiler(shop)
    yield made
    made.put_back()


def _missing(item: Item) -> Item | None:
    return None


def _dearer(item: Item) -> Item:
    return {**item, "price": item["price"] + 1}  # type: ignore[operator]


def _as_text(item: Item) -> Item:
    return {**item, "price": str(item["price"])}


def _nameless(item: Item) -> Item:
    return {name: value for name, value in item.items() if name != "name"}


def _twice(item: Item) -> Item:
    return {**item, "SK": f"{item['SK']!s}~"}


CORRUPTED = [
    ("Product", _missing, "get_product", {("missing", "")}),
    ("Product", _dearer, "get_product", {("value", "price")}),
    ("Product", _as_text, "get_product", {("type", "price")}),
    ("Product", _nameless, "get_product", {("missing", "name")}),
]


@pytest.mark.parametrize(
    ("type_", "how", "pattern", "kinds"), CORRUPTED, ids=[how.__name__ for _, how, _, _ in CORRUPTED]
)
def test_a_corruption_is_found_and_classed(
    shop: Project, spoil: Spoiler, type_: str, how: Any, pattern: str, kinds: set[tuple[str, str]]
) -> None:
    spoil(type_, how)
    ended = replay(shop, "--sample", "6", "--pattern", pattern, "--pattern", "get_user", "--json")
    assert ended.code == 1, ended.err
    assert not ended.data["clean"]
    found = {one["pattern"]: one for one in ended.data["patterns"]}
    assert {(one["class"], one["attribute"]) for one in found[pattern]["differences"]} == kinds
    assert found["get_user"]["differences"] == []


def test_an_item_that_no_row_makes_is_unexpected(shop: Project, spoil: Spoiler) -> None:
    put_items(spoil.store, [_twice(item) for item in spoil.all("OrderItem")])
    ended = replay(shop, "--sample", "4", "--pattern", "order_with_items", "--json")
    (one,) = ended.data["patterns"]
    assert {(found["class"], found["part"]) for found in one["differences"]} == {("unexpected", "items")}


def test_items_in_another_order_are_one_difference_of_order(shop: Project, spoil: Spoiler) -> None:
    by_category: dict[str, list[Item]] = defaultdict(list)
    for item in spoil.all("Category"):
        by_category[str(item["PK"])].append(item)
    for items in by_category.values():
        turned = [{**other, "SK": one["SK"]} for one, other in zip(items, reversed(items), strict=True)]
        put_items(spoil.store, turned)
    ended = replay(shop, "--sample", "4", "--pattern", "products_of_category", "--json")
    (one,) = ended.data["patterns"]
    assert {(found["class"], found["attribute"]) for found in one["differences"]} == {("order", "")}


def test_an_example_stands_side_by_side(shop: Project, spoil: Spoiler) -> None:
    spoil("Product", _dearer)
    ended = replay(shop, "--sample", "6", "--pattern", "get_product")
    assert ended.code == 1
    assert re.search(r"get_product: \d value price", ended.out)
    assert "asked -p product_id=" in ended.out
    assert "» price" in ended.out
    assert "not clean" in ended.out


def test_redacted_values_are_shown_as_marks(shop: Project, spoil: Spoiler, tmp_path: Path) -> None:
    text = (ROOT / "mappings" / "ecommerce.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "    returns: [userId, name]\n", "    returns: [userId, name]\n    redact: [email, name]\n"
    )
    (tmp_path / "mapping.yaml").write_text(text, encoding="utf-8")
    job = tmp_path / "job.yaml"
    lines = shop.job.read_text(encoding="utf-8").splitlines()
    job.write_text("\n".join("mapping: mapping.yaml" if "mapping:" in line else line for line in lines))
    spoil("User", lambda item: {**item, "name": f"{item['name']!s}!"})
    words = ("shadow", "replay", str(job), "--pattern", "user_by_email", "--sample", "4", "--settle", "0s")
    for more in ([], ["--json"]):
        ended = shop.run(*words, "--seed", "7", *more)
        assert ended.code == 1, ended.err
        assert "value" in ended.out
        assert "@" not in ended.out
        assert "!" not in ended.out
        assert "…" in ended.out or "\\u2026" in ended.out


# ── what the journal keeps ──


def kept(shop: Project) -> tuple[list[Window], list[Sample]]:
    with closing(journal_in_file(shop.folder / ".migrator" / "shop.db")) as journal:
        evidence = SqlEvidence(journal.database, "shop")
        return evidence.windows(0), evidence.samples()


def test_comparisons_are_kept_unless_disabled(shop: Project, spoil: Spoiler) -> None:
    spoil("Product", _dearer)
    before = kept(shop)[0]
    asked = ("--pattern", "get_product", "--sample", "6")
    assert replay(shop, *asked, "--dry-run").code == 1
    assert replay(shop, *asked, "--control").code == 0
    assert kept(shop)[0] == before
    assert replay(shop, *asked).code == 1
    windows, samples = kept(shop)
    (last,) = [one for one in windows if one not in before]
    assert (last.pattern, last.origin, last.compared) == ("get_product", "replay", 6)
    assert last.found == {DiffKey("value", "", "price"): last.different}
    assert set(last.latency) == {"table", "sql"}
    assert samples[0].key == DiffKey("value", "", "price")
    assert samples[0].row != samples[0].item


# ── wrong use ──

WRONG = {
    ("--pattern", "get_usr"): "the mapping has no access pattern 'get_usr'; did you mean 'get_user'?",
    ("--sample", "0"): "0 is not in the range x>=1",
    ("--workers", "65"): "65 is not in the range 1<=x<=64",
    ("--settle", "soon"): "'soon' is not a duration; write a duration such as 30s",
    ("--seed", "-1"): "-1 is not in the range x>=0",
}


@pytest.mark.parametrize("words", sorted(WRONG))
def test_wrong_use_is_reported(shop: Project, words: tuple[str, str]) -> None:
    ended = shop.run("shadow", "replay", str(shop.job), *words)
    assert ended.code == 2
    assert WRONG[words] in ended.err


def test_failing_statement_is_an_sql_error_and_ends_nothing(shop: Project, tmp_path: Path) -> None:
    text = (ROOT / "mappings" / "ecommerce.yaml").read_text(encoding="utf-8")
    text = text.replace(
        "SELECT id, email, name FROM users WHERE id = :user_id", "SELECT id FROM users WHERE id = :user_id", 1
    )
    (tmp_path / "mapping.yaml").write_text(text, encoding="utf-8")
    job = tmp_path / "job.yaml"
    lines = shop.job.read_text(encoding="utf-8").splitlines()
    job.write_text("\n".join("mapping: mapping.yaml" if "mapping:" in line else line for line in lines))
    words = (
        "--pattern",
        "get_user",
        "--pattern",
        "get_product",
        "--sample",
        "3",
        "--settle",
        "0s",
        "--json",
    )
    ended = shop.run("shadow", "replay", str(job), "--seed", "7", *words)
    assert ended.code == 1, ended.err
    user, product = ended.data["patterns"]
    assert {(one["class"], one["attribute"]) for one in user["differences"]} == {("error", "sql")}
    assert pins.said(user["differences"][0]["examples"][0]["why"])
    assert product["same"] == 3
