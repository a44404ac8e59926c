"""The SELECTs that read row trees, built from an entity's plan alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import FromClause

from migrator.model.facts import CollectionPlan, Column, EntityPlan, JoinPlan, Slot, TableFacts
from migrator.model.table import Value
from migrator.source.column_sql import ColumnType, Where, exact, in_key_order, is_null, read, text_of
from migrator.source.sql.statements import row_expression

# ── Columns that a mapping makes with SQL of the source, as elements of a SELECT ──


class ComputedColumn(ColumnElement[Any]):
    """The SQL of a computed column over `table`, which is called `alias` where it stands."""

    inherit_cache = False

    def __init__(self, column: Column, table: TableFacts, alias: str) -> None:
        self.sql = column.sql or ""
        self.table_facts = table
        self.alias = alias
        self.type = ColumnType.of(column)


@compiles(ComputedColumn)
def _compiled(element: ComputedColumn, compiler: SQLCompiler, **words: Any) -> str:
    checked = _checked(element.sql, element.table_facts, compiler.dialect.name, element.alias)
    return f"({compiler.escape_literal_column(checked.sql)})"  # type: ignore[no-untyped-call]


_checked = lru_cache(maxsize=1_000)(row_expression)


# ──
# Ranges of keys as each database must be told them, so that a page is read by the key's index, of its
# partitions.

Compare = Callable[[Any, Any], ColumnElement[bool]]

Columns = Sequence[ColumnElement[Any]]


def row_after(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns > bounds, compared as rows."""
    usual = _row(columns) > _row(bounds)
    if len(columns) == 1:
        return usual
    stepwise = _stepwise(columns, bounds, operator.gt, operator.gt)
    return _for_each(usual, stepwise, columns[0] >= bounds[0])


def row_upto(columns: Columns, bounds: Columns) -> ColumnElement[bool]:
    """columns <= bounds, compared as rows."""
    usual = _row(columns) <= _row(bounds)
    if len(columns) == 1:
        return usual
    stepwise = _stepwise(columns, bounds, operator.lt, operator.le)
    return _for_each(usual, stepwise, columns[0] <= bounds[0])


def _for_each(
    usual: ColumnElement[bool], stepwise: ColumnElement[bool], of_first: ColumnElement[bool]
) -> ColumnElement[bool]:
    """The comparison in the words of each database.

    PostgreSQL finds a page's partitions by single columns alone, never by a comparison of rows, and is told the
    bound of the first column beside it. SQLite has no partitions, and would read by that bound: all rows that have
    it, for every page.
    """
    by_steps = Where("rows compared as a whole", usual, stepwise)
    return Where("partitions by the first column", by_steps, sa.and_(usual, of_first))


def _row(columns: Columns) -> ColumnElement[Any]:
    return columns[0] if len(columns) == 1 else sa.tuple_(*columns)


def _stepwise(columns: Columns, bounds: Columns, before: Compare, last: Compare) -> ColumnElement[bool]:
    """a > x OR a = x AND b > y: MySQL compares rows as a whole, but then reads the whole table for every page."""
    steps = []
    for place, (column, bound) in enumerate(zip(columns, bounds, strict=True)):
        equal = (own == other for own, other in zip(columns[:place], bounds[:place], strict=True))
        compare = last if place == len(columns) - 1 else before
        steps.append(sa.and_(*equal, compare(column, bound)))
    return sa.or_(*steps)


# ── The SELECTs that read row trees, from a plan alone ──
#
# Columns have no SQL type here but `Held`, so values stay as the driver gave them.

Key: TypeAlias = tuple[Any, ...]
Conditions: TypeAlias = Sequence[tuple[Column, tuple[Value, ...] | None]]
"""(column, allowed values): a None among them allows NULL; None in their place is any value but NULL."""

Statement: TypeAlias = sa.Select[Any]

