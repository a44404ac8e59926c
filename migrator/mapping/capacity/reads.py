"""What calls of access patterns read: the items of each are counted in one stream of all items; pages and read units."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from migrator.mapping.items.wire import read_units
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Operator, Pattern
from migrator.mapping.model.table import Item, ItemKey
from migrator.mapping.patterns.requests import KeyTest, Requests

PAGE_BYTES = 1024 * 1024
"""Of one page of a Query. Source: AWS Developer Guide, "Query operations", pagination."""
KEPT = 20_000
"""Items that a query with a limit behind a filter is followed for."""

_HOLDS: dict[Operator, Callable[..., bool]] = {
    "equal": lambda value, wanted: bool(value == wanted),
    "begins_with": lambda value, begin: bool(value.startswith(begin)),
    "between": lambda value, low, high: bool(low <= value <= high),
    "ge": lambda value, low: bool(value >= low),
    "gt": lambda value, low: bool(value > low),
    "le": lambda value, high: bool(value <= high),
    "lt": lambda value, high: bool(value < high),
}


class CallReads(Struct, frozen=True):
    """What one call reads. `pages`: requests that are paid for."""

    items: int = 0
    bytes: int = 0
    pages: int = 0
    units: float = 0.0

    def __add__(self, other: CallReads) -> CallReads:
        return CallReads(
            self.items + other.items,
            self.bytes + other.bytes,
            self.pages + other.pages,
            self.units + other.units,
        )


class Reads:
    """Calls that wait for the items that they would read; `see` is given every item of the table."""

    def __init__(self, mapping: MappingModel) -> None:
        self._mapping = mapping
        self._table = mapping.table
        self._gets: dict[ItemKey, list[_Get]] = {}
        self._queries: dict[str, dict[tuple[Any, ...], list[_Query]]] = {}
        self._partitions = {
            name: tuple(attribute.name for attribute in index.partition)
            for name in ("", *(index.name for index in self._table.indexes))
            if (index := self._table.asked(name or None)) is not None
        }

    def call(self, pattern: Pattern, requests: Requests, params: Mapping[str, Any]) -> Call:
        """One call of the pattern, whose reads are known once all items were seen.

        Raises: SettingsError where the parameters make no request.
        """
        if pattern.operation == "query":
            return Call([self._query(pattern, parts) for parts in _one_by_one(pattern, requests, params)])
        sent = requests.of(params).sent
        keys = [request["Key"] for request in sent] if pattern.operation == "get" else []
        keys += [key for request in sent for key in request.get("Keys", ())]
        return Call([self._get(pattern, self._table.key_of(key)) for key in keys], pages=len(sent))

    def see(self, item: Item, sizes: Mapping[str, int]) -> None:
        """`sizes`: bytes of the item in the table ('') and of its entry in each index that it is in."""
        for get in self._gets.get(self._table.key_of(item), ()):
            get.size_bytes = sizes[""]
        for index, waiting in self._queries.items():
            if index in sizes:
                partition = tuple(item[name] for name in self._partitions[index])
                for query in waiting.get(partition, ()):
                    query.see(item, sizes[index])

    def _get(self, pattern: Pattern, key: ItemKey) -> _Get:
        get = _Get(pattern.consistent)
        self._gets.setdefault(key, []).append(get)
        return get

    def _query(self, pattern: Pattern, query: _Query) -> _Query:
        waiting = self._queries.setdefault(pattern.index or "", {})
        waiting.setdefault(query.partition, []).append(query)
        index = self._table.asked(pattern.index)
        assert index is not None
        query.order = tuple(attribute.name for attribute in index.sort)
        return query


def _one_by_one(pattern: Pattern, requests: Requests, params: Mapping[str, Any]) -> Iterator[_Query]:
    parts = requests.tests(dict(params))
    # What is sorted by distance is read to its end.
    limit = None if pattern.near is not None else parts.limit
    for partition in parts.partitions:
        values = tuple(test.values[0] for test in partition)
        yield _Query(values, parts.sort, parts.filters, limit, pattern.descending, pattern.consistent)


@dataclass
class _Get:
    consistent: bool
    size_bytes: int = 0

    def reads(self) -> CallReads:
        # The requests are counted by the call: of a BatchGetItem each item is rounded up by itself.
        units = read_units(self.size_bytes, consistent=self.consistent)
        return CallReads(1 if self.size_bytes else 0, self.size_bytes, 0, units)


@dataclass
class _Query:
    """One Query. Without a limit only sums are kept; with one the first items, in the order of their sort keys."""

    partition: tuple[Any, ...]
    sort: Sequence[KeyTest]
    filters: Sequence[KeyTest]
    limit: int | None
    descending: bool
    consistent: bool
    order: tuple[str, ...] = ()
    _items: int = 0
    _bytes: int = 0
    _first: list[tuple[tuple[Any, ...], int, bool]] = field(default_factory=list)

    def see(self, item: Item, size_bytes: int) -> None:
        if not all(_holds(test, item) for test in self.sort):
            return
        self._items += 1
        self._bytes += size_bytes
        if self.limit is None:
            return
        place = tuple(item[name] for name in self.order)
        insort(self._first, (place, size_bytes, all(_holds(test, item) for test in self.filters)))
        if len(self._first) > (KEPT if self.filters else self.limit):
            self._first.pop(0 if self.descending else -1)

    def reads(self) -> CallReads:
        if self.limit is None:
            return self.page(self._items, self._bytes)
        first = [(size, passes) for _, size, passes in self._first]
        pages = _limited(first[::-1] if self.descending else first, self.limit, bool(self.filters))
        return sum((self.page(len(page), sum(page)) for page in pages), start=CallReads())

    def page(self, items: int, size_bytes: int) -> CallReads:
        """One request's reads, or those of as many as there are pages of 1 MB."""
        full, rest = divmod(size_bytes, PAGE_BYTES)
        units = full * read_units(PAGE_BYTES, consistent=self.consistent)
        if rest or not full:
            units += read_units(rest, consistent=self.consistent)
        return CallReads(items, size_bytes, full + (1 if rest or not full else 0), units)


