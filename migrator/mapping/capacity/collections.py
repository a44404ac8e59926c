"""One stream of all measured items: item collections by size, and the reads of access patterns."""

from __future__ import annotations

import hashlib
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Any

from msgspec import Struct

from migrator.mapping.items.wire import read_units
from migrator.mapping.model.capacity import Spread
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Operator, Pattern
from migrator.mapping.model.table import Item, ItemKey
from migrator.mapping.patterns.requests import KeyTest, Requests
from migrator.runtime.values import Summed, replace

KEPT = 50_000
"""Item collections of one index that are counted at the same time."""
_HEAVY = 2_000
"""The number of largest collections that are always kept."""
_FEW = 2
"""Too few items of a sampled collection to estimate its size."""
_MANY = 20
"""Sampled items of one collection that are enough to estimate its size: with fewer, the largest estimate is mostly
chance."""
_HASHES = 2**32


@dataclass(slots=True)
class ItemCollection:
    """Items of one partition key.

    `items`, `bytes`: extrapolated from the rows read.
    `seen`: items read.
    `sampled`: of random rows.
    """

    key: tuple[Any, ...]
    items: float = 0.0
    bytes: float = 0.0
    seen: int = 0
    sampled: int = 0
    types: dict[str, float] = field(default_factory=dict)


class Measured(Struct, frozen=True):
    """`collections`: their number.
    `exact`: nothing was left out, and every row was read.
    """

    entries: int
    bytes: int
    collections: int
    sizes: Spread
    counts: Spread
    largest: Sequence[ItemCollection]
    exact: bool


