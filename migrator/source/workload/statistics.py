"""Figures of a source's tables, by plain SQL: rows, the least and the largest of numbers, children of one parent."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import Figures, Span, Wanted
from migrator.source.sql.spelling import Speller
from migrator.source.workload.statements import Ask


def figures_of(ask: Ask, facts: SchemaFacts, wanted: Wanted, rows_exact: int) -> Figures:
    """What is wanted. A table of more than `rows_exact` rows is not read as a whole: of it only the key's numbers are known,
    and its rows as at least so many."""
    measuring = _Measuring(ask, facts, rows_exact)
    spans: dict[tuple[str, str], Span] = {}
    for name in sorted(facts.tables):
        spans |= measuring.spans(facts.tables[name], wanted.spans.get(name, ()))
    small = measuring.exact
    totals = {
        total: measuring.total(facts.tables[total[0]], total[1], total[2])
        for total in wanted.totals
        if total[0] in small
    }
    fan_out = {
        (name, columns): measuring.fan_out(facts.tables[name], columns)
        for name, columns in wanted.fan_out
        if name in small
    }
    filled = {
        column
        for name in small
        for column in measuring.filled(facts.tables[name], wanted.filled.get(name, ()))
    }
    return Figures(measuring.rows, spans, totals, fan_out, frozenset(small), frozenset(filled))


class _Measuring:
    """Asks for one figure after another."""

    def __init__(self, ask: Ask, facts: SchemaFacts, rows_exact: int) -> None:
        self._ask = ask
        self.quoted = Speller("", facts.dialect).quoted
        self._rows_exact = rows_exact
        self.rows: dict[str, int] = {}
        self.exact: set[str] = set()

    def spans(self, table: TableFacts, columns: Sequence[str]) -> dict[tuple[str, str], Span]:
        """Of these columns; and counts the table."""
        at_most = f"SELECT 1 AS one_row FROM {self._table(table)} LIMIT {self._rows_exact + 1}"
        rows = int(self._first(f"SELECT COUNT(*) FROM ({at_most}) AS migrator_first_rows")[0])
        self.rows[table.name] = rows
        if rows <= self._rows_exact:
            self.exact.add(table.name)
        else:
            columns = [name for name in columns if table.primary_key[:1] == (name,)]
        if not columns:
            return {}
        sides = ", ".join(
            f"MIN({self._column(table, name)}), MAX({self._column(table, name)})" for name in columns
        )
        values = self._first(f"SELECT {sides} FROM {self._table(table)} AS migrator_measured")
        return {
            (table.name, name): Span(_whole(values[2 * place]), _whole(values[2 * place + 1]))
            for place, name in enumerate(columns)
        }

    def filled(self, table: TableFacts, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Those of the columns that are NULL in no row."""
        if not columns:
            return []
        counts = ", ".join(f"COUNT(*) - COUNT({self._column(table, name)})" for name in columns)
        nulls = self._first(f"SELECT {counts} FROM {self._table(table)} AS migrator_measured")
        return [(table.name, name) for name, number in zip(columns, nulls, strict=True) if not number]

    def total(self, table: TableFacts, column: str, by: Sequence[str]) -> Span:
        """The least and the largest sum of the column over rows that are alike in `by`, which bounds MIN and MAX too."""
        number = self._column(table, column)
        rows = f"FROM {self._table(table)} GROUP BY {self._columns(table, by)}"
        grouped = f"SELECT SUM({number}) AS total, MIN({number}) AS least {rows}"
        least, lowest, most = self._first(
            f"SELECT MIN(total), MIN(least), MAX(total) FROM ({grouped}) AS migrator_totals"
        )
        lows = [value for value in (_whole(least), _whole(lowest)) if value is not None]
        return Span(min(lows, default=None), _whole(most))

    def fan_out(self, table: TableFacts, columns: Sequence[str]) -> int:
        names = self._columns(table, columns)
        some = " AND ".join(f"{self._column(table, name)} IS NOT NULL" for name in columns)
        grouped = f"SELECT COUNT(*) AS children FROM {self._table(table)} WHERE {some} GROUP BY {names}"
        return int(self._first(f"SELECT MAX(children) FROM ({grouped}) AS migrator_fan_outs")[0] or 0)

    def _first(self, sql: str) -> tuple[Any, ...]:
        return tuple(self._ask(sql, {})[0])

    def _columns(self, table: TableFacts, names: Sequence[str]) -> str:
        return ", ".join(self._column(table, name) for name in names)

    def _column(self, table: TableFacts, name: str) -> str:
        column = table.column(name)
        return self.quoted(name if column is None else column.real)

    def _table(self, table: TableFacts) -> str:
        return self.quoted(table.real)


def _whole(value: Any) -> int | None:
    """The number without its decimals, away from nothing; None where there is none, or it is no number."""
    if value is None or isinstance(value, (str, bytes)):
        return None
    number = Decimal(str(value))
    return int(number.to_integral_value(rounding="ROUND_UP")) if number.is_finite() else None
