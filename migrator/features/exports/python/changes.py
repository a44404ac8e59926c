"""Writes of a generated module: put, change and delete of all items of a row, and a row read back from one of its items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.features.exports.model import Attribute, ItemType, RowModel
from migrator.features.exports.python.expressions import Names, UnsaidError, literal, shown
from migrator.features.exports.python.rows import RowCode, children_of, is_bare, restoring
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.mapping import Condition, Expression, Filter, Ref, paths_in, uses_in


@dataclass(frozen=True)
class Writes:
    """Methods of the table's class that write a row's items together. `version`: the attribute that counts the row's
    changes, as Python; `counted`: what the count becomes, '' without one; `read`: why there is no read, or how."""

    code: RowCode
    put: str
    change: str
    delete: str
    read: ReadBack | str

    @property
    def version(self) -> str:
        return literal(self.code.row.version and self.code.row.version[0])

    @property
    def counted(self) -> str:
        version, row = self.code.row.version, self.code.row
        if version is None:
            return ""
        name = self.code.names.fields[version[1]]
        before = f"(before.{name} or 0)" if row.value(version[1]).nullable else f"before.{name}"
        return f"{name}={before} + 1"

    def source(self, of: str) -> str:
        """What says which row the items are of."""
        names, row = self.code.names, self.code.row
        return f"({literal(row.name)}, [{', '.join(f'{of}.{names.fields[path]}' for path in row.key)}])"


def writes_of(code: RowCode, methods: Names) -> Writes:
    put, change, delete = (
        methods.one(f"{does}_{code.names.function}") for does in ("put", "change", "delete")
    )
    try:
        found: ReadBack | str = read_back(code, methods)
    except UnsaidError as error:
        found = str(error)
    return Writes(code, put, change, delete, found)


# ── a row read back ──


@dataclass(frozen=True)
class ReadBack:
    """A method that reads a row back from its items, to be changed or deleted. `same`: its arguments, passed on; `steps`:
    the items to read, each with the call that makes its key; `values`: by field what gives it."""

    method: str
    takes: str
    same: str
    doc: str
    steps: Sequence[tuple[str, str]]
    values: Sequence[tuple[str, str]]


def read_back(code: RowCode, methods: Names) -> ReadBack:
    """Raises: UnsaidError where the row's items do not hold all that they are made of."""
    reasons, names = [], code.names
    for first in code.row.items:
        steps, found = _steps(code, first)
        missing = [value.path for value in code.row.values if value.path not in found]
        if missing:
            reasons.append(
                f"by the key of {shown(first.name)} nothing gives {', '.join(map(shown, missing))}"
            )
            continue
        fields = [names.fields[path] for path in code.paths(first.key)]
        listed = ", ".join(shown(item.name) for item, _ in steps)
        return ReadBack(
            methods.one(f"read_{names.function}"),
            ", ".join(filter(None, ("self", code.arguments(first.key)))),
            ", ".join(f"{name}={name}" for name in fields),
            f"The row as its item {listed} holds it; None where there is none.",
            [
                (item.name, f"{names.keys[item.name]}({', '.join(arguments)})")
                for item, arguments in steps
            ],
            [(names.fields[value.path], found[value.path]) for value in code.row.values],
        )
    raise UnsaidError("; ".join(reasons))


def _steps(
    code: RowCode, first: ItemType
) -> tuple[list[tuple[ItemType, list[str]]], dict[str, str]]:
    """Items to read, each with the arguments of its key, and by path of a value what then gives it.

    The first is read by arguments, others by what those before them hold. An item that may not be there is not read.
    """
    names, row = code.names, code.row
    # A list is no argument that a service would have.
    found = {
        path: names.fields[path] for path in code.paths(first.key) if path not in names.children
    }
    steps: list[tuple[ItemType, list[str]]] = []
    for item in [first, *(other for other in row.items if other is not first)]:
        paths = code.paths(item.key)
        held = {} if item.when else dict(_all_held(code, item, f"_read{len(steps)}"))
        if not (set(paths) <= set(found) and (not steps or set(held) - set(found))):
            continue
        steps.append((item, [f"{names.fields[path]}={found[path]}" for path in paths]))
        found = {**held, **found} if len(steps) > 1 else {**found, **held}
    return steps, found


def _all_held(code: RowCode, item: ItemType, read: str) -> Iterator[tuple[str, str]]:
    """The row's values that an item holds, by their paths, each with what restores it. `read`: the item's variable."""
    for attribute in item.attributes:
        yield from _held(code, attribute, read)
    expiry, ttl = item.expiry, code.model.table.ttl
    if expiry is not None and ttl is not None and not _used(code.row, expiry.path):
        kind = code.row.value(expiry.path).kind
        zone = "UTC" if kind.zone else code.model.timezone or "UTC"
        how = (
            f"{expiry.days}, {literal(zone)}, zoned={kind.zone}" if kind.name == "timestamp" else ""
        )
        if how:
            yield expiry.path, f"_read_expiry({read}.get({literal(ttl)}), {how})"


def _held(code: RowCode, attribute: Attribute, read: str) -> Iterator[tuple[str, str]]:
    """The row's value that an attribute holds as a whole, and what restores it."""
    value = attribute.expression
    got = f"{read}.get({literal(attribute.name)})"
    if isinstance(value, Ref) and (is_bare(value) or _whole_enough(code.row, value)):
        yield value.paths[0], restoring(code.row.value(value.paths[0]).kind, got)
    entries = children_of(attribute)
    for path, (called, fields) in code.names.children.items():
        rows = code.row.value(path)
        if entries is None or _collection(attribute) != path or set(fields) - set(entries):
            continue
        made = ", ".join(
            f"{fields[child.path]}={restoring(child.kind, f'child.get({literal(entries[child.path])})')}"
            for child in rows.children
        )
        yield path, f"[{called}({made}) for child in {got} or []]"


def _collection(attribute: Attribute) -> str | None:
    return next((use.collection for use in uses_in(attribute.expression)), None)


def _whole_enough(row: RowModel, ref: Ref) -> bool:
    """Whether the text of a time, cut perhaps, says all that anything else of the row takes of it."""
    if len(ref.filters) != 1 or ref.format is not None or not FILTERS[ref.filters[0].name].moment:
        return False
    path, own = ref.paths[0], ref.filters[0]
    conditions = [
        *row.where,
        *(one for item in row.items for one in (*item.when, *_of_entries(item))),
    ]
    if path in {condition.path for condition in conditions} or path in _expiring(row):
        return not own.args
    uses = [use for value in _expressions(row) for use in uses_in(value) if path in use.ref.paths]
    return not own.args or all(_no_finer(use.ref, own) for use in uses)


def _used(row: RowModel, path: str) -> bool:
    """Whether anything but the items' time to live is made of the value."""
    conditions = [
        *row.where,
        *(one for item in row.items for one in (*item.when, *_of_entries(item))),
    ]
    return path in {one.path for one in conditions} or path in set(paths_in(_expressions(row)))


def _of_entries(item: ItemType) -> Iterator[Condition]:
    return (condition for entry in item.indexes for condition in entry.when)


def _expiring(row: RowModel) -> set[str]:
    return {item.expiry.path for item in row.items if item.expiry}


def _expressions(row: RowModel) -> Iterator[Expression]:
    for item in row.items:
        yield from (part.template for part in item.key)
        yield from (part.template for entry in item.indexes for part in entry.parts)
        yield from (attribute.expression for attribute in item.attributes)


def _no_finer(ref: Ref, own: Filter) -> bool:
    return bool(ref.filters) and (ref.filters[0] == own or bool(unit_of(ref.filters[0])))
