"""Writes of a generated module: put, change and delete of all items of a row, and a row read back from one of its items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from migrator.features.exports.model import Attribute, ItemType, RowModel
from migrator.features.exports.python.expressions import Names, UnsaidError, shown
from migrator.features.exports.python.rows import RowCode, children_of, is_bare, reader
from migrator.mapping.items.filters import FILTERS, unit_of
from migrator.mapping.model.mapping import Condition, Expression, Filter, Ref, paths_in, uses_in


def writers(code: RowCode, methods: Names) -> Iterator[str]:
    """Methods of the table's class that write the row's items together; a comment where there are none."""
    row, names = code.row, code.names
    if names.unwritten:
        yield f"    # No writes of {shown(row.name)}: {names.unwritten}."
        yield ""
        return
    function = names.function
    key = ", ".join(f"row.{names.fields[path]}" for path in row.key)
    put = _Twice(
        methods.one(f"put_{function}"),
        f"row: {names.row}",
        "row",
        "None",
        "Writes the items of a new row. Raises: ConflictError where one is there already.",
    )
    yield from put.lines([f"self._put({put.name!r}, ({row.name!r}, [{key}]), {function}_items(row))"])
    change = _Twice(
        methods.one(f"change_{function}"),
        f"before: {names.row}, after: {names.row}",
        "before, after",
        names.row,
        "Makes of the items of `before` those of `after`, which it gives back. Raises: ConflictError where they changed.",
    )
    source = f"({row.name!r}, [{key.replace('row.', 'after.')}])"
    version = row.version[0] if row.version else None
    items = f"{function}_items(before), {function}_items(after), {version!r}"
    yield from change.lines(
        [*_counted(code), f"self._change({change.name!r}, {source}, {items})", "return after"]
    )
    delete = _Twice(
        methods.one(f"delete_{function}"),
        f"row: {names.row}",
        "row",
        "None",
        "Deletes the items of the row. Raises: ConflictError where they are others by now.",
    )
    gone = f"({row.name!r}, [{key}]), {function}_items(row), [], {version!r}"
    yield from delete.lines([f"self._change({delete.name!r}, {gone})"])


def _counted(code: RowCode) -> Iterator[str]:
    """The version of the row counted up, where the mapping has one."""
    version = code.row.version
    if version is not None:
        field = code.names.fields[version[1]]
        before = f"before.{field}"
        counted = f"({before} or 0)" if code.row.value(version[1]).nullable else before
        yield f"after = replace(after, {field}={counted} + 1)"


class _Twice:
    """A method, and the same beside an event loop."""

    def __init__(self, name: str, takes: str, passes: str, gives: str, doc: str) -> None:
        self.name, self.takes, self.passes, self.gives, self.doc = name, takes, passes, gives, doc

    def lines(self, body: list[str]) -> Iterator[str]:
        yield f"    def {self.name}(self, {self.takes}) -> {self.gives}:"
        yield f'        """{self.doc}"""'
        yield from (f"        {line}" for line in body)
        yield ""
        result = "return " if self.gives != "None" else ""
        yield f"    async def {self.name}_async(self, {self.takes}) -> {self.gives}:"
        yield f'        """{self.doc}"""'
        yield f"        {result}await asyncio.to_thread(self.{self.name}, {self.passes})"
        yield ""


# ── a row read back ──


def read_backs(code: RowCode, methods: Names) -> Iterator[str]:
    """A method that reads a row back from its items, to be changed or deleted.

    Raises: UnsaidError where they do not hold all that they are made of.
    """
    reasons = []
    for item in code.row.items:
        steps, found = _steps(code, item)
        missing = [value.path for value in code.row.values if value.path not in found]
        if not missing:
            yield from _read_back(code, steps, found, methods.one(f"read_{code.names.function}"))
            return
        reasons.append(f"by the key of {shown(item.name)} nothing gives {', '.join(map(shown, missing))}")
    raise UnsaidError("; ".join(reasons))


def _steps(code: RowCode, first: ItemType) -> tuple[list[tuple[ItemType, list[str]]], dict[str, str]]:
    """Items to read, each with the arguments of its key, and by path of a value what then gives it.

    The first is read by arguments, others by what those before them hold. An item that may not be there is not read.
    """
    names, row = code.names, code.row
    # A list is no argument that a service would have.
    found = {path: names.fields[path] for path in code.paths(first.key) if path not in names.children}
    steps: list[tuple[ItemType, list[str]]] = []
    for item in [first, *(other for other in row.items if other is not first)]:
        paths = code.paths(item.key)
        held = {} if item.when else dict(_all_held(code, item, f"_read{len(steps)}"))
        if not (set(paths) <= set(found) and (not steps or set(held) - set(found))):
            continue
        steps.append((item, [f"{names.fields[path]}={found[path]}" for path in paths]))
        found = {**held, **found} if len(steps) > 1 else {**found, **held}
    return steps, found


def _read_back(
    code: RowCode, steps: Sequence[tuple[ItemType, list[str]]], found: Mapping[str, str], method: str
) -> Iterator[str]:
    names, first = code.names, steps[0][0]
    takes, type_ = code.arguments(first.key, ()), code.model.table.type_attribute
    fields = [names.fields[path] for path in code.paths(first.key)]
    listed = ", ".join(shown(item.name) for item, _ in steps)
    doc = f"The row as its item {listed} holds it; None where there is none."
    yield f"    def {method}(self{', ' if takes else ''}{takes}) -> {names.row} | None:"
    yield f'        """{doc}"""'
    for number, (item, arguments) in enumerate(steps):
        called = f"{names.keys[item.name]}({', '.join(arguments)})"
        yield f"        _read{number} = self._read({called}, consistent=True)"
        yield f"        if _read{number} is None or _read{number}.get({type_!r}) != {item.name!r}:"
        yield "            return None"
    yield f"        return {names.row}("
    yield from (f"            {names.fields[value.path]}={found[value.path]}," for value in code.row.values)
    yield "        )"
    yield ""
    yield f"    async def {method}_async(self{', ' if takes else ''}{takes}) -> {names.row} | None:"
    yield f'        """{doc}"""'
    same = ", ".join(f"{name}={name}" for name in fields)
    yield f"        return await asyncio.to_thread(lambda: self.{method}({same}))"
    yield ""


def _all_held(code: RowCode, item: ItemType, read: str) -> Iterator[tuple[str, str]]:
    """The row's values that an item holds, by their paths, each with what restores it. `read`: the item's variable."""
    for attribute in item.attributes:
        yield from _held(code, attribute, read)
    expiry, ttl = item.expiry, code.model.table.ttl
    if expiry is not None and ttl is not None and not _used(code.row, expiry.path):
        kind = code.row.value(expiry.path).kind
        zone = "UTC" if kind.zone else code.model.timezone or "UTC"
        how = f"{expiry.days}, {zone!r}, zoned={kind.zone}" if kind.name == "timestamp" else ""
        if how:
            yield expiry.path, f"_read_expiry({read}.get({ttl!r}), {how})"


def _held(code: RowCode, attribute: Attribute, read: str) -> Iterator[tuple[str, str]]:
    """The row's value that an attribute holds as a whole, and what restores it."""
    value = attribute.expression
    got = f"{read}.get({attribute.name!r})"
    if isinstance(value, Ref) and (is_bare(value) or _whole_enough(code.row, value)):
        yield value.paths[0], f"{reader(code.row.value(value.paths[0]).kind)}({got})"
    entries = children_of(attribute)
    for path, (called, fields) in code.names.children.items():
        rows = code.row.value(path)
        if entries is None or _collection(attribute) != path or set(fields) - set(entries):
            continue
        made = ", ".join(
            f"{fields[child.path]}={reader(child.kind)}(child.get({entries[child.path]!r}))"
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
    conditions = [*row.where, *(one for item in row.items for one in (*item.when, *_of_entries(item)))]
    if path in {condition.path for condition in conditions} or path in _expiring(row):
        return not own.args
    uses = [use for value in _expressions(row) for use in uses_in(value) if path in use.ref.paths]
    return not own.args or all(_no_finer(use.ref, own) for use in uses)


def _used(row: RowModel, path: str) -> bool:
    """Whether anything but the items' time to live is made of the value."""
    conditions = [*row.where, *(one for item in row.items for one in (*item.when, *_of_entries(item)))]
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
