"""Rows and items of a generated module: a class for each, builders of keys, and the items that one row becomes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from migrator.features.exports.model import (
    Attribute,
    ItemType,
    Model,
    RowModel,
    RowValue,
)
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
from migrator.mapping.inverse.values import STORED
from migrator.mapping.items.program import Entry, Key
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Condition, Each, Ref, paths_in

_ORIGINS = {
    "parent": "of a joined row",
    "children": "of other rows that belong to this one",
    "sql": "made by SQL until now",
    "transform": "made by the mapping's function until now",
}


class Field(Struct, frozen=True):
    """`read`: what gives it of a stored item."""

    name: str
    annotation: str
    remark: str = ""
    read: str = ""


class Record(Struct, frozen=True):
    """A class. `function`: what makes one of a stored item."""

    name: str
    doc: str
    fields: Sequence[Field]
    function: str = ""


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
    return RowNames(
        made, function_name(row.name), Names().all(value.path for value in row.values), children
    )


# ── classes ──


def item_records(model: Model, names: Names) -> Iterator[Record]:
    """A class for each item type, with a function that makes one of an item."""
    types: dict[str, list[ItemType]] = {}
    for item in (item for row in model.rows for item in row.items):
        types.setdefault(item.name, []).append(item)
    for type_, items in types.items():
        called, function = names.one(class_name(type_)), names.one(f"{function_name(type_)}_of")
        fields = {attribute.name: _item_field(attribute) for attribute in _merged(items)}
        doc = f"What an item of type {shown(type_)} says."
        yield Record(called, doc, named_fields(fields), function)


def _item_field(attribute: Attribute) -> tuple[str, str]:
    if attribute.stored is not None:
        return "Any", f"item.get({literal(attribute.name)})"
    annotation = optional(type_of(attribute.kind), nullable=not attribute.required)
    return annotation, restoring(attribute.kind, f"item.get({literal(attribute.name)})")


def named_fields(fields: Mapping[str, tuple[str, str]]) -> list[Field]:
    """Fields of stored attributes: of each its annotation and what reads it."""
    names = Names().all(fields)
    return [
        Field(names[name], annotation, shown(name) if names[name] != name else "", read)
        for name, (annotation, read) in fields.items()
    ]


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


def readers() -> str:
    """The functions of a module that restore a value of a kind; `reverse` has the same table."""
    return "\n".join(
        f"def _read_{name}(value: Any) -> Any:\n"
        f"    return _restored(({', '.join(map(_code, types))}{',' * (len(types) == 1)}), {_code(form)}, value)"
        for name, (types, form) in STORED.items()
    )


def _code(named: Any) -> str:
    """A type, or a class method of `datetime`, by the name that it has in the module."""
    return f"dt.{named.__qualname__}" if hasattr(named, "__self__") else str(named.__name__)


def restoring(kind: Kind | None, value: str) -> str:
    """What restores a value of the kind."""
    if kind is not None and kind.name == "list" and kind.element is not None:
        return f"_read_list({_reader(kind.element)}, {value})"
    if kind is not None and kind.name == "map" and (kind.fields or kind.element):
        fields = ", ".join(f"{literal(name)}: {_reader(of)}" for name, of in kind.fields)
        return f"_read_map({{{fields}}}, {_reader(kind.element)}, {value})"
    return f"_read_{kind.name if kind is not None and kind.name in (*STORED, 'integer') else 'plain'}({value})"


def _reader(kind: Kind | None) -> str:
    """A function that does so."""
    called = restoring(kind, "value")
    return f"(lambda value: {called})" if "," in called else called.removesuffix("(value)")


# ── keys and items ──


class Builder(Struct, frozen=True):
    """A function that makes a key out of the values that its templates name. `key`: what it makes, by attribute;
    `when`: a condition; `of_table`: no index's."""

    function: str
    takes: str
    doc: str
    key: Mapping[str, str]
    when: str
    of_table: bool


class Made(Struct, frozen=True):
    """How one item is made of a row: under `when`, of its key, its places in indexes and its attributes. `plain_keys`:
    arguments of the look at attributes that are keys by their names."""

    type: str
    when: str
    key: str
    entries: Sequence[str]
    attributes: Mapping[str, str]
    plain_keys: Sequence[str]


