"""A mapping as generated code needs it: rows with values, items with keys, patterns with answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from migrator.mapping.check.keys import result_kind, types_read
from migrator.mapping.items.filters import FILTERS, FilterContext, kind_after, specs_of, takes_null
from migrator.mapping.items.program import Entry, Key, parts_of
from migrator.mapping.items.templates import format_width
from migrator.mapping.model.facts import (
    Column,
    EntityPlan,
    Kind,
    attributes_of,
    column_of,
    kept_columns,
    kind_of,
)
from migrator.mapping.model.mapping import (
    Condition,
    Const,
    Each,
    Entity,
    Expiry,
    Expression,
    Filter,
    ItemDesign,
    MapOf,
    Operator,
    Part,
    Pattern,
    Ref,
    SortCondition,
    Stored,
    Template,
    paths_in,
    uses_in,
)
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.mapping.patterns.answers import Designs, kinds_for
from migrator.mapping.patterns.param_sources import typed_parts
from migrator.mapping.patterns.requests import MOVED_UP

Origin = Literal["row", "parent", "children", "sql", "transform"]
"""Where a row's value comes from: its own column, a joined parent, rows that were collected or climbed to, SQL of the
mapping's `columns`, its Python function."""


class RowValue(Struct, frozen=True):
    """A value in items. `path`: as in the templates' references. `children`: of a list's rows."""

    path: str
    kind: Kind
    nullable: bool
    origin: Origin
    children: tuple[RowValue, ...] = ()


class ItemAttribute(Struct, frozen=True):
    """An attribute outside the key.

    `kind`: of its value; of a time as text, the kind of time, so that it can be restored; None if unknown.
    `fields`: of a map; `element`: of a list.
    `required`: every item of the type has it.
    """

    name: str
    expression: Expression
    kind: Kind | None
    required: bool

    @property
    def stored(self) -> bool:
        return isinstance(self.expression, Stored)


class ItemType(Struct, frozen=True):
    """`name`: the value of the table's type attribute. `plain_keys`: the `attributes` that are index keys.

    `copy`: number among the copies of one item, 0 without copies.
    """

    name: str
    key: tuple[Key, ...]
    entries: tuple[Entry, ...]
    attributes: tuple[ItemAttribute, ...]
    plain_keys: frozenset[str]
    when: tuple[Condition, ...]
    expiry: Expiry | None
    copy: int = 0

    @property
    def called(self) -> str:
        """Name with the copy's number, which is unique."""
        return f"{self.name} {self.copy}" if self.copy else self.name

    @property
    def keys(self) -> tuple[Key, ...]:
        return (*self.key, *(key for entry in self.entries for key in entry.keys))


class RowModel(Struct, frozen=True):
    """Items of one row of an entity.

    `name`: the entity's, with @schema if the mapping reads several.
    `key`: paths of the values that name the row, in order.
    `values`: those of `key`, then all others in keys, attributes and conditions.
    """

    name: str
    entity: Entity
    key: tuple[str, ...]
    values: tuple[RowValue, ...]
    items: tuple[ItemType, ...]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        of_items = [(item.when, *(entry.when for entry in item.entries)) for item in self.items]
        return (*self.entity.where, *(one for item in of_items for when in item for one in when))

    @property
    def expressions(self) -> Iterator[Expression]:
        for item in self.items:
            yield from (key.template for key in item.keys)
            yield from (attribute.expression for attribute in item.attributes)

    def value(self, path: str) -> RowValue:
        return next(value for value in self.values if value.path == path)


class AnswerAttribute(Struct, frozen=True):
    """`restored`: the type of its text (a time, a UUID), or a number's kind; None: unchanged."""

    name: str
    kind: Kind | None
    restored: Kind | None
    nullable: bool


class PatternModel(Struct, frozen=True):
    """`index`: the queried one; the table has no name.
    `parts`: each with the attributes of its records.
    `pages`: whether its answer can be paged.
    """

    pattern: Pattern
    index: Index
    parts: tuple[tuple[Part, tuple[AnswerAttribute, ...]], ...]

    @property
    def keys(self) -> list[tuple[KeyAttribute, Template]]:
        pattern, index = self.pattern, self.index
        if pattern.operation == "query":
            return list(zip(index.partition, pattern.key, strict=True))
        return list(zip(index.attributes, pattern.templates, strict=True))

    @property
    def many(self) -> str:
        """The list parameter of which each value makes a key; '' if none."""
        return self.pattern.listed

    @property
    def pages(self) -> bool:
        pattern = self.pattern
        taken = {"cursor", "size"} & {param.name for param in pattern.params}
        is_plain = pattern.operation == "query" and pattern.near is None and not pattern.parts[0].name
        return is_plain and not taken


