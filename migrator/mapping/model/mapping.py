"""A mapping as plain frozen values: expressions, access patterns with their requests, entities, the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

from msgspec import Struct

from migrator.mapping.model.table import TableDesign, Value
from migrator.runtime.values import replace


class Filter(Struct, frozen=True):
    name: str
    args: tuple[str, ...] = ()


class Ref(Struct, frozen=True):
    """A column (or several, for some filters) by path, with its format and filters.

    `every`: with a `*`, for a request for each of many texts (access patterns only).
    """

    paths: tuple[str, ...]
    format: str | None = None
    filters: tuple[Filter, ...] = ()
    every: bool = False

    @property
    def column(self) -> str:
        return self.paths[0] if len(self.paths) == 1 and self == Ref(self.paths) else ""


class Template(Struct, frozen=True):
    """Text with references. `source`: as written."""

    parts: tuple[str | Ref, ...]
    source: str = ""

    @property
    def refs(self) -> tuple[Ref, ...]:
        return tuple([part for part in self.parts if isinstance(part, Ref)])  # read ten times a pattern

    @property
    def sole(self) -> Ref | None:
        return next(iter(self.refs), None) if len(self.parts) == 1 else None

    @property
    def beginning(self) -> str:
        first = self.parts[0] if self.parts else ""
        return first if isinstance(first, str) else ""

    def with_star(self, text: str) -> Template:
        parts: list[str | Ref] = []
        for part in (text if isinstance(part, Ref) and part.every else part for part in self.parts):
            before = parts[-1] if parts else None
            if isinstance(part, str) and isinstance(before, str):
                parts[-1] = before + part
            else:
                parts.append(part)
        return Template(tuple(parts), self.source)


class Const(Struct, frozen=True):
    value: Value


class MapOf(Struct, frozen=True):
    entries: Dict[str, Expression]


class Each(Struct, frozen=True):
    """One map for every child of a collection: in a list, or by `key` in a map."""

    collection: str
    attributes: Dict[str, Expression]
    key: Template | None = None


class Stored(Struct, frozen=True):
    """A value kept in S3, with a pointer in the item, when it takes more than `over` bytes."""

    value: Expression
    over: int = 0


Expression: TypeAlias = Ref | Template | Const | MapOf | Each | Stored

SCHEMA_PATH = "@schema"
"""The path of the schema that a row was read from; a constant in each schema's entity."""


class Condition(Struct, frozen=True):
    """A path that must have a value, or one of `allowed`; all conditions must hold."""

    path: str
    allowed: tuple[Value, ...] | None = None


# ── The walk: code that looks for references, or changes some, need not know the nesting of expressions ──


class Use(Struct, frozen=True):
    """A reference in its place.

    `at`: the mapping's words that lead to it.
    `collection`: of an `each` around it.
    `in_text`: part of a template.
    """

    ref: Ref
    at: tuple[str, ...] = ()
    collection: str | None = None
    in_text: bool = False


def uses_in(value: Expression) -> Iterator[Use]:
    if isinstance(value, Ref):
        yield Use(value)
    elif isinstance(value, Template):
        yield from (Use(ref, in_text=True) for ref in value.refs)
    elif isinstance(value, MapOf):
        yield from _uses(value.entries, "map")
    elif isinstance(value, Each):
        for use in _uses(value.attributes, "attributes"):
            yield replace(use, collection=use.collection or value.collection)
        for ref in value.key.refs if value.key else ():
            yield Use(ref, ("key",), value.collection, in_text=True)
    elif isinstance(value, Stored):
        yield from _uses({"from": value.value})


def _uses(values: Dict[str, Expression], *before: str) -> Iterator[Use]:
    for name, value in values.items():
        yield from (replace(use, at=(*before, name, *use.at)) for use in uses_in(value))


def paths_in(values: Iterable[Expression]) -> Iterator[str]:
    for use in (use for value in values for use in uses_in(value)):
        yield from (f"{use.collection}.{path}" if use.collection else path for path in use.ref.paths)


def rewritten(value: Expression, change: Callable[[Ref | Template], Expression]) -> Expression:
    if isinstance(value, (Ref, Template)):
        return change(value)
    if isinstance(value, MapOf):
        return MapOf({name: rewritten(entry, change) for name, entry in value.entries.items()})
    if isinstance(value, Each):
        attributes = {name: rewritten(entry, change) for name, entry in value.attributes.items()}
        key = change(value.key) if value.key else None
        assert key is None or isinstance(key, Template)
        return replace(value, attributes=attributes, key=key)
    return replace(value, value=rewritten(value.value, change)) if isinstance(value, Stored) else value


