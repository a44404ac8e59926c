"""Counts, sums and duplicate keys of a source's tables, by plain SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql.elements import ColumnElement

from migrator.mapping.model.edges import KeyCounts, RowsSeen
from migrator.mapping.model.facts import Column, EntityPlan, TableFacts
from migrator.mapping.model.table import SourceKey, encode_key
from migrator.runtime.errors import SourceError, TooSlowError
from migrator.runtime.values import replace
from migrator.source.adapter.in_transaction import InTransaction
from migrator.source.sql.selects import (
    ColumnType,
    Conditions,
    Statement,
    Where,
    column_of,
    entity_words,
    exact,
    key_of,
    kind_of,
    named,
    where_of,
    with_key,
)
from migrator.source.sql.server_facts import rows_at_least, rows_expected
from migrator.source.sql.transactions import Reading, first_rows

# ── Their SELECTs ──


def count_select(plan: EntityPlan, conditions: Conditions = ()) -> Statement:
    root = named(plan.table, "root")
    return sa.select(sa.func.count()).select_from(root).where(*where_of(root, (*plan.where, *conditions)))


def all_select(plan: EntityPlan) -> Statement:
    """Something of every row that takes part; only its plan is of interest."""
    root = named(plan.table, "root")
    return sa.select(sa.literal_column("1")).select_from(root).where(*where_of(root, plan.where))


def without_key_select(plan: EntityPlan) -> Statement:
    """The count of rows that have NULL in a column of their key that may hold it."""
    root = named(plan.table, "root")
    no_key = sa.or_(
        sa.false(), *(is_null(column_of(root, column.real)) for column in plan.key if column.nullable)
    )
    return sa.select(sa.func.count()).select_from(root).where(no_key, *where_of(root, plan.where))


def keys_select(plan: EntityPlan, *, as_text: bool = False, distinct: bool = True) -> Statement:
    """How many (different) keys rows have: compared by the source as values, or as the texts that it gives for them."""
    root = named(plan.table, "root")
    columns = [exact(column_of(root, column.real)) for column in plan.key]
    keys = (
        sa.select(*(text_of(column) if as_text else column for column in columns))
        .select_from(root)
        .where(*with_key(plan, root), *where_of(root, plan.where))
    )
    return sa.select(sa.func.count()).select_from((keys.distinct() if distinct else keys).subquery("keys"))


def whole_select(table: TableFacts) -> Statement:
    """The count of all rows of a table, of those too that an entity's `where` leaves out."""
    return sa.select(sa.func.count()).select_from(named(table, "root"))


def twins_select(plan: EntityPlan, limit: int) -> Statement:
    """Keys that several of the rows that take part have, and how many."""
    root = named(plan.table, "root")
    key, many = key_of(plan, root), sa.func.count()
    conditions = [*with_key(plan, root), *where_of(root, plan.where)]
    return (
        sa.select(*key, many)
        .select_from(root)
        .where(*conditions)
        .group_by(*key)
        .having(many > 1)
        .limit(limit)
    )


def computed_select(table: TableFacts, column: Column) -> Statement:
    """No rows, but all that the database says against the column's SQL."""
    plain = replace(
        table, columns=tuple(other for other in table.columns if other.sql is None or other == column)
    )
    return sa.select(named(plain, "root").c[column.real]).limit(0)


def no_rows_select(table: TableFacts) -> Statement:
    """Nothing, but all that the database says against reading the table."""
    return sa.select(sa.literal_column("1")).select_from(named(table, "root")).limit(0)


def sums_select(plan: EntityPlan, columns: Sequence[Column]) -> Statement:
    root = named(plan.table, "root")
    sums = (sa.func.sum(_addable(column_of(root, column.real))) for column in columns)
    return sa.select(*sums).select_from(root).where(*with_key(plan, root), *where_of(root, plan.where))


