"""How many rows of an entity one row of a table it reads is in, by plain SQL: what one change of that row rewrites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.mapping.capacity.collections import spread_of
from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.capacity import FanOut, Spread
from migrator.mapping.model.facts import Captured, EntityPlan, JoinPlan, Lookup, TableFacts
from migrator.runtime.errors import SourceError
from migrator.source.sql.spelling import Speller
from migrator.source.workload.statements import Ask

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
                made.append(
                    FanOut(captured.name, lookup.entity, Spread(1, 1, 1), 1.0, True, captured.watched)
                )
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
            counted = f"COUNT(DISTINCT {self._together(links)})"
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
