"""The SELECTs that read row trees, built from an entity's plan only, and how each engine reads and compares a column."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import NullType, TypeDecorator, UserDefinedType

from migrator.mapping.model.facts import (
    NO_TABLE,
    CollectionPlan,
    Column,
    EntityPlan,
    JoinPlan,
    Kind,
    Lookup,
    Slot,
    TableFacts,
)
from migrator.mapping.model.table import CLIMB_LEVELS, Value
from migrator.source.engines.base import Trait
from migrator.source.engines.connect import engine_of

# ── Columns read exactly, and compared exactly, for each engine ──


class Where(ColumnElement[Any]):
    """A condition with a `special` form for engines with the trait."""

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012  (SQLAlchemy's own word for what a cache key is made of)
        ("trait", InternalTraversal.dp_string),
        ("usual", InternalTraversal.dp_clauseelement),
        ("special", InternalTraversal.dp_clauseelement),
    ]

    def __init__(self, trait: Trait, usual: ColumnElement[Any], special: ColumnElement[Any]) -> None:
        self.trait = trait
        self.usual = usual
        self.special = special
        self.type = usual.type

    def self_group(self, against: Any = None) -> Any:
        return self  # else SQLAlchemy writes "= 1" after a comparison on databases without a boolean type


@compiles(Where)
def _compiled_where(element: Where, compiler: SQLCompiler, **words: Any) -> str:
    if element.trait not in engine_of(compiler.dialect.name).sql.traits:
        return compiler.process(element.usual, **words)
    # In brackets: the SQL around it does not know that it may be an OR.
    return f"({compiler.process(element.special, **words)})"


class ColumnType(TypeDecorator[Any]):
    """Casts and converts nothing, except a value that the column is compared with."""

    impl = NullType
    cache_ok = True

    def __init__(self, kind: Kind, declared: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.declared = declared.lower()

    @classmethod
    def of(cls, column: Column) -> ColumnType:
        return cls(column.kind, column.declared)

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Bind the value so that the server compares it as the column's own type."""
        return engine_of(dialect.name).sql.comparable(value, self.kind)

    def bind_expression(self, bindvalue: Any) -> Any:
        if self.kind.name != "text":
            return bindvalue
        return Where("binds bytes as text", bindvalue, sa.cast(bindvalue, sa.Text))


# ── columns ──


class _Named(UserDefinedType[Any]):
    """A type of the source by name, for a CAST."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: Any) -> str:
        return self.name


def exact(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The exact value, for comparisons and sums as well.

    MySQL shows six digits of a FLOAT, but compares all of its value; PostgreSQL formats money by its locale.
    """
    kind = kind_of(column)
    if kind is not None and kind.read_as:
        return Where("casts to read", column, sa.cast(column, _Named(kind.read_as)))
    if _is(column, "float"):
        return Where("rounds floats", column, column + sa.literal_column("0e0"))
    return column