def _addable(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """PostgreSQL has no sum of an oid."""
    is_oid = isinstance(column.type, ColumnType) and column.type.declared == "oid"
    return sa.cast(column, sa.BigInteger()) if is_oid else exact(column)


def text_of(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """The column's text, compared by its bytes."""
    plain = Where("collates", sa.func.quote(column), sa.cast(column, sa.Text()).collate("C"))
    kind = kind_of(column)
    # MySQL's HEX rounds a number; and bytes that are no text would be cast to one of question marks.
    written = sa.cast(column, sa.CHAR()) if kind is None or kind.name in _WRITTEN else column
    return Where("compares in hex", plain, sa.func.hex(written))


_WRITTEN = frozenset({"integer", "number", "float", "boolean", "date", "time", "timestamp"})


def is_null(column: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the column holds NULL. MySQL's IS NULL takes a zero date of a column that is NOT NULL for it, too.

    Source: MySQL Reference Manual, "Comparison Functions and Operators", IS NULL.
    """
    return Where("zero date is NULL", column.is_(None), column.op("<=>", is_comparison=True)(sa.null()))


# ── The part of `model.edges.Source` that counts ──


class SqlTotals:
    """What is asked by one reading. Raises, from every method: SourceError, without values, parameters or passwords."""

    takes_rows = True

    _reading: Reading | InTransaction

    def count(self, plan: EntityPlan) -> int:
        """Rows that take part, by plain SQL; rows without a key among them."""
        return self.count_where(plan, ())

    def rows_about(self, plan: EntityPlan) -> int:
        """As `count`; where that takes too long, what the database expects. SQLite expects nothing."""
        try:
            return self.count(plan)
        except TooSlowError:
            if rows := self._rows_expected(plan):
                return rows
            raise

    def rows_expected(self, plan: EntityPlan) -> int:
        """By the database's own estimate; SQLite has none, and counts."""
        estimated = self._rows_expected(plan)
        return self.count(plan) if estimated is None else estimated

    def count_where(self, plan: EntityPlan, conditions: Conditions) -> int:
        """Rows that take part and fit `conditions` (as in `EntityPlan.where`), by plain SQL."""
        return int(self._first_row(plan, count_select(plan, conditions))[0])

    def rows_without_key(self, plan: EntityPlan) -> int:
        if not any(column.nullable for column in plan.key):
            return 0
        return int(self._first_row(plan, without_key_select(plan))[0])

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        """All three of one snapshot."""
        statements = (
            keys_select(plan, distinct=False),
            keys_select(plan),
            keys_select(plan, as_text=True),
        )

        def work(connection: Connection) -> KeyCounts:
            return KeyCounts(*(int(connection.execute(statement).scalar_one()) for statement in statements))

        return self._reading.read(entity_words(plan), work)

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        """Counted only where statistics say something."""

        def work(connection: Connection) -> RowsSeen:
            at_least = rows_at_least(connection, table)
            if at_least is None:
                return RowsSeen(0)
            return RowsSeen(int(connection.execute(whole_select(table)).scalar_one()), at_least)

        return self._reading.read(f"table {table.name}", work)

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        """Keys that several of the rows that take part have, as the source compares them, and how many rows."""
        rows = self._rows(entity_words(plan), twins_select(plan, at_most))
        return [(self._key_text(plan, row[:-1]), int(row[-1])) for row in rows]

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        """By column name, the sum over the rows that take part and have a key, by plain SQL; None where all is NULL."""
        if not columns:
            return {}
        row = self._first_row(plan, sums_select(plan, columns))
        return {column.name: value for column, value in zip(columns, row, strict=True)}

    def _rows_expected(self, plan: EntityPlan) -> int | None:
        statement = all_select(plan)
        return self._reading.read(entity_words(plan), lambda connection: rows_expected(connection, statement))

    def _first_row(self, plan: EntityPlan, statement: sa.Select[Any]) -> tuple[Any, ...]:
        return self._rows(entity_words(plan), statement)[0]

    def _rows(
        self, doing: str, statement: sa.Executable, params: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        return self._reading.read(doing, partial(first_rows, statement=statement, params=params))

    def _key_text(self, plan: EntityPlan, values: Sequence[Any]) -> SourceKey:
        try:
            return encode_key(values)
        except TypeError as error:
            what = f"{self._reading.place}: {entity_words(plan)}: {error}; name other columns in key:"
            raise SourceError(what) from None
