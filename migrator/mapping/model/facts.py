"""Facts of the source's schema: tables, columns and their kinds, keys; plans of entities; tables that are captured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence, Set
from collections.abc import Mapping as Dict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from migrator.mapping.model.mapping import Collection, Entity, Expression, ItemDesign, Ref
from migrator.mapping.model.table import Value
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace

# ──
# The source's schema as far as a mapping needs it, and an entity's plan: what to read, and where it
# stands.

KindName = Literal[
    "integer",
    "number",
    "float",
    "text",
    "boolean",
    "date",
    "time",
    "timestamp",
    "uuid",
    "binary",
    "json",
    "bits",
    "list",
    "map",
    "set",
    "plain",
    "unknown",
]
"""`bits` is text of 0 and 1, `list` an array, `map` a composite or an hstore, `set` MySQL's SET, `plain` a value
by the driver's own type (none is declared), `unknown` a type that has no form in an item."""


Alike = Literal["case", "trailing spaces"]
"""The difference between two texts that the source compares as equal."""


# ── the source's schema, as far as a mapping needs it ───────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Kind:
    """The values of a column, by its declared type.

    `length`: in characters.
    `single`: a 32-bit float that the driver returns with 64 bits.
    `element`: of a list, and of a map without declared names.
    `fields`: of a map with them.
    `distinct`: DynamoDB has the list as a set.
    `scale`, `precision`: digits of a number; the precision also of a second's fraction.
    `read_as`: the type for a cast, if the source's own text is not exact.
    `instead`: of an unknown kind, SQL that returns a text, with {column} in place of the column.
    `no_key`: why a column of it cannot identify rows.
    `sorts_as_text`: the source sorts the values of a uuid as their texts in lower case.
    `strict`: the source refuses texts that are none of its values, or changes them.
    """

    name: KindName
    scale: int | None = None
    zone: bool = False
    length: int | None = None
    single: bool = False
    element: Kind | None = None
    distinct: bool = False
    fields: tuple[tuple[str, Kind], ...] = ()
    precision: int | None = field(default=None, compare=False)
    read_as: str = field(default="", compare=False)
    instead: str = field(default="", compare=False)
    no_key: str = field(default="", compare=False)
    sorts_as_text: bool = field(default=False, compare=False)
    strict: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Column:
    """`name` as in a mapping, `real` and `declared` (the type) as in the source.
    `sql`: of a computed column, in the mapping's words.
    `alike`: by its collation.
    `widest`: maximum UTF-8 bytes of one character.
    `default`: a row without it gets a value.
    `generated`: the source computes it, and takes no value for it.
    `hidden`: `SELECT *` does not return it, and an INSERT without names of columns has no value for it.
    `words`: that affect its values: labels of an enum, names of a composite's fields, the expression of a
    generated column.
    `virtual`: the expression of a generated column that is not stored, if triggers do not compute it.
    """

    name: str
    real: str
    kind: Kind
    nullable: bool = True
    declared: str = ""
    sql: str | None = None
    alike: tuple[Alike, ...] = field(default=(), compare=False)
    widest: int = field(default=4, compare=False)
    default: bool = field(default=False, compare=False)
    generated: bool = field(default=False, compare=False)
    hidden: bool = field(default=False, compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)
    virtual: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`deferrable`: a transaction may break it until it commits.
    `proved`: it holds for all rows, not only for new ones.
    """

    columns: tuple[str, ...]
    table: str
    referred: tuple[str, ...]
    deferrable: bool = field(default=False, compare=False)
    proved: bool = field(default=True, compare=False)


class UniqueConflict(Struct, frozen=True):
    """SQLite SQL that is true for a row `gone` if a row `NEW` meets it in a unique index.

    `columns`: real names.
    `whole`: the index has only columns, and every row.
    """

    sql: str
    columns: tuple[str, ...]
    whole: bool


class TableFacts(Struct, frozen=True):
    """`unique_conflicts`: on SQLite, of unique indexes that conflict for other rows than those of the same
    values.
    `doubts`: why keys of `primary_key` and `unique` do not hold for all rows.
    """

    name: str
    real: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    schema: str | None = None
    unique_conflicts: tuple[UniqueConflict, ...] = ()
    doubts: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def proved(self) -> tuple[tuple[str, ...], ...]:
        doubted = {frozenset(key) for key, _ in self.doubts}
        keys = (self.primary_key, *self.unique)
        return tuple(key for key in keys if key and frozenset(key) not in doubted)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


_SINGLE = Column("single", "single", Kind("integer"), nullable=False, declared="integer", sql="1")
NO_TABLE = TableFacts("", "", (_SINGLE,), ("single",))
"""The source of a single entity: one row, with key 1."""


@dataclass(frozen=True)
class SchemaFacts:
    """`tables`: by written name, with schema.table for other schemas.
    `schemas`: all existing ones.
    `left_out`: by real name, tables that are unreadable or not the application's, and why.
    `unread`: unreadable ones with foreign keys, without columns.
    `loosely_typed`: times and UUIDs are texts, so two texts may be one value.
    """

    dialect: str
    tables: Dict[str, TableFacts]
    schemas: tuple[str, ...] = field(default=(), compare=False)
    left_out: Dict[str, str] = field(default_factory=dict, compare=False, kw_only=True)
    unread: tuple[TableFacts, ...] = field(default=(), compare=False, kw_only=True)
    loosely_typed: bool = field(kw_only=True)

    @cached_property
    def by_real_name(self) -> Dict[str, list[TableFacts]]:
        named: dict[str, list[TableFacts]] = {}
        for table in self.tables.values():
            named.setdefault(table.real.lower(), []).append(table)
        return named

    def referring(self, names: Set[str]) -> Iterator[tuple[TableFacts, ForeignKey]]:
        for table in (*self.tables.values(), *self.unread):
            yield from ((table, key) for key in table.foreign_keys if key.table in names)

    def without(self, names: Sequence[str], why: str = "--leave-out") -> SchemaFacts:
        kept = {name: table for name, table in self.tables.items() if not {name, table.real} & set(names)}
        tables = {
            name: replace(table, foreign_keys=tuple(key for key in table.foreign_keys if key.table in kept))
            for name, table in kept.items()
        }
        asked = dict.fromkeys((table.real for name, table in self.tables.items() if name not in kept), why)
        return replace(self, tables=tables, left_out={**self.left_out, **asked})


# ── an entity joined with its schema: the columns to read, and their places in a row tree ──


class Slot(Struct, frozen=True):
    """A column of a row tree.

    `alias`: a join's, '' for the row itself.
    `path`: its name in a mapping.
    """

    path: str
    alias: str
    column: Column


class JoinPlan(Struct, frozen=True):
    """LEFT JOIN `table` AS `alias` ON each (parent's real column, own real column)."""

    alias: str
    parent: str
    table: TableFacts
    on: tuple[tuple[str, str], ...]


class CollectionPlan(Struct, frozen=True):
    """`link`: (child's real column, root's real column), of a climb (row's, its parent's).
    `column`: the aggregate's.
    """

    collection: Collection
    table: TableFacts
    link: tuple[tuple[str, str], ...]
    joins: tuple[JoinPlan, ...] = ()
    slots: tuple[Slot, ...] = ()
    order_by: tuple[str, ...] = ()
    column: Column | None = None


class EntityPlan(Struct, frozen=True):
    entity: Entity
    table: TableFacts
    key: tuple[Column, ...]
    slots: tuple[Slot, ...]
    joins: tuple[JoinPlan, ...] = ()
    collections: tuple[CollectionPlan, ...] = ()
    where: tuple[tuple[Column, tuple[Value, ...] | None], ...] = ()
    """Conditions on columns of the root: allowed values (None among them: NULL too), or None for IS NOT NULL."""
    transformed: tuple[str, ...] = ()
    """Paths from the entity's transform, which are not in the row tree."""
    loosely_typed: bool = False
    """As in SchemaFacts."""
    changes: tuple[tuple[TableFacts, tuple[str, ...]], ...] = ()
    """Tables behind the views that it reads, with the columns (by written name) that hold the root's key."""

    @property
    def is_single(self) -> bool:
        return not self.entity.table

    @property
    def tables(self) -> Iterator[TableFacts]:
        for one in self.rows:
            yield from () if one.table == NO_TABLE else (one.table,)
            yield from (join.table for join in one.joins)

    @property
    def rows(self) -> tuple[EntityPlan | CollectionPlan, ...]:
        return (self, *self.collections)

    def collected(self, alias: str) -> CollectionPlan | None:
        return next((one for one in self.collections if one.collection.alias == alias), None)

    @property
    def computed(self) -> tuple[tuple[TableFacts, Slot], ...]:
        """Columns from SQL over a table."""
        return tuple(
            (table, Slot(f"{alias}.{column.name}" if alias else column.name, alias, column))
            for alias, table in tables_of(self).items()
            for column in table.columns
            if column.sql is not None
        )


def tables_of(plan: EntityPlan | CollectionPlan) -> dict[str, TableFacts]:
    return {"": plan.table} | {join.alias: join.table for join in plan.joins}


def kind_of(path: str, plan: EntityPlan) -> Kind | None:
    column = column_of(path, plan)
    if column is not None:
        return column.kind
    collected = plan.collected(path)
    if collected is not None and not collected.collection.is_list:
        return Kind("integer")  # a count
    return Kind("plain") if path in plan.transformed else None


def column_of(path: str, plan: EntityPlan) -> Column | None:
    for slot in plan.slots:
        if slot.path == path:
            return slot.column
    alias, _, name = path.partition(".")
    collected = plan.collected(alias)
    if collected is not None and collected.collection.is_list:
        return next((slot.column for slot in collected.slots if slot.path == name), None)
    return collected.column if collected is not None and alias == path else None


def kept_columns(plan: EntityPlan, design: ItemDesign) -> tuple[str, ...]:
    if design.keep == "none":
        return ()
    if isinstance(design.keep, tuple):
        return design.keep
    columns = (column.name for column in plan.table.columns if column.sql is None)
    return tuple(name for name in columns if name not in design.keep_except)


def attributes_of(plan: EntityPlan, design: ItemDesign) -> Dict[str, Expression]:
    """Attributes without keys: columns under their own names, overridden by the mapping's."""
    written = {**plan.entity.attributes, **design.attributes}
    kept = {name: Ref((name,)) for name in kept_columns(plan, design) if name not in written}
    return {**kept, **written}


@dataclass(frozen=True)
class Lookup:
    """How a changed row leads to root rows of an entity.

    `values`: columns of the changed table, by default the root's key. Else they equal `columns` (real names)
    of the alias `parent`: in the entity's joins ('' the root), or with `collection` in the list's ('' the
    child).
    `climb`: also all rows with such an ancestor.
    `of_single`: each row of the changed table leads to a single entity's row.
    """

    entity: str
    values: tuple[str, ...]
    columns: tuple[str, ...] = ()
    parent: str = ""
    collection: CollectionPlan | None = None
    climb: CollectionPlan | None = None
    of_single: bool = False
    is_root: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Asked for every image of every mark.
        object.__setattr__(self, "is_root", not self.columns)

    def begin(self, image: Dict[str, Any]) -> tuple[Any, ...]:
        return (1,) if self.of_single else tuple(image[name] for name in self.values)


class Captured(Struct, frozen=True):
    """A table with captured changes.

    `name`: schema.table or table, as the source has it.
    `columns`: written names in a mark's images.
    `watched`: only their updates leave marks (None: all do).
    `texts`: names and SQL with definitions that affect values: views over it, expressions of computed
    columns.
    `made_by`: a word for each of these definitions.
    """

    name: str
    table: TableFacts
    columns: tuple[str, ...]
    watched: tuple[str, ...] | None
    lookups: tuple[Lookup, ...]
    texts: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()


def digest_of(*texts: str) -> str:
    """Eight hexadecimal digits: enough to notice a changed body, short enough for a name."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def columns_of(captured: Captured, names: Sequence[str]) -> list[Column]:
    """Raises: SettingsError for a computed column of the mapping."""
    by_name = [captured.table.column(name) for name in names]
    plain = [column for column in by_name if column is not None and column.sql is None]
    if len(plain) < len(names):
        wrong = ", ".join(name for name in names if name not in {column.name for column in plain})
        what = f"capture: table {captured.name}: a change record cannot hold {wrong}, which the mapping computes in SQL"
        raise SettingsError(f"{what}; use a column of the table for keys and joins")
    return plain