_NO_COLLATION = frozenset({"integer", "number", "uuid", "date", "timestamp"})


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Rows with after < key <= upto; None is open."""

    after: Key | None = None
    upto: Key | None = None


@dataclass(frozen=True, slots=True)
class KeySet:
    keys: tuple[Key, ...]


Rows: TypeAlias = KeyRange | KeySet


class RootSelect:
    """The plan's slots of root rows, in key order: all of the statement but which rows, made once. Safe between threads."""

    def __init__(self, plan: EntityPlan) -> None:
        self.plan = plan
        root = named(plan.table, "root")
        aliases, source = joined({"": root}, root, plan.joins)
        self._key = key_of(plan, root)
        self._exact = [exact(_column(root, column.real)) for column in plan.key]
        slots = (slot_of(slot, aliases) for slot in plan.slots)
        self._statement: Statement = sa.select(*slots).select_from(source).order_by(*self._key)
        self._with_key, self._where = with_key(plan, root), _where(root, plan.where)

    def of(self, rows: Rows, limit: int | None = None) -> Statement:
        by_key = within(self._key, rows) if isinstance(rows, KeyRange) else [_one_of(self._exact, rows.keys)]
        return self._statement.where(*self._with_key, *by_key, *self._where).limit(limit)


def root_select(plan: EntityPlan, rows: Rows, limit: int | None = None) -> Statement:
    """The plan's slots of the given root rows, in key order."""
    return RootSelect(plan).of(rows, limit)


def collection_select(plan: EntityPlan, collection: CollectionPlan, rows: Rows) -> Statement:
    """The root key, then the child's slots or the aggregate, of the given root rows with children."""
    root = named(plan.table, "root")
    child = named(collection.table, "child")
    link = sa.and_(*(_column(child, own) == _column(root, roots) for own, roots in collection.link))
    aliases, source = joined({"": child}, root.join(child, link), collection.joins)
    key = key_of(plan, root)
    wanted = chosen(plan, root, rows) + children_within(plan, collection, child, rows)
    if collection.collection.kind != "list":
        value = _aggregate(collection, child)
        return sa.select(*key, value).select_from(source).where(*wanted).group_by(*key)
    children = (slot_of(slot, aliases) for slot in collection.slots)
    order = _child_order(collection, aliases)
    return sa.select(*key, *children).select_from(source).where(*wanted).order_by(*key, *order)


def bound_select(plan: EntityPlan, rows: KeyRange, page_rows: int) -> Statement:
    """The key of the row that is `page_rows` rows past the beginning of `rows`, if that is one of them."""
    root = named(plan.table, "root")
    key = key_of(plan, root)
    return (
        sa.select(*key)
        .select_from(root)
        .where(*chosen(plan, root, rows))
        .order_by(*key)
        .offset(page_rows - 1)
        .limit(1)
    )


def count_select(plan: EntityPlan, conditions: Conditions = ()) -> Statement:
    root = named(plan.table, "root")
    return sa.select(sa.func.count()).select_from(root).where(*_where(root, (*plan.where, *conditions)))


def all_select(plan: EntityPlan) -> Statement:
    """Something of every row that takes part; only its plan is of interest."""
    root = named(plan.table, "root")
    return sa.select(sa.literal_column("1")).select_from(root).where(*_where(root, plan.where))


def without_key_select(plan: EntityPlan) -> Statement:
    """The count of rows that have NULL in a column of their key that may hold it."""
    root = named(plan.table, "root")
    no_key = sa.or_(
        sa.false(), *(is_null(_column(root, column.real)) for column in plan.key if column.nullable)
    )
    return sa.select(sa.func.count()).select_from(root).where(no_key, *_where(root, plan.where))


def keys_select(plan: EntityPlan, *, as_text: bool = False, distinct: bool = True) -> Statement:
    """How many (different) keys rows have: compared by the source as values, or as the texts that it gives for them."""
    root = named(plan.table, "root")
    columns = [exact(_column(root, column.real)) for column in plan.key]
    keys = (
        sa.select(*(text_of(one) if as_text else one for one in columns))
        .select_from(root)
        .where(*with_key(plan, root), *_where(root, plan.where))
    )
    return sa.select(sa.func.count()).select_from((keys.distinct() if distinct else keys).subquery("keys"))


def whole_select(table: TableFacts) -> Statement:
    """The count of all rows of a table, whoever takes part."""
    return sa.select(sa.func.count()).select_from(named(table, "root"))