class RowCode:
    """Code of one row's keys and items."""

    def __init__(self, model: Model, row: RowModel, names: RowNames) -> None:
        self.model, self.row, self.names = model, row, names
        self.unwritten = ""
        """Why no items are made of it; '' where they are."""

    def code(self, prefix: str = "") -> Code:
        """`prefix`: what stands before the names of values: 'row.', or nothing where they are arguments."""
        lists = frozenset(self.names.children)
        return Code(lambda path: self._given(path, prefix), self.model.around, lists)

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

    @property
    def where(self) -> str:
        return self._conditions(self.row.where, "row.")

    def records(self) -> Iterator[Record]:
        """The classes of the row and of the rows in its lists."""
        for value in self.row.values:
            if value.path in self.names.children:
                called, fields = self.names.children[value.path]
                listed = [
                    Field(
                        fields[child.path], optional(type_of(child.kind), nullable=child.nullable)
                    )
                    for child in value.children
                ]
                yield Record(
                    called,
                    f"One of {shown(value.path)} of a row of {shown(self.row.name)}.",
                    listed,
                )
        types = ", ".join(dict.fromkeys(item.name for item in self.row.items))
        doc = (
            f"What a row of {shown(self.row.name)} has and its items ({shown(types)}) are made of."
        )
        yield Record(self.names.row, doc, [self._field(value) for value in self.row.values])

    def _field(self, value: RowValue) -> Field:
        name = self.names.fields[value.path]
        other = shown(value.path) if name != value.path else ""
        remark = ", ".join(filter(None, (other, _ORIGINS.get(value.origin, ""))))
        if value.path in self.names.children:
            return Field(name, f"Sequence[{self.names.children[value.path][0]}]", remark)
        return Field(name, optional(type_of(value.kind), nullable=value.nullable), remark)

    def builders(self, module: Names) -> Iterator[Builder]:
        for item in self.row.items:
            called = function_name(item.name)
            self.names.keys[item.name] = function = module.one(f"{called}_key")
            key, code = {}, self.code()
            for part in item.key:
                name = literal(part.name)
                key[name] = f"_key({name}, {code.key(part.template, part.attribute)}, {part.limit})"
            doc = f"The key of an item of type {shown(item.name)}."
            yield Builder(function, self.arguments(item.key), doc, key, "", of_table=True)
            for entry in item.entries:
                function = module.one(f"{called}_{function_name(entry.index)}")
                self.names.indexes[item.name, entry.index] = function
                yield self._index_builder(function, entry)

    def _index_builder(self, function: str, entry: Entry) -> Builder:
        key, code = {}, self.code()
        for part in entry.keys:
            made = code.key(part.template, part.attribute)
            key[literal(part.name)] = f"({made}, {part.limit})"
        doc = f"Its place in the index {shown(entry.index)}; None where it has none."
        takes = self.arguments(entry.keys, entry.when)
        return Builder(function, takes, doc, key, self._conditions(entry.when, ""), of_table=False)

    def arguments(self, parts: Sequence[Key], when: Sequence[Condition] = ()) -> str:
        fields = [self._field(self.row.value(path)) for path in self.paths(parts, when)]
        return (
            f"*, {', '.join(f'{one.name}: {one.annotation}' for one in fields)}" if fields else ""
        )

    def paths(self, parts: Sequence[Key], when: Sequence[Condition] = ()) -> list[str]:
        """Values that a builder takes, by their paths, each once."""
        named = [
            *paths_in([part.template for part in parts]),
            *(condition.path for condition in when),
        ]
        heads = [(path, path.partition(".")[0]) for path in named]
        return list(
            dict.fromkeys(head if head in self.names.children else path for path, head in heads)
        )

    def _conditions(self, when: Sequence[Condition], prefix: str) -> str:
        given = self.code(prefix).given
        return " and ".join(
            f"_holds({given(condition.path).code}, "
            f"{literal(condition.allowed) if condition.allowed is not None else 'None'})"
            for condition in when
        )

    def items(self) -> list[Made]:
        """How the row's items are made; none, and why as `unwritten`, where one cannot be."""
        try:
            return [self._made(item) for item in self.row.items]
        except UnsaidError as error:
            self.unwritten = str(error)
            return []

    def _made(self, item: ItemType) -> Made:
        code, table = self.code("row."), self.model.table
        entries = [
            self._call(self.names.indexes[item.name, entry.index], entry.keys, entry.when)
            for entry in item.entries
        ]
        attributes = {literal(one.name): self._attribute(code, one) for one in item.attributes}
        if item.expiry is not None and table.ttl is not None:
            seconds = code.ref(Ref((item.expiry.path,)))
            told = f", {item.expiry.per_s}" if item.expiry.per_s > 1 else ""
            told += ", zero_is_never=True" if item.expiry.zero == "never" else ""
            zone = literal(self.model.around.timezone or "UTC")
            expires = seconds.guarded(f"_expires({seconds.code}, {item.expiry.days}, {zone}{told})")
            attributes[literal(table.ttl)] = expires
        plain_keys = [
            f"{literal(attribute.name)}, {literal(attribute.type)}, {index.limit(attribute)}"
            for index in table.indexes
            for attribute in index.own_attributes(table)
            if attribute.name in item.plain_keys
        ]
        key = self._call(self.names.keys[item.name], item.key)
        return Made(
            item.name, self._conditions(item.when, "row."), key, entries, attributes, plain_keys
        )

    def _attribute(self, code: Code, attribute: Attribute) -> str:
        try:
            return code.attribute(attribute.expression)
        except UnsaidError as error:
            raise UnsaidError(f"{shown(attribute.name)}: {error}") from None

    def _call(self, function: str, parts: Sequence[Key], when: Sequence[Condition] = ()) -> str:
        fields = [self.names.fields[path] for path in self.paths(parts, when)]
        return f"{function}({', '.join(f'{name}=row.{name}' for name in fields)})"


def children_of(attribute: Attribute) -> Mapping[str, str] | None:
    """Of a list of rows whose every entry is a column as it stands: entries by the columns' paths."""
    if not isinstance(attribute.expression, Each):
        return None
    entries = attribute.expression.attributes
    bare = {
        value.column: name
        for name, value in entries.items()
        if isinstance(value, Ref) and value.column
    }
    return bare if len(bare) == len(entries) else None