class Model(Struct, frozen=True):
    table: TableDesign
    revision: str
    rows: tuple[RowModel, ...]
    patterns: tuple[PatternModel, ...]
    around: FilterContext

    @property
    def types(self) -> dict[str, list[ItemType]]:
        types: dict[str, list[ItemType]] = {}
        for item in (item for row in self.rows for item in row.items):
            types.setdefault(item.name, []).append(item)
        return types


def model_of(mapping: MappingModel, plans: Sequence[EntityPlan], table: TableDesign) -> Model:
    rows = tuple(_row(mapping, plan) for plan in plans)
    designs = Designs(plans)
    described = tuple(_pattern(mapping, designs, rows, pattern) for pattern in mapping.patterns.values())
    around = FilterContext(table.separator, mapping.maps, mapping.timezone)
    return Model(table, mapping.revision, rows, described, around)


# ── rows ──


def _row(mapping: MappingModel, plan: EntityPlan) -> RowModel:
    entity = plan.entity
    key = tuple(column.name for column in plan.key if not plan.is_single)
    values = tuple(_value(plan, path) for path in _paths(plan, key))
    return RowModel(
        entity.name, entity, key, values, tuple(_item(mapping, plan, item) for item in entity.items)
    )


def _paths(plan: EntityPlan, key: Iterable[str]) -> list[str]:
    entity = plan.entity
    named = [*key, *(condition.path for condition in entity.where)]
    for item in entity.items:
        named += [condition.path for condition in item.when]
        named += [condition.path for entry in item.entries for condition in entry.when]
        named += [item.expiry.path] if item.expiry else []
        named += kept_columns(plan, item)
        named += paths_in([*item.templates, *entity.attributes.values(), *item.attributes.values()])
    heads = [(path, path.partition(".")[0]) for path in named]
    return list(dict.fromkeys(head if head in entity.lists else path for path, head in heads))


def _value(plan: EntityPlan, path: str) -> RowValue:
    collected = plan.collected(path)
    if collected is not None and collected.collection.is_list:
        children = tuple(
            RowValue(slot.path, slot.column.kind, slot.column.nullable or bool(slot.alias), "children")
            for slot in collected.slots
        )
        return RowValue(path, Kind("list", element=Kind("map")), False, "children", children)
    column = column_of(path, plan) or plan.table.column(path)
    kind = kind_of(path, plan) or (Kind("plain") if column is None else column.kind)
    return RowValue(path, kind, _nullable(plan, path), _origin(plan, path, column))


def _origin(plan: EntityPlan, path: str, column: Column | None) -> Origin:
    if path in plan.transformed:
        return "transform"
    if plan.collected(path) is not None:
        return "children"
    if column is not None and column.sql is not None:
        return "sql"
    return "row" if path in {known.name for known in plan.table.columns} else "parent"


def _nullable(plan: EntityPlan, path: str) -> bool:
    if path in {column.name for column in plan.key}:
        return False
    collected = plan.collected(path)
    if collected is not None:
        return collected.collection.kind not in ("count", "list", "climb")
    own = plan.table.column(path)
    # Of a parent nothing is sure: it is joined by LEFT JOIN, and the foreign key may be NULL or not enforced.
    return own.nullable if own is not None else True


# ── items ──


def _item(mapping: MappingModel, plan: EntityPlan, item: ItemDesign) -> ItemType:
    parts = parts_of(mapping, plan, item)
    # An item requires these: NULL fails its condition, or refuses the row.
    sure = {condition.path for condition in item.when if None not in (condition.allowed or ())}
    sure |= {ref.paths[0] for template in item.key for ref in template.refs if not takes_null(ref)}
    return ItemType(
        item.type,
        parts.base,
        parts.entries,
        tuple(
            ItemAttribute(name, value, attribute_kind(value, plan), _required(plan, value, sure))
            for name, value in attributes_of(plan, item).items()
        ),
        parts.index_keys,
        item.when,
        item.expiry,
        item.copy,
    )


