"""What a mapping, a source schema, a row tree and an item are, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

Value: TypeAlias = "str | int | Decimal | bool | bytes | None | list[Value] | dict[str, Value]"
Item: TypeAlias = dict[str, Value]
"""An item as plain Python values (the wire form is the target's business); numbers are int or Decimal."""

ItemKey: TypeAlias = tuple[Value, ...]
"""The values of a table's key attributes, in the table's order."""

RowTree: TypeAlias = tuple[Any, ...]
"""A root row with all it needs: one value per slot of its plan, then one per collection.

A collection's value is a tuple of child tuples (a list) or one scalar (count, sum, min, max).
Values are as the driver gave them; the heart decodes them by their kind.
"""

SourceKey: TypeAlias = str
"""A root row's primary key as a JSON array: opaque to the stages, stored in the journal and in `_src`."""


# ── the target's table ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    name: str
    type: Literal["text", "number", "binary"] = "text"


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    partition: tuple[KeyAttribute, ...]
    sort: tuple[KeyAttribute, ...] = ()
    projection: Literal["all", "keys"] | tuple[str, ...] = "all"
    local: bool = False

    @property
    def attributes(self) -> tuple[KeyAttribute, ...]:
        return self.partition + self.sort


@dataclass(frozen=True, slots=True)
class TableDesign:
    """The DynamoDB table that a mapping describes; `ttl`, where set, names the attribute in epoch seconds."""

    name: str
    key: tuple[KeyAttribute, ...]
    type_attribute: str
    ttl: str | None = None
    separator: str = "#"
    indexes: tuple[Index, ...] = ()
    source_attribute: str = "_src"
    ticket_attribute: str = "_tk"
    revision_attribute: str = "_rev"

    def key_of(self, item: Item) -> ItemKey:
        return tuple(item[attribute.name] for attribute in self.key)

    def type_of(self, item: Item) -> str:
        return str(item.get(self.type_attribute, "item"))

    @property
    def own_attributes(self) -> tuple[str, str, str]:
        return (self.source_attribute, self.ticket_attribute, self.revision_attribute)


# ── values of a mapping ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Filter:
    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ref:
    """A column (or, for filters of several values, columns) by path, with its format and filters."""

    paths: tuple[str, ...]
    format: str | None = None
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """Text with references in it; always gives text. `source` is the text as it was written."""

    parts: tuple[str | Ref, ...]
    source: str = ""

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple(part for part in self.parts if isinstance(part, Ref))


@dataclass(frozen=True, slots=True)
class Const:
    value: Value


@dataclass(frozen=True, slots=True)
class MapOf:
    entries: Dict[str, Expression]


@dataclass(frozen=True, slots=True)
class Each:
    """One map for every child of a collection."""

    collection: str
    attributes: Dict[str, Expression]


Expression: TypeAlias = Ref | Template | Const | MapOf | Each


@dataclass(frozen=True, slots=True)
class Condition:
    """A path that must have a value, or one out of `allowed`; several of them must hold together."""

    path: str
    allowed: tuple[Value, ...] | None = None


# ── entities ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Join:
    """One parent row: by the foreign key on `columns` of `parent` ('' is the root), or by `table` and `on`.

    `on` maps columns of the parent alias to columns of `table`.
    """

    alias: str
    parent: str
    columns: tuple[str, ...] = ()
    table: str | None = None
    on: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Collection:
    """Child rows: a list, or one number made of them. `by` are the child's columns that point to the root."""

    alias: str
    kind: Literal["list", "count", "sum", "min", "max"]
    table: str
    by: tuple[str, ...]
    column: str | None = None
    joins: tuple[Join, ...] = ()
    order_by: tuple[str, ...] = ()
    at_most: int | None = None
    first: int | None = None


@dataclass(frozen=True, slots=True)
class IndexEntry:
    index: str
    values: tuple[Template, ...]
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Expiry:
    """When an item expires: a path to a timestamp, plus days."""

    path: str
    days: int = 0


@dataclass(frozen=True, slots=True)
class ItemDesign:
    type: str
    key: tuple[Template, ...]
    entries: tuple[IndexEntry, ...] = ()
    when: tuple[Condition, ...] = ()
    keep: Literal["all", "none"] | tuple[str, ...] = "none"
    keep_except: tuple[str, ...] = ()
    attributes: Dict[str, Expression] = field(default_factory=dict)
    expiry: Expiry | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    name: str
    table: str
    items: tuple[ItemDesign, ...]
    key: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    joins: tuple[Join, ...] = ()
    collections: tuple[Collection, ...] = ()
    attributes: Dict[str, Expression] = field(default_factory=dict)


ParamType = Literal["integer", "number", "text", "boolean", "date", "timestamp", "uuid"]


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: ParamType
    optional: bool = False


@dataclass(frozen=True, slots=True)
class SortCondition:
    operator: Literal["equal", "begins_with", "between", "ge", "gt", "le", "lt"]
    values: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Items of one type within an answer; `name` and `type` are '' where an answer is one plain list."""

    name: str
    type: str
    attributes: tuple[str, ...]
    one: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """One access pattern: the request that answers it and, for each part, the SQL that answered it until now.

    `key` holds the partition key's template; `limit` is a number or a parameter's name.
    """

    name: str
    params: tuple[Param, ...]
    operation: Literal["query", "get"]
    key: tuple[Template, ...]
    sort: SortCondition | None = None
    index: str | None = None
    descending: bool = False
    limit: str | None = None
    parts: tuple[Part, ...] = ()
    order: Literal["exact", "any"] = "exact"
    sql: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole mapping file. `revision` is a digest of what it says: two equal revisions make equal items."""

    name: str
    revision: str
    table: TableDesign
    entities: Dict[str, Entity]
    names: Literal["exact", "snake_case"] = "exact"
    timezone: str | None = None
    maps: Dict[str, Dict[str, str]] = field(default_factory=dict)
    patterns: Dict[str, Pattern] = field(default_factory=dict)
