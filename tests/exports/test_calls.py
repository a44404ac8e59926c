"""Every place that calls AWS, and the roles whose commands come there: a new call is found, and needs a right and a role.

Read from the code: methods of clients, and names of operations that are handed to what calls them by name. That a role's
commands come to no other place, no reading of code can say: tests/nightly/exports/test_iam.py runs them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache

import boto3
import pytest

from migrator.settings.roles import ROLES, Role
from tests.exports.shipped import ROOT

RIGHT_OF = {"TransactWriteItems": "PutItem", "BatchExecuteStatement": "PartiQLInsert"}
"""Rights that differ from their operation's name: our transactions and statements only put."""
_OPENS = "deploy import backfill relay verify reverse operator report service-strict"
"""Roles whose commands look at the table before anything else."""
_WRITES = "backfill relay service-strict"
_SCANS = "backfill import operator reverse verify"
_ASKS = "operator service-reading service-strict"
DOCTOR = "doctor"
"""Tries the rights of the role that it is asked about, and no other."""
PROBE = "probe"
"""A table of its own, by a person: no role of a job makes or deletes tables."""
ON_THIS_MACHINE = "embedded"
"""A bucket of the embedded server, never of AWS."""

SITES: Mapping[str, str] = {
    "settings/definition.later_requests": "deploy import",
    "settings/definition.requests_after_import": "import",
    "settings/definition.wanted_answers": "deploy import",
    "settings/definition._pairs": "deploy import",
    "dynamodb/admin.probes": DOCTOR,
    "dynamodb/admin.clock_of": DOCTOR,
    "dynamodb/admin._reads": DOCTOR,
    "dynamodb/admin._writes": DOCTOR,
    "dynamodb/admin._of_definitions": DOCTOR,
    "dynamodb/admin._probe_insert": DOCTOR,
    "dynamodb/admin._insert": DOCTOR,
    "dynamodb/objects.DynamoImports.begin": "import",
    "dynamodb/objects.DynamoImports.state": "import",
    "dynamodb/objects.DynamoImports.asked_with": "import",
    "dynamodb/objects.DynamoImports._faults": "import",
    "dynamodb/admin.DynamoTableAdmin.create": "deploy",
    "dynamodb/admin.DynamoTableAdmin.add_index": "deploy",
    "dynamodb/admin.DynamoTableAdmin.remove_index": "deploy",
    "dynamodb/admin.DynamoTableAdmin.clock": DOCTOR,
    "dynamodb/admin.DynamoTableAdmin._describe": _OPENS,
    "dynamodb/admin.DynamoTableAdmin._ttl": _OPENS,
    "dynamodb/conditional.ConditionalWrites._insert": "backfill relay",
    "dynamodb/control.ControlItem._put": f"{_WRITES} import operator verify",
    "dynamodb/control.DynamoStripping._update": "operator",
    "dynamodb/exchange.Exchange.scan": _SCANS,
    "dynamodb/objects.S3Files.write": "import",
    "dynamodb/objects.S3Files.read": "import",
    "dynamodb/objects.S3Files.sizes_below": "import",
    "dynamodb/objects.S3Files.remove": "import",
    "dynamodb/objects.S3Objects.put": f"{_WRITES} import",
    "dynamodb/objects.S3Objects.sizes": f"{_WRITES} import verify",
    "dynamodb/objects.S3Objects.probe": DOCTOR,
    "dynamodb/objects.S3Objects.make_bucket": ON_THIS_MACHINE,
    "dynamodb/objects.S3Objects._send": f"{_WRITES} import verify",
    "dynamodb/store.DynamoStore._answers": _SCANS,
    "dynamodb/store.DynamoStore.scan": _SCANS,
    "dynamodb/store.DynamoStore.query": _ASKS,
    "dynamodb/store.DynamoStore.get_item": f"{_OPENS} service-reading",
    "dynamodb/store.DynamoStore._send": "backfill",
    "dynamodb/store.DynamoStore._tried": "backfill",
    "dynamodb/store.DynamoStore._read": f"{_ASKS} report reverse verify",
    "dynamodb/store.DynamoStore.delete_if": "operator",
    "dynamodb/tables.DynamoStream._table": "reverse",
    "dynamodb/tables.DynamoStream.iterator": "reverse",
    "dynamodb/tables.DynamoStream.records": "reverse",
    "dynamodb/tables.DynamoStream.state": "reverse",
    "dynamodb/conditional.Put": _WRITES,
    "dynamodb/conditional.Transaction": _WRITES,
    "dynamodb/conditional.Inserts": "backfill relay",
    "features/probe/work._delete": PROBE,
    "features/probe/work._table": PROBE,
    "features/probe/work._without_import": PROBE,
    "features/exports/python/table._Table._read": "service-after",
    "features/exports/python/table._Table._batch": "service-after",
    "features/exports/python/table._Table._partition": "service-after",
    "features/exports/python/table._Writable._change": "service-after",
    "features/exports/python/table._Writable._put_action": "service-after",
    "features/exports/python/table._Writable._update": "service-after",
}
"""By the place of a call, below migrator/, who comes there."""
_READS_OLD = "backfill import operator relay report service-strict verify"
OLD_SITES: Mapping[str, str] = {
    "dynamodb/tables.TableReader._batch": f"{_READS_OLD} service-reading",
    "dynamodb/tables.TableReader.asked": f"{_READS_OLD} service-reading",
    "dynamodb/tables.TableReader.describe": f"{_READS_OLD} service-reading",
    "dynamodb/tables.TableReader.one": _ASKS,
    "dynamodb/tables.TableReader.scan": _READS_OLD,
    "dynamodb/tables.DynamoStream._is_enabled": "operator",
    "dynamodb/tables.DynamoStream._table": _READS_OLD,
    "dynamodb/tables.DynamoStream.iterator": _READS_OLD,
    "dynamodb/tables.DynamoStream.probe": DOCTOR,
    "dynamodb/tables.DynamoStream.records": "operator relay verify",
    "dynamodb/tables.DynamoStream.state": _READS_OLD,
    "dynamodb/tables.DynamoStream.switch_on": "operator",
}
"""The same of calls on old tables that are the source, and on their streams."""