def first_select(table: TableFacts, at_most: int) -> Statement:
    """The count of the table's rows, counted no further than so many."""
    first: Statement = sa.select(sa.literal_column("1")).select_from(named(table, "root")).limit(at_most)
    return sa.select(sa.func.count()).select_from(first.subquery("first_rows"))


def twins_select(plan: EntityPlan, limit: int) -> Statement:
    """Keys that several of the rows that take part have, and how many."""
    root = named(plan.table, "root")
    key, many = key_of(plan, root), sa.func.count()
    wanted = [*with_key(plan, root), *_where(root, plan.where)]
    return sa.select(*key, many).select_from(root).where(*wanted).group_by(*key).having(many > 1).limit(limit)


def computed_select(table: TableFacts, column: Column) -> Statement:
    """No rows, but all that the database says against the column's SQL."""
    plain = replace(table, columns=tuple(one for one in table.columns if one.sql is None or one == column))
    return sa.select(named(plain, "root").c[column.real]).limit(0)


def no_rows_select(table: TableFacts) -> Statement:
    """Nothing, but all that the database says against reading the table."""
    return sa.select(sa.literal_column("1")).select_from(named(table, "root")).limit(0)


def sums_select(plan: EntityPlan, columns: Sequence[Column]) -> Statement:
    root = named(plan.table, "root")
    sums = (sa.func.sum(exact(_column(root, column.real))) for column in columns)
    return sa.select(*sums).select_from(root).where(*with_key(plan, root), *_where(root, plan.where))


# ── tables and columns ──


def named(table: TableFacts, alias: str) -> FromClause:
    """The table under an alias; where it has computed columns, a SELECT of it with them (databases merge the two)."""
    computed = [column for column in table.columns if column.sql is not None]
    plain = unnamed(table)
    if not computed:
        return plain.alias(alias)
    base = plain.alias("base")
    made = (ComputedColumn(column, table, "base").label(column.real) for column in computed)
    return sa.select(*base.c, *made).subquery(alias)


def unnamed(table: TableFacts) -> sa.TableClause:
    """The table with its own columns, without those that are computed."""
    columns = (_held(column) for column in table.columns if column.sql is None)
    schema = None if table.schema is None else quoted_name(table.schema, True)
    return sa.table(quoted_name(table.real, True), *columns, schema=schema)


def _held(column: Column) -> sa.ColumnClause[Any]:
    return sa.column(quoted_name(column.real, True), ColumnType.of(column))


def _column(table: FromClause, real: str) -> ColumnElement[Any]:
    return table.c[real]


def key_of(plan: EntityPlan, root: FromClause) -> list[ColumnElement[Any]]:
    return [in_key_order(_column(root, column.real)) for column in plan.key]


def slot_of(slot: Slot, aliases: dict[str, FromClause]) -> ColumnElement[Any]:
    return read(_column(aliases[slot.alias], slot.column.real))


def joined(
    aliases: dict[str, FromClause], source: FromClause, joins: Sequence[JoinPlan], *, outer: bool = True
) -> tuple[dict[str, FromClause], FromClause]:
    """Every alias with its table, and `source` joined to the parents; `outer`: also where there is none.

    Parents are called j1, j2, … in SQL: a mapping's alias may be too long for a database, or 'root'.
    """
    for number, join in enumerate(joins, 1):
        parent, own = aliases[join.parent], named(join.table, f"j{number}")
        on = sa.and_(*(_column(parent, theirs) == _column(own, ours) for theirs, ours in join.on))
        source = source.join(own, on, isouter=outer)
        aliases = {**aliases, join.alias: own}
    return aliases, source


def _aggregate(collection: CollectionPlan, child: FromClause) -> ColumnElement[Any]:
    column = collection.column
    if column is None:
        return sa.func.count()
    function: dict[str, Callable[[ColumnElement[Any]], ColumnElement[Any]]] = {
        "count": sa.func.count,
        "sum": sa.func.sum,
        "min": sa.func.min,
        "max": sa.func.max,
    }
    return function[collection.collection.kind](exact(_column(child, column.real)))