# ── Access patterns, and the requests made from them ──

ParamType = Literal["integer", "number", "text", "boolean", "date", "timestamp", "uuid", "binary"]
Normaliser = Literal["lower", "upper", "trim", "unordered", "date", "six_digits"]
Operation = Literal["query", "get", "batch_get"]
Order = Literal["exact", "any"]
Operator = Literal["equal", "begins_with", "between", "ge", "gt", "le", "lt", "exists", "absent"]


class Param(Struct, frozen=True):
    """`many`: a list of values of the type."""

    name: str
    type: ParamType
    optional: bool = False
    many: bool = False


class SortCondition(Struct, frozen=True):
    operator: Operator
    values: tuple[Template, ...]


class FilterCondition(Struct, frozen=True):
    """A condition on an attribute outside the key; one of an unset parameter is left out.

    `exists` and `absent` take no values.
    """

    attribute: str
    operator: Operator
    values: tuple[Expression, ...]


class Near(Struct, frozen=True):
    """Parameters of a place, attributes of an item's place (latitude first), and the distance in metres.

    `within_m`: a parameter's name or a number.
    """

    origin: tuple[str, str]
    at: tuple[str, str]
    within_m: str | Decimal


class Part(Struct, frozen=True):
    """Items of one type within an answer; `name` and `type` are '' if an answer is one plain list."""

    name: str
    type: str
    attributes: tuple[str, ...]
    one: bool = False


class CompareRules(Struct, frozen=True):
    """Ignored differences of two values.

    `tolerance`: of numbers.
    `normalise`: steps applied to both values before.
    """

    ignore: frozenset[str] = frozenset()
    tolerance: Dict[str, Decimal] = {}
    normalise: Dict[str, tuple[Normaliser, ...]] = {}


class DocumentQuestion(Struct, frozen=True):
    """A request to an old DynamoDB table. `asked`: a pattern on the table `design`, which returns documents.

    Rows are made from them: `entity` has the table, its joins, and `returns` as its attributes.
    """

    design: TableDesign
    asked: Pattern
    entity: Entity
    returns: tuple[str, ...]


Statement: TypeAlias = "str | DocumentQuestion"
"""The statement of the old side: SQL, or a request if the old side is DynamoDB tables."""


class Pattern(Struct, frozen=True):
    """One access pattern: its request and, for each part, the former statement.

    `key`, `sort`: a template for each partition attribute, a condition for each sort attribute, in order; of
    `get` and `batch_get` together the table's whole key, all equal.
    `limit`: a number or a parameter's name.
    `atomic`: items of one row are written together.
    `schema`: the parameter that names the SQL schema.
    `redact`: attributes and parameters that are never shown.
    `p99_ms`: latency budget of DynamoDB's answers.
    `calls_per_s`: the expected rate.
    """

    name: str
    params: tuple[Param, ...]
    operation: Operation
    key: tuple[Template, ...]
    sort: tuple[SortCondition, ...] = ()
    index: str | None = None
    descending: bool = False
    limit: str | None = None
    consistent: bool = False
    filters: tuple[FilterCondition, ...] = ()
    near: Near | None = None
    atomic: bool = False
    schema: str | None = None
    parts: tuple[Part, ...] = ()
    order: Order = "exact"
    statements: Dict[str, Statement] = {}
    compare: CompareRules = CompareRules()
    redact: tuple[str, ...] = ()
    p99_ms: float | None = None
    calls_per_s: float | None = None

    @property
    def templates(self) -> tuple[Template, ...]:
        return (*self.key, *(value for condition in self.sort for value in condition.values))

    @property
    def star(self) -> Ref | None:
        """The reference with a `*` in the partition key, for many requests."""
        return next((ref for template in self.key for ref in template.refs if ref.every), None)

    @property
    def listed(self) -> str:
        names = set(paths_in(self.templates))
        return next((param.name for param in self.params if param.many and param.name in names), "")


# ── Entities, and the whole mapping ──

Aggregate = Literal["count", "sum", "min", "max"]
CollectionKind = Literal["list", "climb"] | Aggregate
Keep = Literal["all", "none"] | tuple[str, ...]


class Join(Struct, frozen=True):
    """One parent row: by the foreign key on `columns` of `parent` ('' is the root), or by `table` and `on`.

    `on` maps columns of the parent alias to columns of `table`.
    """

    alias: str
    parent: str
    columns: tuple[str, ...] = ()
    table: str | None = None
    on: tuple[tuple[str, str], ...] = ()