def _limited(items: Sequence[tuple[int, bool]], limit: int, filters: bool) -> Iterator[list[int]]:
    """Sizes by page: one page of `limit` items; behind a filter each twice as large as the last, until enough passed."""
    begin, size, passed = 0, limit, 0
    while True:
        page = items[begin : begin + size]
        yield [size_bytes for size_bytes, _ in page]
        begin, passed = begin + size, passed + sum(passes for _, passes in page)
        size *= 2
        if not filters or passed >= limit or begin >= len(items):
            return


def _holds(test: KeyTest, item: Item) -> bool:
    value = item.get(test.attribute)
    try:
        return value is not None and _HOLDS[test.operator](value, *test.values)
    except (TypeError, AttributeError):
        return False  # a value of another type satisfies no condition


@dataclass
class Call:
    """Requests of one call of a pattern."""

    requests: Sequence[_Get | _Query]
    pages: int = 0

    def reads(self) -> CallReads:
        return sum((request.reads() for request in self.requests), start=CallReads(pages=self.pages))


_OPERATORS: dict[Operator, str] = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def condition_text(pattern: Pattern) -> str:
    """The pattern's key condition as the mapping has it: partition, then what is compared with the sort key."""
    parts = [template.source for template in pattern.key]
    for condition in pattern.sort:
        values = " and ".join(value.source for value in condition.values)
        word = _OPERATORS.get(condition.operator, condition.operator)
        parts.append(values if condition.operator == "equal" else f"{word} {values}")
    return ", ".join(parts)


def reads_of(pattern: Pattern, sizes: Sequence[int], partitions: int) -> CallReads:
    """What a call reads whose items are known by their sizes alone. `partitions`: that it asks, one at least."""
    if pattern.operation == "query":
        query = _Query((), (), (), None, pattern.descending, pattern.consistent)
        rest = sum(sizes) - sum(sizes) // partitions * (partitions - 1)
        shares = [sum(sizes) // partitions] * (partitions - 1) + [rest]
        asked = sum((query.page(0, share) for share in shares), start=CallReads())
        return CallReads(len(sizes), asked.bytes, asked.pages, asked.units)
    gets = [_Get(pattern.consistent, size) for size in sizes or (0,)]
    return sum((get.reads() for get in gets), start=CallReads(pages=1))