def _child_order(collection: CollectionPlan, aliases: dict[str, FromClause]) -> list[ColumnElement[Any]]:
    """The order that the mapping asks for, then the child's key, so that equal ones have one order too."""
    slots = {slot.path: slot for slot in collection.slots}
    key = [path for path in collection.table.primary_key if path not in collection.order_by]
    order = []
    for path in (*collection.order_by, *key):
        column = collection.table.column(path)
        slot = slots.get(path) or (Slot(path, "", column) if column else None)
        if slot is not None:
            order.append(exact(_column(aliases[slot.alias], slot.column.real)))
    return order


# ── which rows ──


def chosen(plan: EntityPlan, root: FromClause, rows: Rows) -> list[ColumnElement[bool]]:
    if isinstance(rows, KeySet):
        by_key = [_one_of([exact(_column(root, column.real)) for column in plan.key], rows.keys)]
    else:
        by_key = within(key_of(plan, root), rows)
    return with_key(plan, root) + by_key + _where(root, plan.where)


def with_key(plan: EntityPlan, root: FromClause) -> list[ColumnElement[bool]]:
    # SQLite lets a key hold NULL; a row compared by its other columns would come and go with the bounds.
    return [_column(root, column.real).is_not(None) for column in plan.key if column.nullable]


def children_within(
    plan: EntityPlan, collection: CollectionPlan, child: FromClause, rows: Rows
) -> list[ColumnElement[bool]]:
    """The range of keys once more, on the child's side; nothing where that could mean other rows.

    Databases carry an equality from one side of a join to the other, but no range: without this PostgreSQL
    reads all of a child table of middling size for every page. Text is left out: the two sides may differ in
    their collation, and so in what lies between two bounds.
    """
    kinds = {column.real: column.kind for column in collection.table.columns}
    own = {theirs: ours for ours, theirs in collection.link}
    linked = all(
        column.real in own and column.kind.name in _NO_COLLATION and kinds[own[column.real]] == column.kind
        for column in plan.key
    )
    if not linked or isinstance(rows, KeySet):
        return []
    return within([_column(child, own[column.real]) for column in plan.key], rows)


def within(key: Sequence[ColumnElement[Any]], rows: KeyRange) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if rows.after is not None:
        found.append(row_after(key, bound_values(key, rows.after)))
    if rows.upto is not None:
        found.append(row_upto(key, bound_values(key, rows.upto)))
    return found


def bound_values(columns: Sequence[ColumnElement[Any]], key: Key) -> list[ColumnElement[Any]]:
    return [_bound(value, column) for column, value in zip(columns, key, strict=True)]


def _one_of(columns: Sequence[ColumnElement[Any]], keys: Sequence[Key]) -> ColumnElement[bool]:
    """An IN for one column; for several an OR of ANDs, which both databases answer from the key's index."""
    if len(columns) == 1:
        return columns[0].in_(_bound_list([key[0] for key in keys], columns[0]))
    rows = (
        sa.and_(*(own == value for own, value in zip(columns, bound_values(columns, key), strict=True)))
        for key in keys
    )
    return sa.or_(sa.false(), *rows)


def _where(root: FromClause, conditions: Conditions) -> list[ColumnElement[bool]]:
    return [_allows(_column(root, column.real), allowed) for column, allowed in conditions]


def _allows(column: ColumnElement[Any], allowed: tuple[Value, ...] | None) -> ColumnElement[bool]:
    if allowed is None:
        return column.is_not(None)
    values = [value for value in allowed if value is not None]
    found = [column.in_(_bound_list(values, column))] if values else []
    if None in allowed:
        found.append(column.is_(None))
    return sa.or_(sa.false(), *found)


def _bound(value: Any, column: ColumnElement[Any]) -> sa.BindParameter[Any]:
    """A parameter without a cast: PostgreSQL then takes text for whatever type the column has."""
    return sa.bindparam(None, _bindable(value), type_=column.type, unique=True)


def _bound_list(values: Sequence[Any], column: ColumnElement[Any]) -> sa.BindParameter[Any]:
    values = [_bindable(value) for value in values]
    return sa.bindparam(None, values, type_=column.type, unique=True, expanding=True)


def _bindable(value: Any) -> Any:
    # sqlite3 has no Decimal; its text is compared as a number by columns of both databases.
    return str(value) if isinstance(value, Decimal) else value