class Collection(Struct, frozen=True):
    """Rows joined to the root: children as a list, an aggregate, or (climb) the root and its ancestors.

    `by`: the child's columns that point to the root; of a climb, the row's columns that point to its parent's
    columns `of` (its primary key, if empty).
    """

    alias: str
    kind: CollectionKind
    table: str
    by: tuple[str, ...]
    column: str | None = None
    joins: tuple[Join, ...] = ()
    order_by: tuple[str, ...] = ()
    at_most: int | None = None
    first: int | None = None
    of: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.kind in ("list", "climb")


class IndexEntry(Struct, frozen=True):
    """Templates of the index's key attributes that are not in the table's key."""

    index: str
    values: tuple[Template, ...]
    when: tuple[Condition, ...] = ()


class Expiry(Struct, frozen=True):
    """The expiry time of an item: a path to a timestamp, plus days.

    `per_s`: units per second of a whole number (1, or 1000).
    `zero`: the meaning of 0; '' for a moment like any other.
    """

    path: str
    days: int = 0
    per_s: int = 1
    zero: Literal["never", "expired", ""] = ""


class ItemDesign(Struct, frozen=True):
    """`copy`: its number among copies of one item; 0 without copies."""

    type: str
    key: tuple[Template, ...]
    entries: tuple[IndexEntry, ...] = ()
    when: tuple[Condition, ...] = ()
    keep: Keep = "none"
    keep_except: tuple[str, ...] = ()
    attributes: Dict[str, Expression] = {}
    expiry: Expiry | None = None
    copy: int = 0

    @property
    def templates(self) -> tuple[Template, ...]:
        return (*self.key, *(value for entry in self.entries for value in entry.values))


class Version(Struct, frozen=True):
    """The application's column that counts changes of the root row, and its attribute in items."""

    attribute: str
    column: str


class Computed(Struct, frozen=True):
    """A column from SQL. `type`: as in a mapping, such as number(2); None: as it comes."""

    sql: str
    type: str | None = None


class Entity(Struct, frozen=True):
    """`name`: the mapping's, with @schema if it reads several.
    `transform`: module:function.
    `changes`: (table, its columns that name the root row) of tables behind a view.
    `version`: among `attributes`.
    `table`: '' for a single entity: one row that always exists, with collections of all rows of their tables.
    """

    name: str
    table: str
    items: tuple[ItemDesign, ...]
    key: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    joins: tuple[Join, ...] = ()
    collections: tuple[Collection, ...] = ()
    attributes: Dict[str, Expression] = {}
    computed: Dict[str, Computed] = {}
    transform: str | None = None
    schema: str | None = None
    changes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    version: Version | None = None

    @property
    def written(self) -> str:
        return self.name.partition("@")[0]

    def copies(self, type_: str) -> int:
        return sum(item.type == type_ for item in self.items)

    @property
    def lists(self) -> frozenset[str]:
        return frozenset(collection.alias for collection in self.collections if collection.is_list)


class DocumentTable(Struct, frozen=True):
    """An old table of DynamoDB: its key attributes, and each column's type (documents.py).

    A column is an attribute, or a place in a map with dots before each name: `address.city`.
    """

    key: tuple[str, ...]
    columns: Dict[str, str]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A whole mapping file.

    `revision`: a digest of its meaning: two equal revisions make equal items.
    `documents`: the old tables of a DynamoDB source.
    """

    name: str
    revision: str
    table: TableDesign
    entities: Dict[str, Entity]
    timezone: str | None = None
    schemas: tuple[str, ...] = ()
    maps: Dict[str, Dict[str, str]] = field(default_factory=dict)
    patterns: Dict[str, Pattern] = field(default_factory=dict)
    documents: Dict[str, DocumentTable] = field(default_factory=dict)
    text: str = field(default="", compare=False, repr=False)

    __hash__ = object.__hash__
    """By identity, for caches: its dicts have no hash, and do not change."""

    @property
    def old_questions(self) -> list[DocumentQuestion]:
        asked = [one for pattern in self.patterns.values() for one in pattern.statements.values()]
        return [one for one in asked if isinstance(one, DocumentQuestion)]

    @property
    def schemas_read(self) -> tuple[str, ...]:
        if self.documents:
            return ()  # a name of a table of DynamoDB's may have a dot in it
        tables = [
            name
            for entity in self.entities.values()
            for name in (
                entity.table,
                *(collection.table for collection in entity.collections),
                *(join.table or "" for join in entity.joins),
                *(join.table or "" for collection in entity.collections for join in collection.joins),
            )
        ]
        named = [name.partition(".")[0] for name in tables if "." in name]
        return tuple(dict.fromkeys([*self.schemas, *named]))


TRANSFORM = "transform"
"""The alias under which items name a transform's values."""
