"""Rows and items of a generated module: a class for each, builders of keys, and the items that one row becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.features.exports.model import Attribute, ItemType, KeyPart, Model, RowModel, RowValue
from migrator.features.exports.python.expressions import (
    Code,
    Given,
    Names,
    UnsaidError,
    class_name,
    function_name,
    literal,
    optional,
    shown,
    type_of,
)
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Condition, Each, Ref, paths_in
from migrator.mapping.model.table import PARTITION_KEY_BYTES, SORT_KEY_BYTES, Index, KeyAttribute

_ORIGINS = {
    "parent": "of a joined row",
    "children": "of other rows that belong to this one",
    "sql": "made by SQL until now",
    "transform": "made by the mapping's function until now",
}


@dataclass
class RowNames:
    """Names that a row's classes and functions have in the module. `fields`: by path; `children`: by a list's path its
    class and its fields; `keys`, `indexes`: builders by item type, and by item type and index."""

    row: str
    function: str
    fields: Mapping[str, str]
    children: Mapping[str, tuple[str, Mapping[str, str]]]
    keys: dict[str, str] = field(default_factory=dict)
    indexes: dict[tuple[str, str], str] = field(default_factory=dict)
    unwritten: str = ""
    """Why no items are made of it; '' where they are."""


def names_of(row: RowModel, names: Names) -> RowNames:
    called = class_name(row.name)
    made = names.one(f"{called}Row")
    children = {
        value.path: (
            names.one(f"{called}{class_name(value.path)}"),
            Names().all(child.path for child in value.children),
        )
        for value in row.values
        if value.children
    }
    return RowNames(made, function_name(row.name), Names().all(value.path for value in row.values), children)


# ── classes ──


def dataclass_lines(name: str, doc: str, fields: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """A class of fields: (name, annotation, comment), those that may be None with that as their default."""
    yield "@dataclass(frozen=True, slots=True, kw_only=True)"
    yield f"class {name}:"
    yield f'    """{doc}"""'
    yield ""
    for field_name, annotation, remark in fields:
        default = " = None" if annotation.endswith("| None") else ""
        yield f"    {field_name}: {annotation}{default}{f'  # {remark}' if remark else ''}"
    if not fields:
        yield "    pass"
    yield ""
    yield ""


def row_classes(row: RowModel, names: RowNames) -> Iterator[str]:
    for value in row.values:
        if value.path in names.children:
            called, fields = names.children[value.path]
            listed = [
                (fields[child.path], optional(type_of(child.kind), nullable=child.nullable), "")
                for child in value.children
            ]
            yield from dataclass_lines(
                called, f"One of {shown(value.path)} of a row of {shown(row.name)}.", listed
            )
    types = ", ".join(dict.fromkeys(item.name for item in row.items))
    yield from dataclass_lines(
        names.row,
        f"What a row of {shown(row.name)} has and its items ({shown(types)}) are made of.",
        [
            (names.fields[value.path], _annotation(value, names), _remark(value, names))
            for value in row.values
        ],
    )


def _annotation(value: RowValue, names: RowNames) -> str:
    if value.path in names.children:
        return f"Sequence[{names.children[value.path][0]}]"
    return optional(type_of(value.kind), nullable=value.nullable)


def _remark(value: RowValue, names: RowNames) -> str:
    origin = _ORIGINS.get(value.origin, "")
    other = shown(value.path) if names.fields[value.path] != value.path else ""
    return ", ".join(filter(None, (other, origin)))


def item_classes(model: Model, names: Names) -> Iterator[str]:
    """A class for each item type, with a function that makes one of an item."""
    types: dict[str, list[ItemType]] = {}
    for item in (item for row in model.rows for item in row.items):
        types.setdefault(item.name, []).append(item)
    for type_, items in types.items():
        called, function = names.one(class_name(type_)), names.one(f"{function_name(type_)}_of")
        attributes = _merged(items)
        fields = Names().all(attribute.name for attribute in attributes)
        annotations = [
            optional(
                "Any" if attribute.stored is not None else type_of(attribute.kind),
                nullable=not attribute.required,
            )
            for attribute in attributes
        ]
        remarks = [
            shown(attribute.name) if fields[attribute.name] != attribute.name else ""
            for attribute in attributes
        ]
        listed = list(zip(fields.values(), annotations, remarks, strict=True))
        yield from dataclass_lines(called, f"What an item of type {shown(type_)} says.", listed)
        yield f"def {function}(item: Mapping[str, Any]) -> {called}:"
        yield f'    """The item of plain values as {called}, with times and numbers restored."""'
        yield f"    return {called}("
        for attribute in attributes:
            value = f"item.get({attribute.name!r})"
            read = value if attribute.stored is not None else f"{reader(attribute.kind)}({value})"
            yield f"        {fields[attribute.name]}={read},"
        yield "    )"
        yield ""
        yield ""


def _merged(items: Sequence[ItemType]) -> list[Attribute]:
    """The attributes that any of the items has: several entities may write items of one type."""
    found: dict[str, list[Attribute]] = {}
    for attribute in (attribute for item in items for attribute in item.attributes):
        found.setdefault(attribute.name, []).append(attribute)
    return [
        Attribute(
            name,
            several[0].expression,
            several[0].kind if len({one.kind for one in several}) == 1 else None,
            len(several) == len(items) and all(one.required for one in several),
            several[0].stored,
        )
        for name, several in found.items()
    ]


_READERS = frozenset({"timestamp", "date", "time", "uuid", "number", "float", "integer"})


def reader(kind: Kind | None) -> str:
    """What restores a value of the kind: the name of a function, or a lambda."""
    if kind is None or kind.name in ("text", "bits", "boolean"):
        return "_read_plain"
    if kind.name == "list" and kind.element is not None:
        return f"(lambda value: _read_list({reader(kind.element)}, value))"
    if kind.name == "map" and (kind.fields or kind.element):
        fields = ", ".join(f"{name!r}: {reader(of)}" for name, of in kind.fields)
        return f"(lambda value: _read_map({{{fields}}}, {reader(kind.element)}, value))"
    return f"_read_{kind.name}" if kind.name in _READERS else "_read_plain"


# ── keys ──


class RowCode:
    """Code of one row's keys and items."""

    def __init__(self, model: Model, row: RowModel, names: RowNames) -> None:
        self.model, self.row, self.names = model, row, names

    def code(self, prefix: str = "") -> Code:
        """`prefix`: what stands before the names of values: 'row.', or nothing where they are arguments."""
        model = self.model
        lists = frozenset(self.names.children)
        return Code(
            lambda path: self._given(path, prefix), model.table.separator, model.maps, model.timezone, lists
        )

    def _given(self, path: str, prefix: str) -> Given:
        value, names = self.row.value(path), self.names
        children = None
        if path in names.children:
            of_child = {child.path: child for child in value.children}
            fields = names.children[path][1]
            children = lambda inner: Given(  # noqa: E731
                f"child.{fields[inner]}", of_child[inner].kind, of_child[inner].nullable
            )
        return Given(f"{prefix}{names.fields[path]}", value.kind, value.nullable, children=children)

    def builders(self, module: Names) -> Iterator[str]:
        """Functions that make keys out of the values that their templates name."""
        for item in self.row.items:
            called = function_name(item.name)
            self.names.keys[item.name] = function = module.one(f"{called}_key")
            yield from self._builder(
                function, item.key, (), "Item", f"The key of an item of type {shown(item.name)}."
            )
            for entry in item.indexes:
                function = module.one(f"{called}_{function_name(entry.index.name)}")
                self.names.indexes[item.name, entry.index.name] = function
                doc = f"Its place in the index {shown(entry.index.name)}; None where it has none."
                yield from self._builder(function, entry.parts, entry.when, "Item | None", doc, entry.index)

    def _builder(
        self,
        function: str,
        parts: Sequence[KeyPart],
        when: Sequence[Condition],
        gives: str,
        doc: str,
        index: Index | None = None,
    ) -> Iterator[str]:
        code = self.code()
        yield f"def {function}({self.arguments(parts, when)}) -> {gives}:"
        yield f'    """{doc}"""'
        if when:
            yield f"    if not ({self._conditions(when, '')}):"
            yield "        return None"
        made = {part.attribute.name: code.key(part.template, part.attribute) for part in parts}
        if index is None:
            yield "    return {"
            for part, limit in zip(parts, (PARTITION_KEY_BYTES, SORT_KEY_BYTES), strict=False):
                name = part.attribute.name
                yield f"        {name!r}: _key({name!r}, {made[name]}, {limit}),"
            yield "    }"
        else:
            yield "    return _entry({"
            for part in parts:
                yield f"        {part.attribute.name!r}: ({made[part.attribute.name]}, {_limit(index, part.attribute)}),"
            yield "    })"
        yield ""
        yield ""

    def arguments(self, parts: Sequence[KeyPart], when: Sequence[Condition]) -> str:
        listed = [
            f"{self.names.fields[path]}: {_annotation(self.row.value(path), self.names)}"
            for path in self.paths(parts, when)
        ]
        return f"*, {', '.join(listed)}" if listed else ""

    def paths(self, parts: Sequence[KeyPart], when: Sequence[Condition] = ()) -> list[str]:
        """Values that a builder takes, by their paths, each once."""
        named = [*paths_in([part.template for part in parts]), *(condition.path for condition in when)]
        heads = [(path, path.partition(".")[0]) for path in named]
        return list(dict.fromkeys(head if head in self.names.children else path for path, head in heads))

    def _conditions(self, when: Sequence[Condition], prefix: str) -> str:
        given = self.code(prefix).given
        return " and ".join(
            f"_holds({given(condition.path).code}, "
            f"{literal(list(condition.allowed)) if condition.allowed is not None else 'None'})"
            for condition in when
        )

    # ── items ──

    def items(self) -> Iterator[str]:
        """The function that makes a row's items; what it cannot say is kept as `names.unwritten`."""
        try:
            lines = [line for item in self.row.items for line in self._item(item)]
        except UnsaidError as error:
            self.names.unwritten = str(error)
            yield f"# {self.names.function}_items is left out: {error}."
            yield ""
            yield ""
            return
        function = self.names.function
        yield f"def {function}_items(row: {self.names.row}) -> list[Item]:"
        yield '    """All items that the row becomes, keys and index attributes included."""'
        yield "    made: list[Item] = []"
        if self.row.where:
            yield f"    if not ({self._conditions(self.row.where, 'row.')}):"
            yield "        return made"
        yield from lines
        yield "    return made"
        yield ""
        yield ""

    def _item(self, item: ItemType) -> Iterator[str]:
        code, model = self.code("row."), self.model
        indent = "    "
        if item.when:
            yield f"    if {self._conditions(item.when, 'row.')}:"
            indent = "        "
        yield f"{indent}item = {self._call(self.names.keys[item.name], item.key)}"
        yield f"{indent}item[{model.table.type_attribute!r}] = {item.name!r}"
        for entry in item.indexes:
            function = self.names.indexes[item.name, entry.index.name]
            yield f"{indent}item |= {self._call(function, entry.parts, entry.when)} or {{}}"
        entries = [(attribute.name, self._attribute(code, attribute)) for attribute in item.attributes]
        if item.expiry is not None and model.table.ttl is not None:
            seconds = code.ref(Ref((item.expiry.path,)))
            zone = model.timezone or "UTC"
            told = f", {item.expiry.per_s}" if item.expiry.per_s > 1 else ""
            told += ", zero_is_never=True" if item.expiry.zero == "never" else ""
            expires = f"_expires({seconds.code}, {item.expiry.days}, {zone!r}{told})"
            entries.append((model.table.ttl, seconds.guarded(expires)))
        if entries:
            yield f"{indent}item |= _map({{"
            yield from (f"{indent}    {name!r}: {value}," for name, value in entries)
            yield f"{indent}}})"
        for index in model.table.indexes:
            for attribute in index.own_attributes(model.table):
                if attribute.name in item.plain_keys:
                    yield f"{indent}_plain_key(item, {attribute.name!r}, {attribute.type!r}, {_limit(index, attribute)})"
        yield f"{indent}made.append(item)"

    def _attribute(self, code: Code, attribute: Attribute) -> str:
        try:
            return code.attribute(attribute.expression)
        except UnsaidError as error:
            raise UnsaidError(f"{shown(attribute.name)}: {error}") from None

    def _call(self, function: str, parts: Sequence[KeyPart], when: Sequence[Condition] = ()) -> str:
        fields = [self.names.fields[path] for path in self.paths(parts, when)]
        return f"{function}({', '.join(f'{name}=row.{name}' for name in fields)})"


def _limit(index: Index, attribute: KeyAttribute) -> int:
    return PARTITION_KEY_BYTES if attribute in index.partition else SORT_KEY_BYTES


def children_of(attribute: Attribute) -> Mapping[str, str] | None:
    """Of a list of rows whose every entry is a column as it stands: entries by the columns' paths."""
    if not isinstance(attribute.expression, Each):
        return None
    entries = attribute.expression.attributes
    bare = {
        value.paths[0]: name for name, value in entries.items() if isinstance(value, Ref) and is_bare(value)
    }
    return bare if len(bare) == len(entries) else None


def is_bare(ref: Ref) -> bool:
    return len(ref.paths) == 1 and ref.format is None and not ref.filters
