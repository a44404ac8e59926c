"""Runs an access pattern against both sides: its SQL, its DynamoDB requests, and the pages they return."""

from __future__ import annotations

import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import islice
from typing import Any

from migrator.mapping.items.wire import entry_bytes, read_units
from migrator.mapping.model.edges import AT_ONCE, ItemStore, QueryCall, QueryPage, Questions
from migrator.mapping.model.evidence import Side
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Part, Pattern
from migrator.mapping.model.results import Answer, PartAnswer, Request, Rows, SideAnswer, TableAnswer
from migrator.mapping.model.table import OWN_TYPES, QUERY_LIMIT, Item, ItemKey, TableDesign
from migrator.mapping.patterns.answers import Designs, answer_of, kinds_for, nearest, plain_rows, readers_for
from migrator.mapping.patterns.diff import diffs, row_key, ruled
from migrator.mapping.patterns.param_sources import typed_parts
from migrator.mapping.patterns.params import sample_params, schema_of
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.errors import SettingsError, amount

# ── The items that answer a request: pages followed, partitions queried in parallel and merged ──


def fetch(store: ItemStore, request: Request, now_s: float | None = None) -> QueryPage:
    """One page of all items of the answer in its order, up to the request's limit, without our own and expired items.

    `now_s`: time of expiry, in seconds since 1970; by default this machine's clock.
    Raises: StoppedError, TargetError as the store does.
    """
    return _WAYS[request.operation](store, request, time.time() if now_s is None else now_s)


def _get(store: ItemStore, request: Request, now_s: float) -> QueryPage:
    # Of the copies of an item each is read as often as the others.
    pages = [store.get_item(random.choice(request.sent))] if request.sent else []
    return _fetched(pages, shown([item for page in pages for item in page.items], request, now_s))


def _batch_get(store: ItemStore, request: Request, now_s: float) -> QueryPage:
    pages = list(side_by_side(store.batch_get, request.sent))
    items = shown([item for page in pages for item in page.items], request, now_s)
    by_key = {_key(item, request): item for item in items}
    wanted_keys = [tuple(key[name] for name in request.key) for sent in request.sent for key in sent["Keys"]]
    return _fetched(pages, [by_key[key] for key in wanted_keys if key in by_key])


def _query(store: ItemStore, request: Request, now_s: float) -> QueryPage:
    # An answer sorted by distance must be read to its end, regardless of the limit.
    limit = request.limit if request.near is None else None
    partitions = [Partition(store, request, query, limit, now_s) for query in request.sent]
    # Merging needs the first page of every partition.
    side_by_side(Partition.read_all if limit is None else Partition.read_page, partitions)
    streams = [partition.items() for partition in partitions]
    merged = heapq.merge(*streams, key=order_of(request), reverse=request.descending)
    items = list(islice(_once(merged, request), limit))
    if request.near is not None:
        items = nearest(items, request.near, request.key)[: request.limit]
    return _fetched(partitions, items)


_WAYS: dict[str, Callable[[ItemStore, Request, float], QueryPage]] = {
    "get": _get,
    "batch_get": _batch_get,
    "query": _query,
}