def read(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """exact() with arrays and composites as JSON, which is unambiguous."""
    kind = kind_of(column)
    if kind is None or kind.name not in ("list", "map"):
        return exact(column)
    return Where("nested as JSON", column, sa.func.pg_catalog.to_json(exact(column)))


def kind_of(column: ColumnElement[Any]) -> Kind | None:
    return column.type.kind if isinstance(column.type, ColumnType) else None


def in_key_order(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column as a key is ordered and compared; MySQL orders an ENUM by its position but compares its text.

    CONCAT keeps the collation. No index supports it, so pages by such a key are slow, but complete.
    """
    return (
        Where("enums by place", column, sa.func.concat(column))
        if _is(column, "enum(", "set(")
        else exact(column)
    )


def _is(column: ColumnElement[Any], *beginnings: str) -> bool:
    return isinstance(column.type, ColumnType) and column.type.declared.startswith(beginnings)


# ── Columns that a mapping makes with SQL of the source, as elements of a SELECT ──


class ComputedColumn(ColumnElement[Any]):
    inherit_cache = False

    def __init__(self, column: Column, table: TableFacts, alias: str) -> None:
        self.sql = column.sql or ""
        self.table_facts = table
        self.alias = alias
        self.type = ColumnType.of(column)


@compiles(ComputedColumn)
def _compiled_column(element: ComputedColumn, compiler: SQLCompiler, **words: Any) -> str:
    checked = _checked(element.sql, element.table_facts, compiler.dialect.name, element.alias)
    return f"({compiler.escape_literal_column(checked)})"  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1_000)
def _checked(sql: str, table: TableFacts, dialect: str, alias: str | None = None) -> str:
    from migrator.source.sql.statements import row_expression  # only mappings with SQL of their own need it

    return row_expression(sql, table, dialect, alias)


# Key ranges in the form in which each database reads a page by the key's index, of its partitions.

Compare = Callable[[Any, Any], ColumnElement[bool]]

Columns = Sequence[ColumnElement[Any]]


def row_after(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    return _row_compared(columns, bounds, operator.gt, operator.gt, operator.ge)


def row_upto(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    return _row_compared(columns, bounds, operator.le, operator.lt, operator.le)


def _row_compared(
    columns: Columns, bounds: Columns, compare: Compare, before: Compare, first: Compare
) -> ColumnElement[bool]:
    """PostgreSQL prunes a page's partitions by single columns only, so it also gets the bound of the first
    column. SQLite would read all rows of that bound for every page.
    """
    if len(columns) == 1:
        return compare(columns[0], bounds[0])
    usual = compare(sa.tuple_(*columns), sa.tuple_(*bounds))
    by_steps = Where("rows compared as a whole", usual, _stepwise(columns, bounds, before, compare))
    return Where("partitions by the first column", by_steps, sa.and_(usual, first(columns[0], bounds[0])))


def _stepwise(columns: Columns, bounds: Columns, before: Compare, last: Compare) -> ColumnElement[bool]:
    """a > x OR a = x AND b > y: MySQL compares rows as a whole, but then reads the whole table for every page."""
    steps = []
    for position, (column, bound) in enumerate(zip(columns, bounds, strict=True)):
        equal = (own == other for own, other in zip(columns[:position], bounds[:position], strict=True))
        compare = last if position == len(columns) - 1 else before
        steps.append(sa.and_(*equal, compare(column, bound)))
    return sa.or_(*steps)


# ── The SELECTs that read row trees, from a plan only ──
#
# Columns have no SQL type here but `Held`, so values stay as the driver gave them.

Key: TypeAlias = tuple[Any, ...]
Conditions: TypeAlias = Sequence[tuple[Column, tuple[Value, ...] | None]]
"""(column, allowed values): a None among them allows NULL; None instead of them is any value except NULL."""

Statement: TypeAlias = sa.Select[Any]


class KeyRange(Struct, frozen=True):
    """Rows with after < key <= upto; None is open."""

    after: Key | None = None
    upto: Key | None = None


Rows: TypeAlias = KeyRange | Sequence[Key]


class RootSelect:
    """Root rows' slots in key order: the statement is built once. Thread-safe.

    `traits`: of the engine, which may allow a simpler statement.
    """

    def __init__(self, plan: EntityPlan, traits: Set[Trait] = frozenset()) -> None:
        self.plan = plan
        self._takes_arrays = "numbers as an array" in traits
        root = named(plan.table, "root")
        aliases, source = joined({"": root}, root, plan.joins)
        self._key = key_of(plan, root)
        self._exact = [exact(column_of(root, column.real)) for column in plan.key]
        slots = (slot_of(slot, aliases) for slot in plan.slots)
        self._statement: Statement = sa.select(*slots).select_from(source).order_by(*self._key)
        self._with_key, self._where = with_key(plan, root), where_of(root, plan.where)
        self._keys: Statement = sa.select(*self._key).select_from(root).order_by(*self._key).limit(1)

    def bound(self, rows: KeyRange, page_rows: int) -> Statement:
        by_key = within(self._key, rows)
        return self._keys.where(*self._with_key, *by_key, *self._where).offset(page_rows - 1)

    def of(self, rows: Rows, limit: int | None = None) -> Statement:
        if isinstance(rows, KeyRange):
            by_key = within(self._key, rows)
        elif self._takes_arrays and len(self._exact) > 1 and _are_numbers(rows):
            by_key = [_in_arrays(self._exact, rows)]
        else:
            by_key = [one_of(self._exact, rows)]
        return self._statement.where(*self._with_key, *by_key, *self._where).limit(limit)


def entity_words(plan: EntityPlan) -> str:
    return f"entity {plan.entity.name}" + ("" if plan.is_single else f" (table {plan.table.real})")


def root_select(plan: EntityPlan, rows: Rows, limit: int | None = None) -> Statement:
    return RootSelect(plan).of(rows, limit)


# ── tables and columns ──


def named(table: TableFacts, alias: str) -> FromClause:
    """The table; with computed columns, a SELECT of it with them (databases merge the two)."""
    if table == NO_TABLE:
        constants = (
            sa.literal_column(one.sql or "", ColumnType.of(one)).label(one.real) for one in table.columns
        )
        return sa.select(*constants).subquery(alias)
    computed = [column for column in table.columns if column.sql is not None]
    plain = unnamed(table)
    if not computed:
        return plain.alias(alias)
    base = plain.alias("base")
    computed_columns = (ComputedColumn(column, table, "base").label(column.real) for column in computed)
    return sa.select(*base.c, *computed_columns).subquery(alias)


def unnamed(table: TableFacts) -> sa.TableClause:
    plain = (column for column in table.columns if column.sql is None)
    columns = (sa.column(quoted_name(column.real, True), ColumnType.of(column)) for column in plain)
    schema = None if table.schema is None else quoted_name(table.schema, True)
    return sa.table(quoted_name(table.real, True), *columns, schema=schema)


def column_of(table: FromClause, real: str) -> ColumnElement[Any]:
    return table.c[real]


def key_of(plan: EntityPlan, root: FromClause) -> list[ColumnElement[Any]]:
    return [in_key_order(column_of(root, column.real)) for column in plan.key]


def slot_of(slot: Slot, aliases: dict[str, FromClause]) -> ColumnElement[Any]:
    return read(column_of(aliases[slot.alias], slot.column.real))


def joined(
    aliases: dict[str, FromClause], source: FromClause, joins: Sequence[JoinPlan], *, outer: bool = True
) -> tuple[dict[str, FromClause], FromClause]:
    """Every alias with its table, and `source` joined to the parents. `outer`: keep rows without a parent.

    Parents are j1, j2, … in SQL: a mapping's alias may be too long for a database, or 'root'.
    """
    for number, join in enumerate(joins, 1):
        parent, own = aliases[join.parent], named(join.table, f"j{number}")
        on = sa.and_(*(column_of(parent, theirs) == column_of(own, ours) for theirs, ours in join.on))
        source = source.join(own, on, isouter=outer)
        aliases = {**aliases, join.alias: own}
    return aliases, source


# ── which rows ──


def chosen(plan: EntityPlan, root: FromClause, rows: Rows) -> list[ColumnElement[bool]]:
    if isinstance(rows, KeyRange):
        by_key = within(key_of(plan, root), rows)
    else:
        by_key = [one_of([exact(column_of(root, column.real)) for column in plan.key], rows)]
    return with_key(plan, root) + by_key + where_of(root, plan.where)


def with_key(plan: EntityPlan, root: FromClause) -> list[ColumnElement[bool]]:
    # SQLite lets a key contain NULL; a row compared by its other columns would come and go with the bounds.
    return [column_of(root, column.real).is_not(None) for column in plan.key if column.nullable]


def within(key: Sequence[ColumnElement[Any]], rows: KeyRange) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if rows.after is not None:
        conditions.append(row_after(key, bound_values(key, rows.after)))
    if rows.upto is not None:
        conditions.append(row_upto(key, bound_values(key, rows.upto)))
    return conditions


def bound_values(columns: Sequence[ColumnElement[Any]], key: Key) -> list[ColumnElement[Any]]:
    return [_bound(value, column) for column, value in zip(columns, key, strict=True)]


def one_of(columns: Sequence[ColumnElement[Any]], keys: Sequence[Key]) -> ColumnElement[bool]:
    """IN for one column, else an OR of ANDs, which uses the key's index."""
    if len(columns) == 1:
        values = [key[0] for key in keys]
        listed = columns[0].in_(_bound_list(values, columns[0]))
        if not values or not all(type(value) is int for value in values):
            return listed
        # One value instead of hundreds, each of which costs the driver more than its row.
        array = columns[0] == sa.any_(sa.bindparam(None, values, type_=NullType()))
        return Where("numbers as an array", listed, array)
    rows = (
        sa.and_(*(own == value for own, value in zip(columns, bound_values(columns, key), strict=True)))
        for key in keys
    )
    return sa.or_(sa.false(), *rows)


def _are_numbers(keys: Sequence[Key]) -> bool:
    return all(type(value) is int for key in keys for value in key)


def _in_arrays(columns: Sequence[ColumnElement[Any]], keys: Sequence[Key]) -> ColumnElement[bool]:
    """One array per column, not one value per column and key; an index supports it."""
    arrays = [sa.bindparam(None, list(values), type_=NullType()) for values in zip(*keys, strict=True)]
    names = [f"k{number}" for number in range(len(columns))]
    given = sa.func.unnest(*arrays).table_valued(*names).render_derived()
    return sa.tuple_(*columns).in_(sa.select(*given.c))


def where_of(root: FromClause, conditions: Conditions) -> list[ColumnElement[bool]]:
    return [_allows(column_of(root, column.real), allowed) for column, allowed in conditions]


def _allows(column: ColumnElement[Any], allowed: tuple[Value, ...] | None) -> ColumnElement[bool]:
    if allowed is None:
        return column.is_not(None)
    values = [value for value in allowed if value is not None]
    conditions = [column.in_(_bound_list(values, column))] if values else []
    if None in allowed:
        conditions.append(column.is_(None))
    return sa.or_(sa.false(), *conditions)


def _bound(value: Any, column: ColumnElement[Any]) -> sa.BindParameter[Any]:
    """A parameter without a cast: PostgreSQL converts text to the column's type."""
    return sa.bindparam(None, _bindable(value), type_=column.type, unique=True)


def _bound_list(values: Sequence[Any], column: ColumnElement[Any]) -> sa.BindParameter[Any]:
    values = [_bindable(value) for value in values]
    return sa.bindparam(None, values, type_=column.type, unique=True, expanding=True)


def _bindable(value: Any) -> Any:
    # sqlite3 has no Decimal; columns of both databases compare its text as a number.
    return str(value) if isinstance(value, Decimal) else value


# ── The SELECTs that read the children of root rows ──

_NO_COLLATION = frozenset({"integer", "number", "uuid", "date", "timestamp"})


def collection_select(plan: EntityPlan, collection: CollectionPlan, rows: Rows) -> Statement:
    root = named(plan.table, "root")
    child = named(collection.table, "child")
    link = _linked(collection, child, root)
    aliases, source = joined({"": child}, root.join(child, link), collection.joins)
    key = key_of(plan, root)
    conditions = chosen(plan, root, rows) + children_within(plan, collection, child, rows)
    if collection.collection.kind != "list":
        value = _aggregate(collection, child)
        return sa.select(*key, value).select_from(source).where(*conditions).group_by(*key)
    children = (slot_of(slot, aliases) for slot in collection.slots)
    order = _child_order(collection, aliases)
    return sa.select(*key, *children).select_from(source).where(*conditions).order_by(*key, *order)


def _linked(collection: CollectionPlan, child: FromClause, root: FromClause) -> ColumnElement[bool]:
    pairs = (column_of(child, own) == column_of(root, theirs) for own, theirs in collection.link)
    return sa.and_(*pairs) if collection.link else sa.literal_column("1") == sa.literal_column("1")


def _aggregate(collection: CollectionPlan, child: FromClause) -> ColumnElement[Any]:
    column = collection.column
    if column is None:
        return sa.func.count()
    function: Callable[[ColumnElement[Any]], ColumnElement[Any]] = getattr(
        sa.func, collection.collection.kind
    )
    return function(exact(column_of(child, column.real)))


def _child_order(collection: CollectionPlan, aliases: dict[str, FromClause]) -> list[ColumnElement[Any]]:
    slots = {slot.path: slot for slot in collection.slots}
    key = [path for path in collection.table.primary_key if path not in collection.order_by]
    order = []
    for path in (*collection.order_by, *key):
        column = collection.table.column(path)
        slot = slots.get(path) or (Slot(path, "", column) if column else None)
        if slot is not None:
            order.append(exact(column_of(aliases[slot.alias], slot.column.real)))
    return order


def children_within(
    plan: EntityPlan, collection: CollectionPlan, child: FromClause, rows: Rows
) -> list[ColumnElement[bool]]:
    """The range of keys on the child's side; empty if that could select other rows.

    Databases carry an equality across a join, but not a range: PostgreSQL would read all of a child table of
    middling size for every page. Text is excluded: the two sides may have different collations, and so
    different values between two bounds.
    """
    kinds = {column.real: column.kind for column in collection.table.columns}
    own = {theirs: ours for ours, theirs in collection.link}
    linked = all(
        column.real in own and column.kind.name in _NO_COLLATION and kinds[own[column.real]] == column.kind
        for column in plan.key
    )
    if not linked or not isinstance(rows, KeyRange):
        return []
    return within([column_of(child, own[column.real]) for column in plan.key], rows)


# ── SELECTs for the root rows that a changed row affects, from a plan and a lookup ──


def roots_select(
    plan: EntityPlan, lookup: Lookup, values: Sequence[Sequence[Any]], after: Key | None, limit: int
) -> Statement:
    """A SELECT of distinct keys, in order, past `after`.

    Includes rows that the entity's `where` excludes. No value is NULL.
    """
    rows = KeyRange(after)
    if lookup.climb is not None:
        return _below(plan, lookup.climb, lookup, values, rows).limit(limit)
    root = named(plan.table, "root")
    key = key_of(plan, root)
    conditions = [*with_key(plan, root), *within(key, rows)]
    source, joins, aliases = root, plan.joins, {"": root}
    if lookup.collection is not None:
        child = named(lookup.collection.table, "child")
        source = root.join(child, _linked(lookup.collection, child, root))
        joins, aliases = lookup.collection.joins, {"": child}
        conditions += children_within(plan, lookup.collection, child, rows)
    aliases, source = joined(aliases, source, _up_to(joins, lookup.parent), outer=False)
    conditions.append(_any_equal(aliases[lookup.parent], _value_columns(plan, lookup), values))
    query = sa.select(*key).select_from(source).where(*conditions).order_by(*key).limit(limit)
    return query if source is root else query.distinct()


def _value_columns(plan: EntityPlan, lookup: Lookup) -> tuple[str, ...]:
    return tuple(column.real for column in plan.key) if lookup.is_root else lookup.columns


def _any_equal(table: FromClause, reals: Sequence[str], many: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    columns = [exact(table.c[real]) for real in reals]
    many = [*many, *_widened(many)]
    if len(columns) == 1 and len(many) > 1:
        return one_of(columns, [tuple(values) for values in many])
    bound = [bound_values(columns, tuple(values)) for values in many]
    return sa.or_(
        *(sa.and_(*(c == v for c, v in zip(columns, values_bound, strict=True))) for values_bound in bound)
    )


def _widened(many: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """The values, also as a 32-bit float of that text appears among 64-bit ones.

    An image shows a real as 0.1, and a double linked to it contains 0.10000000149011612. An extra row is read
    again and written unchanged.
    """
    for values in many:
        if any(isinstance(value, float) for value in values):
            yield [_as_double(value) if isinstance(value, float) else value for value in values]


def _as_double(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value


def _up_to(joins: Sequence[JoinPlan], alias: str) -> list[JoinPlan]:
    parents = {join.alias: join.parent for join in joins}
    aliases = set()
    while alias:
        aliases.add(alias)
        alias = parents[alias]
    return [join for join in joins if join.alias in aliases]


# ── trees ──


def _below(
    plan: EntityPlan, climb: CollectionPlan, lookup: Lookup, values: Sequence[Sequence[Any]], rows: KeyRange
) -> Statement:
    """The rows with the values, and all descendants.

    As deep as a line of ancestors may be: rows further down are refused.
    """
    start = named(climb.table, "start")
    linked = [theirs for _, theirs in climb.link]
    names = [f"r{number}" for number in range(len(plan.key))] + [
        f"l{number}" for number in range(len(linked))
    ]
    columns = [*key_of(plan, start), *(start.c[real] for real in linked)]
    down = (
        sa.select(
            *(column.label(name) for column, name in zip(columns, names, strict=True)),
            sa.literal_column("0", NullType()).label("level"),
        )
        .where(*with_key(plan, start), _any_equal(start, _value_columns(plan, lookup), values))
        .cte("down", recursive=True)
    )
    child = named(climb.table, "child")
    above = list(down.c)[len(plan.key) : -1]
    link = sa.and_(
        *(child.c[own] == parent_column for (own, _), parent_column in zip(climb.link, above, strict=True))
    )
    below: Any = (
        sa.select(*key_of(plan, child), *(child.c[real] for real in linked), down.c.level + 1)
        .select_from(down.join(child, link))
        .where(*with_key(plan, child), down.c.level < CLIMB_LEVELS)
    )
    levels = down.union_all(below)
    key = list(levels.c)[: len(plan.key)]
    return sa.select(*key).distinct().where(*within(key, rows)).order_by(*key)


# ── The SELECT that reads rows with all their ancestors ──


def climb_select(plan: EntityPlan, climb: CollectionPlan, rows: Rows) -> Statement:
    """The root key, then the slots of root rows and their ancestors, the highest first.

    It climbs one level more than allowed, so that a cycle or a line that is too long is detected by its
    length.
    """
    up = _ancestor_levels(plan, climb, rows)
    own = named(climb.table, "own")
    count = len(plan.key)
    root_key, own_key = list(up.c)[:count], list(up.c)[count : 2 * count]
    is_own = sa.and_(*(a == b for a, b in zip(key_of(plan, own), own_key, strict=True)))
    slots = (slot_of(slot, {"": own}) for slot in climb.slots)
    return (
        sa.select(*root_key, *slots).select_from(up.join(own, is_own)).order_by(*root_key, up.c.level.desc())
    )


def _ancestor_levels(plan: EntityPlan, climb: CollectionPlan, rows: Rows) -> sa.CTE:
    root = named(plan.table, "root")
    key = key_of(plan, root)
    names = [f"r{number}" for number in range(len(key))] + [f"o{number}" for number in range(len(key))]
    columns = [column.label(name) for column, name in zip([*key, *key], names, strict=True)]
    up = (
        sa.select(*columns, sa.literal_column("0", NullType()).label("level"))
        .where(*chosen(plan, root, rows))
        .cte("up", recursive=True)
    )
    child, parent = named(climb.table, "child"), named(climb.table, "parent")
    own_key = list(up.c)[len(key) : 2 * len(key)]
    itself = sa.and_(*(a == b for a, b in zip(key_of(plan, child), own_key, strict=True)))
    link = sa.and_(*(child.c[ours] == parent.c[theirs] for ours, theirs in climb.link))
    above: Any = (
        sa.select(*list(up.c)[: len(key)], *key_of(plan, parent), (up.c.level + 1).label("level"))
        .select_from(up.join(child, itself).join(parent, link))
        .where(up.c.level < CLIMB_LEVELS)
    )
    return up.union_all(above)