DISPATCHERS = {
    "dynamodb/objects.DynamoImports._call",
    "dynamodb/admin.DynamoTableAdmin._call",
    "dynamodb/admin.DynamoTableAdmin._change",
    "dynamodb/conditional.ConditionalWrites._settled",
    "dynamodb/objects.S3Objects._tried",
    "dynamodb/tables.TableReader._pages",
    "dynamodb/store.DynamoStore._call",
    "dynamodb/store.DynamoStore.write_if",
    "dynamodb/tables.DynamoStream._ask",
}
"""Places that call a method whose name they are given. Who gives it has it as a text, which is what is looked for."""
_S3_RIGHTS = {
    "HeadObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
}
"""Source: Amazon S3 User Guide, "Required permissions for Amazon S3 API operations"."""
_IN_TRANSACTIONS = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
_NEEDED_BESIDE: Mapping[str, frozenset[str]] = {
    # Of a table that is made with tags.
    "deploy": frozenset({"TagResource"}),
    # The rights that AWS itself writes the log by.
    "import": frozenset(right for right in ROLES["import"].logs if right != "logs:GetLogEvents"),
}
_TO_KNOW_WHAT_IS_ABSENT = "s3:ListBucket"
"""Without it S3 answers 403 for an object that is not there."""


@cache
def operations() -> dict[str, str]:
    """By the name of a method of boto3's clients the right that it needs."""
    found = {}
    for service in ("logs", "s3", "dynamodbstreams", "dynamodb"):
        named = boto3.client(service, region_name="eu-central-1").meta.method_to_api_mapping
        for method, operation in named.items():
            if service == "dynamodb":
                found[method] = RIGHT_OF.get(operation, operation)
            elif service == "dynamodbstreams":
                found[method] = f"dynamodb:{operation}"
            else:
                found[method] = _S3_RIGHTS.get(operation, f"{service}:{operation}")
    return found


