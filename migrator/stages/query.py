"""One access pattern answered by both sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.errors import SettingsError
from migrator.facts import EntityPlan
from migrator.mapping.answers import readers_for
from migrator.mapping.costs import entry_bytes
from migrator.mapping.diff import diffs
from migrator.mapping.patterns import answer_of, plain_rows, schema_of
from migrator.mapping.requests import Request, Requests
from migrator.mapping.row_key import row_key
from migrator.mapping.rules import ruled
from migrator.mapping.sizes import read_units
from migrator.model import Mapping as MappingModel
from migrator.model import Part, Pattern, TableDesign
from migrator.phase import Side
from migrator.ports import ItemStore, QueryPage, Questions
from migrator.results import Answer, PartAnswer, Rows, Took
from migrator.stages.fetch import fetch


def ask(
    mapping: MappingModel,
    pattern: Pattern,
    params: Mapping[str, Any],
    source: Questions,
    store: ItemStore,
    *,
    plans: Sequence[EntityPlan] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> Answer:
    """The pattern's answer from the table and from SQL, compared part by part. `clock` gives seconds.

    `plans`: of all entities, so that SQL's values are compared by the declared types of their columns.

    Raises: SettingsError where the parameters make no request.
    """
    question = Question(mapping, pattern, plans, clock)
    metered = ReadMeter(store)
    table = question.of_table(params, metered)  # type: ignore[arg-type]
    sql = question.of_sql(params, source)
    return Answer(
        pattern=pattern,
        request=table.request,
        parts=question.compared(table.parts, sql.parts),
        table=table.took,
        sql=sql.took,
        read_units=metered.units(mapping.table),
        reported_units=table.reported_units,
        dropped=metered.dropped,
    )


class ReadMeter:
    """The table's reads, with what was asked and what came kept until it is added up. Safe for many threads."""

    def __init__(self, store: ItemStore) -> None:
        self._store = store
        self.read: list[tuple[Mapping[str, Any], QueryPage]] = []

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        return self._kept(request, self._store.query(request, start))

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        return self._kept(request, self._store.get_item(request))

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        return self._kept(request, self._store.batch_get(request))

    def units(self, table: TableDesign) -> float:
        """The read units that DynamoDB takes for items of these sizes."""
        return sum(_read_units(request, page, table) for request, page in self.read)

    @property
    def dropped(self) -> int:
        return sum(page.dropped for _, page in self.read)

    def _kept(self, request: Mapping[str, Any], page: QueryPage) -> QueryPage:
        self.read.append((request, page))
        return page


def _read_units(request: Mapping[str, Any], page: QueryPage, table: TableDesign) -> float:
    """Of a page of a Query the sum of the sizes is rounded up, of a batch each item by itself, found or not.

    In an index an item is as large as what is projected. What a filter dropped is as large as the rest.
    Source: AWS Developer Guide, "DynamoDB read and write operations".
    """
    index = table.asked(request.get("IndexName"))
    assert index is not None
    sizes = [entry_bytes(one, index, table) or 0 for one in page.items]
    sums = [sum(sizes) + sum(sizes) * page.dropped // max(1, len(sizes))]
    if "Keys" in request:
        sums = sizes + [0] * (len(request["Keys"]) - len(sizes))
    consistent = bool(request.get("ConsistentRead"))
    return sum(read_units(size, consistent=consistent) for size in sums)


@dataclass(frozen=True)
class SqlSide:
    """SQL's answer: rows of each part as the items would say them."""

    parts: Mapping[str, Rows]
    took: Took


@dataclass(frozen=True)
class TableSide:
    """The table's answer: of each part's items what the pattern returns."""

    parts: Mapping[str, Rows]
    took: Took
    request: Request
    reported_units: float


class Question:
    """One access pattern, to be asked of either side with any parameters. Safe to share between threads."""

    def __init__(
        self,
        mapping: MappingModel,
        pattern: Pattern,
        plans: Sequence[EntityPlan] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.mapping = mapping
        self.pattern = pattern
        self.clock = clock
        self.requests = Requests(mapping, pattern)
        self.readers = {part.name: readers_for(mapping, plans, part) for part in pattern.parts}
        self.keys = {part.name: row_key(mapping, plans, pattern, part) for part in pattern.parts}

    def refuse_unfit(self, params: Mapping[str, Any]) -> None:
        """Whoever answers: parameters that make no request are refused, so that a move of phase refuses nothing new.

        Raises: SettingsError.
        """
        self.requests.refuse_unfit(params)
        schema_of(self.mapping, self.pattern, params)

    def answer(
        self, side: Side, params: Mapping[str, Any], source: Questions, store: ItemStore
    ) -> Mapping[str, Rows]:
        """Rows by part, from one side; the other is asked nothing. Raises: what the side raises."""
        return self.of_table(params, store).parts if side == "table" else self.of_sql(params, source).parts

    def of_table(self, params: Mapping[str, Any], store: ItemStore) -> TableSide:
        """Raises: SettingsError where the parameters make no request; what the store raises."""
        request = self.requests.of(params)
        began = self.clock()
        fetched = fetch(store, request)
        took = Took(fetched.round_trips, _ms(self.clock() - began))
        found = answer_of(self.mapping, self.pattern, fetched.items)
        return TableSide(found, took, request, fetched.read_units)

    def of_sql(self, params: Mapping[str, Any], source: Questions) -> SqlSide:
        """Raises: SettingsError for a statement of other columns than the pattern returns; what the source raises."""
        pattern = self.pattern
        schema = schema_of(self.mapping, pattern, params)
        began = self.clock()
        answered = {part.name: source.query(pattern.sql[part.name], params, schema) for part in pattern.parts}
        took = Took(len(pattern.parts), _ms(self.clock() - began))
        rows = {part.name: self._rows(part, answered[part.name]) for part in pattern.parts}
        return SqlSide(rows, took)

    def compared(self, items: Mapping[str, Rows], rows: Mapping[str, Rows]) -> tuple[PartAnswer, ...]:
        """Both answers under the pattern's rules of comparison, part by part."""
        return tuple(
            compared(self.pattern, part, items[part.name], rows[part.name], self.keys[part.name])
            for part in self.pattern.parts
        )

    def _rows(self, part: Part, answered: Rows) -> Rows:
        if any(len(row) != len(part.attributes) for row in answered):
            where = f"{self.pattern.name} {part.name}".strip()
            given, wanted = len(answered[0]), len(part.attributes)
            what = f"its SQL gives {given} column(s), and it returns {wanted} attributes: {', '.join(part.attributes)}"
            raise SettingsError(f"{where}: {what}; select one column for each, in their order")
        return plain_rows(part, answered, self.readers[part.name])


def compared(
    pattern: Pattern, part: Part, items: Rows, rows: Rows, key: Sequence[str] | None = None
) -> PartAnswer:
    """One part of both answers under the pattern's rules. `key`: as row_key gives it."""
    several = part.one and max(len(items), len(rows)) > 1
    laid = ruled(part.attributes, rows, items, pattern.compare)
    found = diffs(
        laid.attributes,
        laid.rows,
        laid.items,
        ordered=pattern.order == "exact",
        tolerances=pattern.compare.tolerance,
        key=key,
    )
    return PartAnswer(part, items, rows, not found and not several, several, tuple(found), laid.attributes)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