class Partition:
    """One Query of a request, whose pages are read when needed. Not thread-safe.

    `limit` None: all items; `start` None: from the beginning.
    `now_s`: time of expiry.
    """

    def __init__(
        self,
        store: ItemStore,
        request: Request,
        query: Mapping[str, Any],
        limit: int | None,
        now_s: float,
        start: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.request = request
        self.query = query
        self.limit = limit
        self.now_s = now_s
        self.requests = 0
        self.read_units = 0.0
        self._ready: deque[Item] = deque()
        self._found = 0
        self._filters = "FilterExpression" in query
        self._start = start
        self._done = False

    def items(self) -> Iterator[Item]:
        while self._ready or not self._done:
            if self._ready:
                yield self._ready.popleft()
            else:
                self.read_page()

    def read_all(self) -> None:
        while not self._done:
            self.read_page()

    def read_page(self) -> None:
        page = self.store.query(self._sized(), self._start)
        items = shown(page.items, self.request, self.now_s)
        # One hidden item may mean thousands: pages grow with a filter.
        self._filters = self._filters or len(items) < len(page.items)
        self._ready.extend(items)
        self._found += len(items)
        self.requests += page.requests
        self.read_units += page.read_units
        self._start = page.next_start
        self._done = page.next_start is None

    def _sized(self) -> Mapping[str, Any]:
        """The query, limited to the missing items.

        DynamoDB counts items before it filters them. With a filter each page doubles: no unneeded 1 MB page
        is paid for, and not every item costs a request.
        """
        if self.limit is None:
            return self.query
        if self._filters:
            return {**self.query, "Limit": min(self.limit * 2**self.requests, QUERY_LIMIT)}
        return {**self.query, "Limit": max(self.limit - self._found, 0) or self.limit}


def side_by_side(work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
    waiting = list(pieces)
    if len(waiting) < 2:
        return [work(piece) for piece in waiting]
    with ThreadPoolExecutor(min(AT_ONCE, len(waiting))) as executor:
        return list(executor.map(work, waiting))


def order_of(request: Request) -> Callable[[Item], tuple[Any, ...]]:
    """Sort key for merging items. Python's code point order of texts equals their UTF-8 byte order."""
    return lambda item: tuple(item[name] for name in request.sort)


def _once(items: Iterable[Item], request: Request) -> Iterator[Item]:
    """Drop duplicates: an item that moves to another partition meanwhile could be read in both."""
    seen: set[ItemKey] = set()
    for item in items:
        key = _key(item, request)
        if key not in seen:
            seen.add(key)
            yield item


def _key(item: Item, request: Request) -> ItemKey:
    return tuple(item[name] for name in request.key)


def shown(items: list[Item], request: Request, now_s: float) -> list[Item]:
    """Leave out tombstones, the control item, and expired items."""
    own, ttl = request.type_attribute, request.ttl_attribute
    return [item for item in items if item.get(own) not in OWN_TYPES and not _expired(item, ttl, now_s)]


def _expired(item: Item, ttl: str | None, now_s: float) -> bool:
    expiry = item.get(ttl) if ttl else None
    return isinstance(expiry, (int, Decimal)) and not isinstance(expiry, bool) and expiry <= now_s


def _fetched(parts: Sequence[QueryPage | Partition], items: list[Item]) -> QueryPage:
    read_units, requests = sum(part.read_units for part in parts), sum(part.requests for part in parts)
    return QueryPage(items, read_units=read_units, requests=requests)


# ── The answers of both sides to one access pattern ──


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
    """The pattern's answers from table and SQL, compared part by part. `clock`: seconds.

    `plans`: of all entities, so that SQL's values are compared by their columns' declared types.
    Raises: SettingsError if the parameters make no request.
    """
    question = Question(mapping, pattern, Designs(plans), clock)
    metered = ReadMeter(store)
    table = question.of_table(params, metered)  # type: ignore[arg-type]
    sql = question.of_sql(params, source)
    return Answer(
        pattern=pattern,
        parts=question.compared(table.rows, sql.rows),
        table=table,
        sql=sql,
        read_units=metered.units(mapping.table),
        dropped=metered.dropped,
    )


class ReadMeter:
    """Item store that records requests and pages, to add up read units. Thread-safe."""

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
        return sum(_read_units(request, page, table) for request, page in self.read)

    @property
    def dropped(self) -> int:
        return sum(page.dropped for _, page in self.read)

    def _kept(self, request: Mapping[str, Any], page: QueryPage) -> QueryPage:
        self.read.append((request, page))
        return page


def _read_units(request: Mapping[str, Any], page: QueryPage, table: TableDesign) -> float:
    """Read units of a page. For a Query the sum of sizes is rounded up, for a batch each item, found or not.

    In an index an item is as large as its projection. Filtered items count as average-sized.
    Source: AWS Developer Guide, "DynamoDB read and write operations".
    """
    index = table.asked(request.get("IndexName"))
    assert index is not None
    sizes = [entry_bytes(item, index, table) or 0 for item in page.items]
    sums = [sum(sizes) + sum(sizes) * page.dropped // max(1, len(sizes))]
    if "Keys" in request:
        sums = sizes + [0] * (len(request["Keys"]) - len(sizes))
    consistent = bool(request.get("ConsistentRead"))
    return sum(read_units(size, consistent=consistent) for size in sums)


class Question:
    """An access pattern, to be run against either side. Thread-safe."""

    def __init__(
        self,
        mapping: MappingModel,
        pattern: Pattern,
        designs: Designs,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.mapping = mapping
        self.pattern = pattern
        self.clock = clock
        self.requests = Requests(mapping, pattern)
        parts = typed_parts(mapping, pattern)
        self.readers = {part.name: readers_for(mapping, designs, part) for part in parts}
        self.kinds = {part.name: kinds_for(designs, part) for part in parts}
        self.keys = {part.name: row_key(mapping, designs, pattern, part) for part in parts}

    def refuse_unfit(self, params: Mapping[str, Any]) -> None:
        """Raises: SettingsError for invalid parameters on both sides, so that a move of phase refuses nothing new."""
        self.requests.refuse_unfit(params)
        schema_of(self.mapping, self.pattern, params)

    def answer(
        self, side: Side, params: Mapping[str, Any], source: Questions, store: ItemStore
    ) -> Mapping[str, Rows]:
        return (self.of_table(params, store) if side == "table" else self.of_sql(params, source)).rows

    def of_table(self, params: Mapping[str, Any], store: ItemStore) -> TableAnswer:
        request = self.requests.of(params)
        began = self.clock()
        fetched = fetch(store, request)
        ms = _ms(self.clock() - began)
        rows = answer_of(self.mapping, self.pattern, fetched.items)
        return TableAnswer(rows, fetched.requests, ms, request, fetched.read_units)

    def of_sql(
        self, params: Mapping[str, Any], source: Questions, *, at_most: int | None = None
    ) -> SideAnswer:
        """`at_most`: as of `Questions.query`.

        Raises: SettingsError if the statement returns other columns than the pattern; the errors of the source.
        """
        pattern = self.pattern
        schema = schema_of(self.mapping, pattern, params)
        began = self.clock()
        answered = {
            part.name: source.query(pattern.statements[part.name], params, schema, at_most=at_most)
            for part in pattern.parts
        }
        ms = _ms(self.clock() - began)
        rows = {part.name: self._rows(part, answered[part.name]) for part in pattern.parts}
        return SideAnswer(rows, len(pattern.parts), ms)

    def compared(self, items: Mapping[str, Rows], rows: Mapping[str, Rows]) -> tuple[PartAnswer, ...]:
        return tuple(
            compared(self.pattern, part, items[part.name], rows[part.name], self.keys[part.name])
            for part in self.pattern.parts
        )

    def _rows(self, part: Part, answered: Rows) -> Rows:
        given, wanted = len(answered[0]) if answered else 0, len(part.attributes)
        if answered and given != wanted:
            where = f"{self.pattern.name} {part.name}".strip()
            returned = f"{amount(wanted, 'attribute')}: {', '.join(part.attributes)}"
            what = f"its SQL gives {amount(given, 'column')}, and it returns {returned}"
            raise SettingsError(f"{where}: {what}; select one column for each, in their order")
        return plain_rows(part, answered, self.readers[part.name])


def compared(
    pattern: Pattern, part: Part, items: Rows, rows: Rows, key: Sequence[str] | None = None
) -> PartAnswer:
    several = part.one and max(len(items), len(rows)) > 1
    attributes, of_rows, of_items = ruled(part.attributes, rows, items, pattern.compare)
    differences = diffs(
        attributes,
        of_rows,
        of_items,
        ordered=pattern.order == "exact",
        tolerances=pattern.compare.tolerance,
        key=key,
    )
    return PartAnswer(
        part, items, rows, not differences and not several, several, tuple(differences), attributes
    )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


# ── The SQL of access patterns, checked by the source's EXPLAIN ──


def statement_faults(source: Questions, mapping: MappingModel) -> dict[tuple[str, str], str]:
    """Faults of statements that the source refuses, by pattern and part. It only plans them; nothing is run."""
    asked = [
        (pattern.name, part, QueryCall(statement, sample_params(pattern), schema))
        for pattern in mapping.patterns.values()
        for part, statement in pattern.statements.items()
        for schema in _schemas(mapping, pattern)
    ]
    first: dict[tuple[str, str], str] = {}
    faults = source.query_faults([call for _, _, call in asked])
    for (pattern_name, part, _), what in zip(asked, faults, strict=True):
        if what:
            first.setdefault((pattern_name, part), what)
    return first


def _schemas(mapping: MappingModel, pattern: Pattern) -> tuple[str | None, ...]:
    """Schemas that the pattern's SQL may read; (None,) is the default one."""
    return (None,) if pattern.schema is None else mapping.schemas