def attribute_kind(value: Expression, plan: EntityPlan, collection: str | None = None) -> Kind | None:
    """Kind of an attribute's value: complete times are times; maps and lists with their contents.

    `collection`: the list of the rows in the expression's paths.
    """
    if isinstance(value, MapOf):
        return Kind("map", fields=_fields(value.entries, plan, collection))
    if isinstance(value, Each):
        element = Kind("map", fields=_fields(value.attributes, plan, value.collection))
        return Kind("list" if value.key is None else "map", element=element)
    if isinstance(value, Stored):
        return attribute_kind(value.value, plan, collection)
    if isinstance(value, Ref):
        kind = kind_of(".".join(filter(None, (collection, value.paths[0]))), plan)
        is_whole = all(spec.moment for spec in specs_of(value))
        return (kind if is_whole else None) or kind_after(kind, value)
    return result_kind(value, plan)


def _fields(
    entries: Mapping[str, Expression], plan: EntityPlan, collection: str | None
) -> tuple[tuple[str, Kind], ...]:
    return tuple(
        (name, attribute_kind(value, plan, collection) or Kind("plain")) for name, value in entries.items()
    )


def _required(plan: EntityPlan, value: Expression, sure: set[str]) -> bool:
    value = value.value if isinstance(value, Stored) else value
    if isinstance(value, (MapOf, Each)):
        return True
    if isinstance(value, Const):
        return value.value is not None
    return all(_set(plan, use.ref, sure) for use in uses_in(value))


def _set(plan: EntityPlan, ref: Ref, sure: set[str]) -> bool:
    if takes_null(ref):
        return True
    if any(spec.of_array for spec in specs_of(ref)):
        return False
    alias, _, _ = ref.paths[0].partition(".")
    if alias in plan.entity.lists:
        return all(spec.gives.name == "integer" for spec in specs_of(ref) if spec.of_list)
    return all(path in sure or not _nullable(plan, path) for path in ref.paths)


# ── patterns ──


def _pattern(
    mapping: MappingModel, designs: Designs, rows: Sequence[RowModel], pattern: Pattern
) -> PatternModel:
    index = mapping.table.asked(pattern.index)
    assert index is not None, "checked with the mapping"
    types = {type_ for read in types_read(mapping, pattern).values() for type_ in read}
    parts = []
    for part, typed in zip(pattern.parts, typed_parts(mapping, pattern), strict=True):
        wanted = {part.type} if part.type else types
        items = [item for row in rows for item in row.items if item.name in wanted]
        restored = kinds_for(designs, typed)
        answered = (_answered(mapping.table, items, name, restored.get(name)) for name in part.attributes)
        parts.append((part, tuple(answered)))
    return PatternModel(pattern, index, tuple(parts))


def _answered(
    table: TableDesign, items: Sequence[ItemType], name: str, restored: Kind | None
) -> AnswerAttribute:
    found = [attribute for item in items for attribute in item.attributes if attribute.name == name]
    # Of a table's or an index's key, its type attribute or its TTL.
    keys = {key.name: key.attribute for item in items for key in item.keys}
    if not found and name in keys:
        return AnswerAttribute(name, Kind(keys[name].type), None, keys[name] not in table.key)
    if not found and name == table.type_attribute:
        return AnswerAttribute(name, Kind("text"), None, False)
    if not found:
        return AnswerAttribute(name, Kind("integer") if name == table.ttl else None, None, True)
    of_all = {attribute.kind for attribute in found}
    is_sure = len(found) == len(items) and all(attribute.required for attribute in found)
    return AnswerAttribute(name, of_all.pop() if len(of_all) == 1 else None, restored, not is_sure)


# ── Expressions of the mapping language as code: the one walk over templates, references, formats and filters ──

TEXT = Kind("text")


class UnsaidError(Exception): ...


class Piece(Struct, frozen=True):
    """Code of a value. `guards`: conditions under which it has none. `element`: of one value of a list."""

    code: str
    kind: Kind
    guards: tuple[str, ...] = ()
    element: Piece | None = None


class RequestCode(Struct, frozen=True):
    """`keys`: values by key attribute, for each of `elements`.
    `sort`, `filters`: attribute, operator and values of each condition.
    """

    keys: Mapping[str, str]
    elements: str
    sort: Sequence[tuple[str, Operator, str]]
    filters: Sequence[tuple[str, Operator, str]]
    limit: str