class ItemCollections:
    """Item collections of the table or of one index, counted as items come.

    Beyond KEPT, only the largest are kept, and for percentiles a sample by low hashes of the key.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._by_key: dict[tuple[Any, ...], ItemCollection] = {}
        self._below = _HASHES
        self._entries = 0.0
        self._bytes = 0.0
        self._is_sampled = False

    def add(self, key: tuple[Any, ...], type_: str, size_bytes: int, weight: float) -> None:
        """Add an item, which represents `weight` items."""
        collection = self._by_key.get(key)
        if collection is None:
            if len(self._by_key) >= self._kept:
                self._drop()
            collection = self._by_key[key] = ItemCollection(key)
        collection.items += weight
        collection.bytes += size_bytes * weight
        collection.seen += 1
        if weight > 1:
            collection.sampled += 1
            self._is_sampled = True
        collection.types[type_] = collection.types.get(type_, 0.0) + weight
        self._entries += weight
        self._bytes += size_bytes * weight

    def measured(self, hottest: int) -> Measured:
        number, sizes, counts = self._spread()
        largest = nlargest(
            hottest,
            map(_at_least, self._by_key.values()),
            key=lambda collection: (collection.bytes, repr(collection.key)),
        )
        exact = not self._is_sampled and self._below == _HASHES
        return Measured(round(self._entries), round(self._bytes), number, sizes, counts, largest, exact)

    def _drop(self) -> None:
        heavy = nlargest(min(_HEAVY, self._kept // 4), self._by_key.values(), key=attrgetter("bytes"))
        large = {collection.key for collection in heavy}
        if self._below == _HASHES:
            self._below //= 2
        self._by_key = self._left(large)
        while len(self._by_key) > self._kept // 2:
            self._below //= 2
            self._by_key = self._left(large)

    def _left(self, large: Set[tuple[Any, ...]]) -> dict[tuple[Any, ...], ItemCollection]:
        return {
            key: collection
            for key, collection in self._by_key.items()
            if key in large or _hash(key) < self._below
        }

    def _spread(self) -> tuple[int, Spread, Spread]:
        every = list(self._by_key.values())
        share = self._below / _HASHES
        chosen = (
            every
            if share == 1
            else [collection for collection in every if _hash(collection.key) < self._below]
        )
        few = [collection for collection in chosen if collection.sampled == collection.seen <= _FEW]
        sure = [collection for collection in chosen if not collection.sampled == collection.seen <= _FEW]
        # There are more collections with few read items, and smaller ones, than their weights suggest.
        behind = max(len(few), _all_of(few)) if few else 0
        weighted = [(collection.bytes, collection.items, 1.0) for collection in sure]
        if few:
            mean_bytes = sum(collection.bytes for collection in few) / behind
            mean_items = sum(collection.items for collection in few) / behind
            weighted.append((mean_bytes, max(1.0, mean_items), float(behind)))
        number = round((len(sure) + behind) / share)
        # The largest is known though it may not be among the chosen.
        known = [_at_least(collection) for collection in every]
        sizes = spread_of((size, weight) for size, _, weight in weighted)
        counts = spread_of((items, weight) for _, items, weight in weighted)
        most_bytes = max((collection.bytes for collection in known), default=0)
        most_items = max((collection.items for collection in known), default=0)
        sizes = replace(sizes, most=max(sizes.p99, round(most_bytes)))
        return number, sizes, replace(counts, most=max(counts.p99, round(most_items)))


def _at_least(collection: ItemCollection) -> ItemCollection:
    """The size actually read, if few items were sampled: some of many such collections would seem the largest."""
    if not 0 < collection.sampled < _MANY:
        return collection
    share = collection.seen / collection.items
    return replace(collection, items=float(collection.seen), bytes=collection.bytes * share)


def _all_of(few: Sequence[ItemCollection]) -> int:
    """Estimated number of collections, of which a sample found so many once and so many twice.

    Source: A. Chao, "Nonparametric estimation of the number of classes in a population" (1984),
    bias-corrected.
    """
    once = sum(collection.seen == 1 for collection in few)
    twice = len(few) - once
    unseen = once * (once - 1) / (2 * (twice + 1))
    most = sum(collection.items for collection in few)
    return round(min(len(few) + unseen, most))


def _hash(key: tuple[Any, ...]) -> int:
    text = repr(key).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())


def spread_of(numbers: Iterable[tuple[float, float]]) -> Spread:
    ordered = sorted(numbers)
    total = sum(weight for _, weight in ordered)
    if not total:
        return Spread(0, 0, 0)
    return Spread(_at(ordered, total * 0.5), _at(ordered, total * 0.99), round(ordered[-1][0]))


def _at(ordered: Sequence[tuple[float, float]], rank: float) -> int:
    reached = 0.0
    for number, weight in ordered:
        reached += weight
        if reached >= rank - 1e-9:
            return round(number)
    return round(ordered[-1][0])


PAGE_BYTES = 1024 * 1024
"""Bytes of one page of a Query. Source: AWS Developer Guide, "Query operations", pagination."""
FOLLOWED = 20_000
"""Limit of items for which a query with a limit and a filter is followed."""

_HOLDS: dict[Operator, Callable[..., bool]] = {
    "equal": lambda value, wanted: bool(value == wanted),
    "begins_with": lambda value, begin: bool(value.startswith(begin)),
    "between": lambda value, low, high: bool(low <= value <= high),
    "ge": lambda value, low: bool(value >= low),
    "gt": lambda value, low: bool(value > low),
    "le": lambda value, high: bool(value <= high),
    "lt": lambda value, high: bool(value < high),
    "exists": lambda value: True,
}


class CallReads(Summed, frozen=True):
    """Reads of one call. `pages`: billed requests."""

    items: int = 0
    bytes: int = 0
    pages: int = 0
    units: float = 0.0


class WaitingReads:
    def __init__(self, mapping: MappingModel) -> None:
        self._table = mapping.table
        self._gets: dict[ItemKey, list[_Get]] = {}
        self._queries: dict[str, dict[tuple[Any, ...], list[_Query]]] = {}
        self._partitions = {
            name: tuple(attribute.name for attribute in index.partition)
            for name in ("", *(index.name for index in self._table.indexes))
            if (index := self._table.asked(name or None)) is not None
        }

    def call(self, pattern: Pattern, requests: Requests, params: Mapping[str, Any]) -> Call:
        """The call's reads are known once all items were seen.

        Raises: SettingsError if the parameters make no request.
        """
        if pattern.operation == "query":
            return Call([self._query(pattern, parts) for parts in _one_by_one(pattern, requests, params)])
        request = requests.of(params)
        sent = request.sent[: request.calls]
        keys = [one["Key"] for one in sent] if pattern.operation == "get" else []
        keys += [key for one in sent for key in one.get("Keys", ())]
        return Call([self._get(pattern, self._table.key_of(key)) for key in keys], pages=len(sent))

    def see(self, item: Item, sizes: Mapping[str, int]) -> None:
        """Record an item. `sizes`: bytes in the table ('') and in its index entries."""
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
    # A query sorted by distance is read to its end.
    limit = None if pattern.near is not None else parts.limit
    for partition in parts.partitions:
        values = tuple(test.values[0] for test in partition)
        yield _Query(values, parts.sort, parts.filters, limit, pattern.descending, pattern.consistent)


@dataclass
class _Get:
    consistent: bool
    size_bytes: int = 0

    def reads(self) -> CallReads:
        # Requests are counted by the call: a BatchGetItem rounds up each item separately.
        units = read_units(self.size_bytes, consistent=self.consistent)
        return CallReads(1 if self.size_bytes else 0, self.size_bytes, 0, units)


@dataclass
class _Query:
    """One Query. Without a limit only sums are kept, else the first items by sort key."""

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
        if len(self._first) > (FOLLOWED if self.filters else self.limit):
            self._first.pop(0 if self.descending else -1)

    def reads(self) -> CallReads:
        if self.limit is None:
            return self.page(self._items, self._bytes)
        first = [(size, passes) for _, size, passes in self._first]
        pages = _limited(first[::-1] if self.descending else first, self.limit, bool(self.filters))
        return sum((self.page(len(page), sum(page)) for page in pages), start=CallReads())

    def page(self, items: int, size_bytes: int) -> CallReads:
        full, rest = divmod(size_bytes, PAGE_BYTES)
        units = full * read_units(PAGE_BYTES, consistent=self.consistent)
        if rest or not full:
            units += read_units(rest, consistent=self.consistent)
        return CallReads(items, size_bytes, full + (1 if rest or not full else 0), units)


def _limited(items: Sequence[tuple[int, bool]], limit: int, filters: bool) -> Iterator[list[int]]:
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
    if test.operator == "absent":
        return value is None
    try:
        return value is not None and _HOLDS[test.operator](value, *test.values)
    except (TypeError, AttributeError):
        return False  # a value of another type satisfies no condition


@dataclass
class Call:
    requests: Sequence[_Get | _Query]
    pages: int = 0

    def reads(self) -> CallReads:
        return sum((request.reads() for request in self.requests), start=CallReads(pages=self.pages))


_OPERATORS: dict[Operator, str] = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def condition_text(pattern: Pattern) -> str:
    parts = [template.source for template in pattern.key]
    for condition in pattern.sort:
        values = " and ".join(value.source for value in condition.values)
        word = _OPERATORS.get(condition.operator, condition.operator)
        parts.append(values if condition.operator == "equal" else f"{word} {values}")
    return ", ".join(parts)


def reads_of(pattern: Pattern, sizes: Sequence[int], partitions: int) -> CallReads:
    if pattern.operation == "query":
        query = _Query((), (), (), None, pattern.descending, pattern.consistent)
        rest = sum(sizes) - sum(sizes) // partitions * (partitions - 1)
        shares = [sum(sizes) // partitions] * (partitions - 1) + [rest]
        asked = sum((query.page(0, share) for share in shares), start=CallReads())
        return CallReads(len(sizes), asked.bytes, asked.pages, asked.units)
    gets = [_Get(pattern.consistent, size) for size in sizes or (0,)]
    return sum((get.reads() for get in gets), start=CallReads(pages=1))
