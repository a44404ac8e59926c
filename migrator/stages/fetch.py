"""The items that answer a request: pages followed, partitions asked side by side and merged."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from migrator.mapping.patterns import nearest
from migrator.mapping.requests import Request
from migrator.model import OWN_TYPES, Item, ItemKey
from migrator.ports import ItemStore, QueryPage

AT_ONCE = 8
"""Requests of one question that are under way together."""


@dataclass(frozen=True)
class Fetched:
    """`round_trips` counts requests, those sent again included."""

    items: list[Item]
    round_trips: int
    read_units: float


def fetch(store: ItemStore, request: Request, now_s: float | None = None) -> Fetched:
    """All items of the answer in its order, up to the request's limit: none of ours alone, none that has expired.

    `now_s`: in seconds since 1970, by which items expire; None is this machine's clock.
    Raises: StoppedError, TargetError as the store does.
    """
    return _WAYS[request.operation](store, request, time.time() if now_s is None else now_s)


def _get(store: ItemStore, request: Request, now_s: float) -> Fetched:
    pages = [store.get_item(one) for one in request.sent]
    return _fetched(pages, shown([item for page in pages for item in page.items], request, now_s))


def _batch_get(store: ItemStore, request: Request, now_s: float) -> Fetched:
    """The items in the order in which their keys were asked."""
    pages = list(side_by_side(store.batch_get, request.sent))
    items = shown([item for page in pages for item in page.items], request, now_s)
    found = {_key(item, request): item for item in items}
    asked = [tuple(key[name] for name in request.key) for one in request.sent for key in one["Keys"]]
    return _fetched(pages, [found[key] for key in asked if key in found])


def _query(store: ItemStore, request: Request, now_s: float) -> Fetched:
    # What is sorted by distance has to be read to its end, whatever the limit.
    limit = request.limit if request.near is None else None
    asked = [Partition(store, Asked(request, one, limit, now_s)) for one in request.sent]
    # Of every partition the first page is needed before anything can be merged.
    side_by_side(Partition.read_all if limit is None else Partition.read_page, asked)
    streams = [one.items() for one in asked]
    merged = heapq.merge(*streams, key=order_of(request), reverse=request.descending)
    items = list(islice(_once(merged, request), limit))
    if request.near is not None:
        items = nearest(items, request.near, request.key)[: request.limit]
    return Fetched(items, sum(one.requests for one in asked), sum(one.read_units for one in asked))


_WAYS: dict[str, Callable[[ItemStore, Request, float], Fetched]] = {
    "get": _get,
    "batch_get": _batch_get,
    "query": _query,
}


@dataclass(frozen=True)
class Asked:
    """One Query of a request: how many of its items are wanted (None: all), by which time they expire, and where it
    starts (None: at its beginning)."""

    request: Request
    query: Mapping[str, Any]
    limit: int | None
    now_s: float
    start: Mapping[str, Any] | None = None


class Partition:
    """One Query whose pages are read when their items are needed. For one thread at a time."""

    def __init__(self, store: ItemStore, asked: Asked) -> None:
        self.store = store
        self.asked = asked
        self.limit = asked.limit
        self.requests = 0
        self.read_units = 0.0
        self._ready: deque[Item] = deque()
        self._found = 0
        self._filters = "FilterExpression" in asked.query
        self._start = asked.start
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
        """The next page; it may be empty and still not the last one."""
        page = self.store.query(self._sized(), self._start)
        items = shown(page.items, self.asked.request, self.asked.now_s)
        # Where one was not to be seen, there may be thousands of them: pages grow as behind a filter.
        self._filters = self._filters or len(items) < len(page.items)
        self._ready.extend(items)
        self._found += len(items)
        self.requests += page.requests
        self.read_units += page.read_units
        self._start = page.next_start
        self._done = page.next_start is None

    def _sized(self) -> Mapping[str, Any]:
        """The query with a limit of what is still missing.

        DynamoDB counts items before it filters them: behind a filter each page is twice as large as the one before, so
        that neither a page of 1 MB is paid for in vain nor every item costs a request.
        """
        query = self.asked.query
        if self.limit is None:
            return query
        if self._filters:
            return {**query, "Limit": self.limit * 2**self.requests}
        return {**query, "Limit": max(self.limit - self._found, 0) or self.limit}


def side_by_side(work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
    """The results in the order of the pieces."""
    waiting = list(pieces)
    if len(waiting) < 2:
        return [work(piece) for piece in waiting]
    with ThreadPoolExecutor(min(AT_ONCE, len(waiting))) as executor:
        return list(executor.map(work, waiting))


def order_of(request: Request) -> Callable[[Item], tuple[Any, ...]]:
    """What items are merged by. Python orders texts by code point, which is the order of their UTF-8 bytes."""
    return lambda item: tuple(item[name] for name in request.sort)


def _once(items: Iterable[Item], request: Request) -> Iterator[Item]:
    """Each item once: one that moves to another partition meanwhile could be read in both."""
    seen: set[ItemKey] = set()
    for item in items:
        key = _key(item, request)
        if key not in seen:
            seen.add(key)
            yield item


def _key(item: Item, request: Request) -> ItemKey:
    return tuple(item[name] for name in request.key)


def shown(items: list[Item], request: Request, now_s: float) -> list[Item]:
    """Without tombstones, the control item, and what has expired and is still there."""
    own, ttl = request.type_attribute, request.ttl_attribute
    return [item for item in items if item.get(own) not in OWN_TYPES and not _expired(item, ttl, now_s)]


def _expired(item: Item, ttl: str | None, now_s: float) -> bool:
    expiry = item.get(ttl) if ttl else None
    return isinstance(expiry, (int, Decimal)) and not isinstance(expiry, bool) and expiry <= now_s


def _fetched(pages: list[QueryPage], items: list[Item]) -> Fetched:
    return Fetched(items, sum(page.requests for page in pages), sum(page.read_units for page in pages))