class Expressions(ABC):
    """Code over named values. `star`: name of the text of a `*`."""

    around: FilterContext
    star: str

    @abstractmethod
    def given(self, ref: Ref) -> tuple[Piece, Sequence[Filter]]:
        """The reference's value, and the filters still to apply."""

    @abstractmethod
    def literal(self, value: object) -> str: ...

    @abstractmethod
    def text(self, piece: Piece) -> str: ...

    @abstractmethod
    def joined(self, texts: Sequence[str]) -> str: ...

    @abstractmethod
    def called(self, used: Filter, piece: Piece) -> Piece:
        """The filter's result. Of a list's values `piece.element` is None, and `code` the list."""

    @abstractmethod
    def each(self, values: Piece, element: Piece) -> Piece: ...

    @abstractmethod
    def call(self, name: str, *arguments: str) -> str: ...

    @abstractmethod
    def param(self, name: str) -> str: ...

    @abstractmethod
    def needed(self, name: str) -> str: ...

    def listed(self, name: str) -> str:
        return self.needed(name)

    @abstractmethod
    def unit(self, used: Filter) -> str: ...

    @abstractmethod
    def key(self, template: Template, attribute: KeyAttribute, up: bool | None = None) -> str:
        """Value of a key attribute. `up`: of a bound whose last number may be rounded."""

    @abstractmethod
    def value(self, value: Expression) -> str: ...

    def template(self, template: Template, up: bool | None = None) -> Piece:
        if not template.refs:
            return Piece(self.literal("".join(map(str, template.parts))), TEXT)
        texts: list[str] = []
        guards: list[str] = []
        for part in template.parts:
            if isinstance(part, str):
                texts.append(self.literal(part))
            else:
                piece = self.ref(part, up if part is template.refs[-1] and not part.filters else None)
                texts.append(self.text(piece))
                guards += piece.guards
        return Piece(self.joined(texts), TEXT, tuple(dict.fromkeys(guards)))

    def ref(self, ref: Ref, up: bool | None = None) -> Piece:
        if ref.every:
            return Piece(self.star, TEXT)
        piece, filters = self.given(ref)
        if piece.element is None:
            return self._filtered(self._formatted(piece, ref.format, up), filters)
        cut = next((n for n, used in enumerate(filters) if FILTERS[used.name].of_list), None)
        if cut is None:
            raise UnsaidError("a list of values")
        element = self._filtered(self._formatted(piece.element, ref.format), filters[:cut])
        return self._filtered(self.each(piece, element), filters[cut:])

    def _formatted(self, piece: Piece, format_: str | None, up: bool | None = None) -> Piece:
        if format_ is None:
            return piece
        arguments = [piece.code, *map(str, format_width(format_))]
        padded = (
            self.call("padded", *arguments)
            if up is None
            else self.call("bound", *arguments, self.literal(up))
        )
        return Piece(padded, TEXT, piece.guards)

    def _filtered(self, piece: Piece, filters: Sequence[Filter]) -> Piece:
        for used in filters:
            piece = self.called(used, piece)
        return piece

    # ── a pattern's request ──

    def request(self, asked: PatternModel) -> RequestCode:
        pattern, limit = asked.pattern, asked.pattern.limit
        sort = [
            (key.name, one.operator, self._bounds(key.name, one.values, self._sort(key, one)))
            for key, one in zip(asked.index.sort, pattern.sort, strict=False)
        ]
        filters = [
            (
                one.attribute,
                one.operator,
                self._bounds(one.attribute, one.values, map(self.value, one.values)),
            )
            for one in pattern.filters
        ]
        return RequestCode(
            {attribute.name: self.key(template, attribute) for attribute, template in asked.keys},
            self.listed(asked.many) if asked.many else self._texts(pattern),
            sort if pattern.operation == "query" else [],
            filters,
            str(limit) if limit is None or limit.isdecimal() else self.call("limit", self.param(limit)),
        )

    def _sort(self, attribute: KeyAttribute, condition: SortCondition) -> Iterator[str]:
        directions = MOVED_UP.get(condition.operator, (None,))
        for value, up in zip(condition.values, directions, strict=True):
            yield self.key(value, attribute, up)

    def _bounds(self, name: str, written: Sequence[Expression], values: Iterable[str]) -> str:
        """Values of a condition; of two bounds with parameters neither may be unset alone."""
        listed = f"[{', '.join(values)}]"
        is_pair = len(written) > 1 and all(any(paths_in([one])) for one in written)
        return self.call("both", self.literal(name), listed) if is_pair else listed

    def _texts(self, pattern: Pattern) -> str:
        """Texts of the `*` of a partition key; of a get any one of them; without a `*` an unused text."""
        star = pattern.star
        if star is None:
            return '[""]'
        (used,) = star.filters
        way = FILTERS[used.name].way
        assert way is not None, "checked with the mapping"
        argument = self.unit(used) if way.of == "time" else used.args[0]
        name = {"shard": "shards", "time": "buckets", "place": "cells"}[way.of]
        texts = self.call(name, *map(self.needed, star.paths), argument)
        return texts if pattern.operation == "query" else self.call("any_of", texts)
