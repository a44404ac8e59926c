"""Figures of a source's tables, by plain SQL: rows, the least and the largest of numbers, children of one parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from migrator.mapping.capacity.collections import spread_of
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.capacity import FanOut, Spread
from migrator.mapping.model.facts import Captured, EntityPlan, JoinPlan, Lookup, SchemaFacts, TableFacts
from migrator.mapping.model.questions import Figures, NumberSpan, Wanted
from migrator.runtime.errors import SourceError
from migrator.source.sql.spelling import Speller
from migrator.source.workload.statements import Ask


def figures_of(ask: Ask, facts: SchemaFacts, wanted: Wanted, rows_exact: int) -> Figures:
    """What is wanted. A table of more than `rows_exact` rows is not read as a whole: of it only the key's numbers are known,
    and its rows as at least so many."""
    measuring = _Measuring(ask, facts, rows_exact)
    spans: dict[tuple[str, str], NumberSpan] = {}
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

    def spans(self, table: TableFacts, columns: Sequence[str]) -> dict[tuple[str, str], NumberSpan]:
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
            (table.name, name): NumberSpan(_whole(values[2 * place]), _whole(values[2 * place + 1]))
            for place, name in enumerate(columns)
        }

    def filled(self, table: TableFacts, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Those of the columns that are NULL in no row."""
        if not columns:
            return []
        counts = ", ".join(f"COUNT(*) - COUNT({self._column(table, name)})" for name in columns)
        nulls = self._first(f"SELECT {counts} FROM {self._table(table)} AS migrator_measured")
        return [(table.name, name) for name, number in zip(columns, nulls, strict=True) if not number]

    def total(self, table: TableFacts, column: str, by: Sequence[str]) -> NumberSpan:
        """The least and the largest sum of the column over rows that are alike in `by`, which bounds MIN and MAX too."""
        number = self._column(table, column)
        rows = f"FROM {self._table(table)} GROUP BY {self._columns(table, by)}"
        grouped = f"SELECT SUM({number}) AS total, MIN({number}) AS least {rows}"
        least, lowest, most = self._first(
            f"SELECT MIN(total), MIN(least), MAX(total) FROM ({grouped}) AS migrator_totals"
        )
        lows = [value for value in (_whole(least), _whole(lowest)) if value is not None]
        return NumberSpan(min(lows, default=None), _whole(most))

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


# ── How many rows of an entity one row of a table it reads is in, by plain SQL: what one change of that row rewrites ──

_CLIMB = "its rows are found by going up and down a tree"
_VIEW = "it stands behind a view"


def fan_outs(
    ask: Ask, dialect: str, plans: Sequence[EntityPlan], rows: Mapping[str, int], rows_exact: int
) -> list[FanOut]:
    """For each table that the plans read and each entity that reads it. `rows`: of each entity; the rows of one with more
    than `rows_exact` are not grouped.

    Raises: what the source raises, but where a statement takes longer than allowed.
    """
    by_name = {plan.entity.name: plan for plan in plans}
    counting = _Counting(ask, Speller("", dialect).quoted)
    made = []
    for captured in captured_tables(plans).values():
        for lookup in captured.lookups:
            plan = by_name[lookup.entity]
            if plan.changes and captured.table != plan.table:
                made.append(_uncounted(captured, lookup, _VIEW))
            elif lookup.is_root:
                own = not lookup.of_single
                made.append(FanOut(captured.name, lookup.entity, Spread(1, 1, 1), 1.0, own, captured.watched))
            elif lookup.climb is not None:
                made.append(_uncounted(captured, lookup, _CLIMB))
            elif rows[lookup.entity] > rows_exact:
                made.append(
                    _uncounted(captured, lookup, f"{lookup.entity} has more than {rows_exact:,} rows")
                )
            else:
                made.append(_counted(counting, captured, lookup, plan))
    return made


def _counted(counting: _Counting, captured: Captured, lookup: Lookup, plan: EntityPlan) -> FanOut:
    try:
        counted = counting.counted(captured.table, lookup, plan)
    except SourceError as error:
        return _uncounted(captured, lookup, str(error))
    mean = sum(roots * rows for roots, rows in counted) / (sum(rows for _, rows in counted) or 1.0)
    return FanOut(captured.name, lookup.entity, spread_of(counted), mean, False, captured.watched)


def _uncounted(captured: Captured, lookup: Lookup, why: str) -> FanOut:
    return FanOut(captured.name, lookup.entity, None, 0.0, False, captured.watched, why)


class _Counting(Struct, frozen=True):
    """Groups rows of an entity by what joins them to a table."""

    ask: Ask
    quoted: Callable[[str], str]

    def counted(self, table: TableFacts, lookup: Lookup, plan: EntityPlan) -> list[tuple[float, float]]:
        """(rows of the entity, how many rows of the table are in so many), of all rows of the table."""
        all_rows = int(self.ask(f"SELECT COUNT(*) FROM {self._table(table)}", {})[0][0])
        grouped = self._grouped(lookup, plan)
        select = f"SELECT roots, COUNT(*) FROM ({grouped}) AS migrator_fan_outs GROUP BY roots"
        counted = [(float(roots), float(rows)) for roots, rows in self.ask(select, {})]
        in_none = all_rows - sum(rows for _, rows in counted)
        return [*counted, (0.0, max(0.0, in_none))]

    def _grouped(self, lookup: Lookup, plan: EntityPlan) -> str:
        """Each group's number of the entity's rows."""
        collection = lookup.collection
        joins = plan.joins if collection is None else collection.joins
        start = plan.table if collection is None else collection.table
        text = f"{self._table(start)} AS {self._alias('')}"
        for join in _way(joins, lookup.parent):
            on = " AND ".join(
                f"{self._column(join.parent, theirs)} = {self._column(join.alias, own)}"
                for theirs, own in join.on
            )
            text += f" JOIN {self._table(join.table)} AS {self._alias(join.alias)} ON {on}"
        counted = "COUNT(*)"
        if collection is not None:
            # Several children of one row rewrite it once.
            links = [self._column("", own) for own, _ in collection.link]
            counted = f"COUNT(DISTINCT {self._together(links)})" if links else "1"
        columns = [self._column(lookup.parent, real) for real in lookup.columns]
        some = " AND ".join(f"{column} IS NOT NULL" for column in columns)
        return f"SELECT {counted} AS roots FROM {text} WHERE {some} GROUP BY {', '.join(columns)}"

    def _together(self, columns: Sequence[str]) -> str:
        """One value for several: MySQL alone counts several columns as they are."""
        return columns[0] if len(columns) == 1 else f"CONCAT({', '.join(_with_commas(columns))})"

    def _alias(self, alias: str) -> str:
        return self.quoted(f"migrator_{alias or 'root'}")

    def _column(self, alias: str, real: str) -> str:
        return f"{self._alias(alias)}.{self.quoted(real)}"

    def _table(self, table: TableFacts) -> str:
        return ".".join(map(self.quoted, filter(None, (table.schema, table.real))))


def _with_commas(columns: Sequence[str]) -> Iterator[str]:
    for number, column in enumerate(columns):
        yield from (["','"] if number else [])
        yield column


def _way(joins: Sequence[JoinPlan], alias: str) -> list[JoinPlan]:
    """The joins that lead to the alias, the first one first."""
    by_alias = {join.alias: join for join in joins}
    way: list[JoinPlan] = []
    while alias:
        way.insert(0, by_alias[alias])
        alias = by_alias[alias].parent
    return way
