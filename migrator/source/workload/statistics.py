"""Figures of a source's tables, by plain SQL: rows, minimum and maximum of numbers, children of one parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
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

FirstRows = Callable[[Sequence[str]], list[tuple[Any, ...]]]
TotalColumn = tuple[str, str, tuple[str, ...]]
FanOutColumns = tuple[str, tuple[str, ...]]


def figures_of(first_rows: FirstRows, facts: SchemaFacts, wanted: Wanted, rows_exact: int) -> Figures:
    """A table of more than `rows_exact` rows is not read as a whole: only its key's numbers are known, and a
    minimum of its rows.
    """
    measuring = _Measuring(first_rows, facts)
    rows = measuring.rows(rows_exact)
    small = {name for name, number in rows.items() if number <= rows_exact}
    return Figures(
        rows,
        measuring.spans(wanted.spans, small),
        measuring.totals([total for total in wanted.totals if total[0] in small]),
        measuring.fan_outs([fan_out for fan_out in wanted.fan_out if fan_out[0] in small]),
        frozenset(small),
        frozenset(measuring.filled({name: wanted.filled.get(name, ()) for name in sorted(small)})),
    )


class _Measuring:
    def __init__(self, first_rows: FirstRows, facts: SchemaFacts) -> None:
        self._first_rows = first_rows
        self._tables = {name: facts.tables[name] for name in sorted(facts.tables)}
        self._quoted = Speller("", facts.dialect).quoted

    def rows(self, rows_exact: int) -> dict[str, int]:
        some = (
            f"SELECT 1 AS one_row FROM {self._table(name)} LIMIT {rows_exact + 1}" for name in self._tables
        )
        counts = [f"SELECT COUNT(*) FROM ({at_most}) AS migrator_first_rows" for at_most in some]
        return {name: int(row[0]) for name, row in zip(self._tables, self._first_rows(counts), strict=True)}

    def spans(
        self, wanted: Mapping[str, Sequence[str]], small: Set[str]
    ) -> dict[tuple[str, str], NumberSpan]:
        chosen = {
            name: [
                column
                for column in wanted.get(name, ())
                if name in small or table.primary_key[:1] == (column,)
            ]
            for name, table in self._tables.items()
        }
        chosen = {name: columns for name, columns in chosen.items() if columns}
        selects = [self._select(name, "MIN({0}), MAX({0})", columns) for name, columns in chosen.items()]
        return {
            (name, column): NumberSpan(_whole(row[2 * place]), _whole(row[2 * place + 1]))
            for (name, columns), row in zip(chosen.items(), self._first_rows(selects), strict=True)
            for place, column in enumerate(columns)
        }

    def filled(self, wanted: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        chosen = {name: columns for name, columns in wanted.items() if columns}
        selects = [self._select(name, "COUNT(*) - COUNT({0})", columns) for name, columns in chosen.items()]
        return [
            (name, column)
            for (name, columns), row in zip(chosen.items(), self._first_rows(selects), strict=True)
            for column, nulls in zip(columns, row, strict=True)
            if not nulls
        ]

    def totals(self, wanted: Sequence[TotalColumn]) -> dict[TotalColumn, NumberSpan]:
        values = self._first_rows([self._total(*total) for total in wanted])
        spans = {}
        for total, (least, lowest, most) in zip(wanted, values, strict=True):
            lows = [value for value in (_whole(least), _whole(lowest)) if value is not None]
            spans[total] = NumberSpan(min(lows, default=None), _whole(most))
        return spans

    def _total(self, name: str, column: str, by: Sequence[str]) -> str:
        number = self._column(name, column)
        rows = f"FROM {self._table(name)} GROUP BY {self._columns(name, by)}"
        grouped = f"SELECT SUM({number}) AS total, MIN({number}) AS least {rows}"
        return f"SELECT MIN(total), MIN(least), MAX(total) FROM ({grouped}) AS migrator_totals"

    def fan_outs(self, wanted: Sequence[FanOutColumns]) -> dict[FanOutColumns, int]:
        rows = self._first_rows([self._fan_out(*columns) for columns in wanted])
        return {columns: int(row[0] or 0) for columns, row in zip(wanted, rows, strict=True)}

    def _fan_out(self, name: str, columns: Sequence[str]) -> str:
        some = " AND ".join(f"{self._column(name, column)} IS NOT NULL" for column in columns)
        by = self._columns(name, columns)
        grouped = f"SELECT COUNT(*) AS children FROM {self._table(name)} WHERE {some} GROUP BY {by}"
        return f"SELECT MAX(children) FROM ({grouped}) AS migrator_fan_outs"

    def _select(self, name: str, figure: str, columns: Sequence[str]) -> str:
        figures = ", ".join(figure.replace("{0}", self._column(name, column)) for column in columns)
        return f"SELECT {figures} FROM {self._table(name)} AS migrator_measured"

    def _columns(self, name: str, columns: Sequence[str]) -> str:
        return ", ".join(self._column(name, column) for column in columns)

    def _column(self, name: str, column: str) -> str:
        facts = self._tables[name].column(column)
        return self._quoted(column if facts is None else facts.real)

    def _table(self, name: str) -> str:
        return self._quoted(self._tables[name].real)


def _whole(value: Any) -> int | None:
    if value is None or isinstance(value, (str, bytes)):
        return None
    number = Decimal(str(value))
    return int(number.to_integral_value(rounding="ROUND_UP")) if number.is_finite() else None


# ── Number of an entity's rows that one row of a table is in, by plain SQL: one change of it rewrites them ──

_CLIMB = "its rows are found by going up and down a tree"
_VIEW = "it stands behind a view"


def fan_outs(
    ask: Ask, dialect: str, plans: Sequence[EntityPlan], rows: Mapping[str, int], rows_exact: int
) -> list[FanOut]:
    """Fan-outs of each table that the plans read, by entity.

    `rows`: of each entity; an entity with more than `rows_exact` is not grouped.
    Raises: the source's errors, except for a statement that exceeds its time limit.
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
    """Groups an entity's rows by the values that join them to a table."""

    ask: Ask
    quoted: Callable[[str], str]

    def counted(self, table: TableFacts, lookup: Lookup, plan: EntityPlan) -> list[tuple[float, float]]:
        """Return (rows of the entity, number of the table's rows with so many) for the whole table."""
        all_rows = int(self.ask(f"SELECT COUNT(*) FROM {self._table(table)}", {})[0][0])
        grouped = self._grouped(lookup, plan)
        select = f"SELECT roots, COUNT(*) FROM ({grouped}) AS migrator_fan_outs GROUP BY roots"
        counted = [(float(roots), float(rows)) for roots, rows in self.ask(select, {})]
        in_none = all_rows - sum(rows for _, rows in counted)
        return [*counted, (0.0, max(0.0, in_none))]

    def _grouped(self, lookup: Lookup, plan: EntityPlan) -> str:
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
    by_alias = {join.alias: join for join in joins}
    way: list[JoinPlan] = []
    while alias:
        way.insert(0, by_alias[alias])
        alias = by_alias[alias].parent
    return way
