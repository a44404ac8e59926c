"""Paging: reads an answer page by page; each side goes on after the last item or row that it returned."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from migrator.mapping.model.edges import ItemStore, Questions
from migrator.mapping.model.mapping import Pattern, Statement
from migrator.mapping.model.results import Request, Rows
from migrator.mapping.model.table import Item
from migrator.mapping.patterns.answers import answer_of
from migrator.mapping.patterns.cursors import Start, row_digest
from migrator.mapping.patterns.diff import as_text
from migrator.runtime.errors import SettingsError
from migrator.stages.patterns.question import Partition, PartitionQuery, Question, order_of, side_by_side

LARGEST_PAGE = 1_000
SLACK = 1_000
"""Rows that may be inserted before the last one given, with which it is still found again."""
DEEPEST = 100_000
"""Rows that SQL gives page by page at most: each page reads all those before it."""


class Place(Struct, frozen=True):
    """Where a page begins: `given` items or rows came before it; see Cursor for the others."""

    given: int = 0
    starts: tuple[Start, ...] = ()
    row: str = ""


class PageRows(Struct, frozen=True):
    """One page as rows of the pattern's attributes; `next` is None where there is no more."""

    rows: Rows
    next: Place | None


def refuse_unpaged(pattern: Pattern) -> None:
    """Raises: SettingsError for a pattern whose answer has no pages."""
    taken = {"cursor", "size"} & {param.name for param in pattern.params}
    why = ""
    if pattern.operation != "query" or pattern.near is not None:
        why = "it is no Query in the order of its keys"
    elif pattern.parts[0].name:
        why = "its answer has parts"
    elif taken:
        why = f"its own parameter '{min(taken)}' has the name of read_page's"
    if why:
        raise SettingsError(f"{pattern.name} cannot be read page by page: {why}; use read")


# ── the table ──


def table_page(
    question: Question, values: Mapping[str, Any], store: ItemStore, place: Place, size: int
) -> PageRows:
    """Raises: SettingsError where the parameters make no request; what the store raises."""
    request = question.requests.of(values)
    size = _within(size, request.limit, place)
    starts = place.starts or (None,) * len(request.sent)
    pager = _Pager(store, request, _names(question), size)
    begun = [pager.partition(number, start) for number, start in enumerate(starts)]
    side_by_side(Partition.read_page, begun)
    streams = [_numbered(number, partition) for number, partition in enumerate(begun)]
    order = order_of(request)
    merged = heapq.merge(*streams, key=lambda numbered: order(numbered[1]), reverse=request.descending)
    taken = list(islice(merged, size))
    has_more = next(merged, None) is not None
    rows = answer_of(question.mapping, question.pattern, [item for _, item in taken])[""]
    given = place.given + len(taken)
    if not has_more or (request.limit is not None and given >= request.limit):
        return PageRows(rows, None)
    last = {number: pager.position(item) for number, item in taken}
    ends = tuple(last.get(number, start) for number, start in enumerate(starts))
    return PageRows(rows, Place(given, ends))


class _Pager(Struct, frozen=True):
    store: ItemStore
    request: Request
    names: tuple[str, ...]
    size: int

    def partition(self, number: int, start: Start) -> Partition:
        query = self.request.sent[number]
        begins = None if start is None else self.store.start_after(query, start)
        # One item more than wanted shows whether there is another page.
        return Partition(self.store, PartitionQuery(self.request, query, self.size + 1, time.time(), begins))

    def position(self, item: Item) -> Item:
        return {name: item[name] for name in self.names}


def _names(question: Question) -> tuple[str, ...]:
    """Attributes that define an item's position: those of the table's key and of the index's."""
    table = question.mapping.table
    index = table.asked(question.pattern.index)
    assert index is not None
    return tuple(dict.fromkeys(attribute.name for attribute in (*table.key, *index.attributes)))


def _numbered(number: int, partition: Partition) -> Iterator[tuple[int, Item]]:
    return ((number, item) for item in partition.items())


def _within(size: int, limit: int | None, place: Place) -> int:
    return size if limit is None else min(size, max(limit - place.given, 0))


# ── SQL ──


def sql_page(
    question: Question, values: Mapping[str, Any], source: Questions, place: Place, size: int
) -> PageRows:
    """One page of SQL's answer. The statement has no pages: it is read anew up to the page's end, and the page begins after
    the last row given, wherever that stands by now; if it is gone, after as many rows as were given.

    Raises: SettingsError past DEEPEST rows; what the source raises.
    """
    if place.given + size > DEEPEST:
        raise SettingsError(
            f"{question.pattern.name}: SQL gives {DEEPEST:,} rows page by page; ask for a narrower range"
        )
    # Before the first page nothing can have been inserted.
    wanted = place.given + size + (SLACK if place.given else 0)
    rows = question.of_sql(values, _First(source, wanted)).parts[""]  # type: ignore[arg-type]
    begins = _behind(rows, place)
    page = rows[begins : begins + size]
    if not page or len(rows) <= begins + size:
        return PageRows(page, None)
    return PageRows(page, Place(place.given + len(page), row=row_digest(as_text(page[-1]))))


class _First(Struct, frozen=True):
    """The source, with a limit on the rows of each statement."""

    source: Questions
    at_most: int

    def query(self, statement: Statement, params: Mapping[str, Any], schema: str | None = None) -> Rows:
        return self.source.query(statement, params, schema, at_most=self.at_most)


def _behind(rows: Sequence[tuple[Any, ...]], place: Place) -> int:
    if not place.given:
        return 0
    equal_rows = [number for number, row in enumerate(rows) if row_digest(as_text(row)) == place.row]
    # Of several equal rows the one nearest to the former position.
    return min(equal_rows, key=lambda number: abs(number + 1 - place.given), default=place.given - 1) + 1