@cache
def sites() -> dict[str, frozenset[str]]:
    """By the place of a call the rights that it needs."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "migrator").rglob("*.py")):
        module = path.relative_to(ROOT / "migrator").with_suffix("").as_posix()
        by_name = module.startswith(("dynamodb/", "settings/definition"))
        for place, node in _placed(ast.parse(path.read_text(encoding="utf-8")), f"{module}."):
            right = _called(node) or (_named(node) if by_name else None)
            if place.startswith("features/exports/python/table._Writable."):
                right = _of_a_transaction(node) or (right if right != "PutItem" else None)
            if right is not None:
                found[place].add(right)
    return {place: frozenset(rights) for place, rights in found.items() if not _only_speaks(place)}


def _only_speaks(place: str) -> bool:
    """Whether it names operations and calls none: constants of a module, and the roles themselves."""
    return place.endswith(".") or place.startswith("settings/roles.")


def _placed(node: ast.AST, place: str, depth: int = 0) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the function or method of a class that it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = place
        if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and depth < 2:
            inner = f"{place}{child.name}" if place.endswith(".") else f"{place}.{child.name}"
        yield inner, child
        is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield from _placed(child, inner, 2 if is_function else depth + (inner != place))


def _called(node: ast.AST) -> str | None:
    """The right that a method of a client needs."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(("client", "logs")):
        return operations().get(node.attr)
    return None


def _named(node: ast.AST) -> str | None:
    """The same of an operation that is a text, as its method or as itself."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    named = operations().get(node.value) or RIGHT_OF.get(node.value)
    return named or (node.value if node.value in operations().values() else None)


def _of_a_transaction(node: ast.AST) -> str | None:
    return _IN_TRANSACTIONS.get(str(node.value)) if isinstance(node, ast.Constant) else None


def _rights(name: str) -> set[str]:
    role: Role = ROLES[name]
    return {*role.table, *_asked(role), *role.objects, *role.files, *role.logs, *role.stream}


def _old_rights(name: str) -> set[str]:
    role: Role = ROLES[name]
    return {*role.old_tables, *_asked(role), *role.old_streams} if role.old_tables else set()


def _asked(role: Role) -> set[str]:
    return {"Query", "GetItem", "BatchGetItem"} if role.asks else set()


pytestmark = pytest.mark.xdist_group("calls")  # one worker reads all of the code for them
_SIDES = pytest.mark.parametrize(("places", "rights"), [(SITES, _rights), (OLD_SITES, _old_rights)])


@pytest.mark.slow
def test_every_place_that_calls_aws_is_known() -> None:
    assert set(sites()) == {*SITES, *OLD_SITES}


@_SIDES
def test_every_role_has_the_rights_of_the_code_it_runs(
    places: Mapping[str, str], rights: Callable[[str], set[str]]
) -> None:
    for place, names in places.items():
        for name in names.split():
            if name not in (DOCTOR, PROBE, ON_THIS_MACHINE):
                assert sites()[place] <= rights(name), (place, name)


@pytest.mark.slow
@_SIDES
def test_no_role_has_a_right_that_none_of_its_places_needs(
    places: Mapping[str, str], rights: Callable[[str], set[str]]
) -> None:
    for name in ROLES:
        needed = {
            right for place, names in places.items() if name in names.split() for right in sites()[place]
        }
        if places is SITES:
            needed |= _NEEDED_BESIDE.get(name, frozenset())
            needed |= {_TO_KNOW_WHAT_IS_ABSENT} if ROLES[name].objects else set()
        extra = rights(name) - needed
        assert not extra, (name, extra)


def test_only_known_places_call_a_method_by_its_name() -> None:
    found = set()
    for path in sorted((ROOT / "migrator" / "dynamodb").rglob("*.py")):
        module = path.relative_to(ROOT / "migrator").with_suffix("").as_posix()
        for place, node in _placed(ast.parse(path.read_text(encoding="utf-8")), f"{module}."):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                given, name = node.args[:2]
                if ast.unparse(given).endswith(("client", "logs")) and not isinstance(name, ast.Constant):
                    found.add(place)
    assert found == DISPATCHERS
