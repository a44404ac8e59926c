"""Item collections by size, of a stream of items, in bounded memory: how many, percentiles, and the hottest keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from heapq import nlargest
from operator import attrgetter
from typing import Any

from msgspec import Struct

from migrator.mapping.model.capacity import Spread
from migrator.runtime.values import replace

KEPT = 50_000
"""Item collections of one index that are counted at the same time."""
_HEAVY = 2_000
"""The largest of them, which stay whatever else is dropped."""
_FEW = 2
"""Items of a sampled collection that say too little of it alone."""
_MANY = 20
"""Sampled items of one collection from which its size follows: of fewer the most is what chance drew most often."""
_HASHES = 2**32


@dataclass(slots=True)
class ItemCollection:
    """One partition key's items. `items` and `bytes` are as many as the rows that were read stand for; `seen`: items that
    were read, those of rows that were chosen by chance alone: `sampled`."""

    key: tuple[Any, ...]
    items: float = 0.0
    bytes: float = 0.0
    seen: int = 0
    sampled: int = 0
    types: dict[str, float] = field(default_factory=dict)


class Measured(Struct, frozen=True):
    """`collections`: how many there are. `exact`: nothing was left out, and every row was read."""

    entries: int
    bytes: int
    collections: int
    sizes: Spread
    counts: Spread
    largest: Sequence[ItemCollection]
    exact: bool


class ItemCollections:
    """The item collections of the table or of one index, counted as items come.

    Where there are more than KEPT, the largest are kept, and of the others those whose key has a low hash: a sample that
    does not depend on their order, from which the percentiles are estimated.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._by_key: dict[tuple[Any, ...], ItemCollection] = {}
        self._below = _HASHES
        self._entries = 0.0
        self._bytes = 0.0
        self._is_sampled = False

    def add(self, key: tuple[Any, ...], type_: str, size_bytes: int, weight: float) -> None:
        """`weight`: how many items this one stands for; more than one where rows were chosen by chance."""
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
        """Drops what is neither large nor chosen; where that does not make room for as many again, fewer are chosen."""
        heavy = nlargest(min(_HEAVY, self._kept // 4), self._by_key.values(), key=attrgetter("bytes"))
        large = {collection.key for collection in heavy}
        if self._below == _HASHES:
            self._below //= 2
        self._by_key = self._left(large)
        while len(self._by_key) > self._kept // 2:
            self._below //= 2
            self._by_key = self._left(large)

    def _left(self, large: Set[tuple[Any, ...]]) -> dict[tuple[Any, ...], ItemCollection]:
        """Large collections, and those that are chosen."""
        return {
            key: collection
            for key, collection in self._by_key.items()
            if key in large or _hash(key) < self._below
        }

    def _spread(self) -> tuple[int, Spread, Spread]:
        """(how many collections there are, their bytes, their items)."""
        every = list(self._by_key.values())
        share = self._below / _HASHES
        chosen = (
            every
            if share == 1
            else [collection for collection in every if _hash(collection.key) < self._below]
        )
        few = [collection for collection in chosen if collection.sampled == collection.seen <= _FEW]
        sure = [collection for collection in chosen if not collection.sampled == collection.seen <= _FEW]
        # Of collections of which few items were read there are more, and smaller ones, than their weights say.
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
    """A collection of which few items were drawn as what was read of it: among many such ones some are drawn more often than
    their share, and would seem the largest."""
    if not 0 < collection.sampled < _MANY:
        return collection
    share = collection.seen / collection.items
    return replace(collection, items=float(collection.seen), bytes=collection.bytes * share)


def _all_of(few: Sequence[ItemCollection]) -> int:
    """How many collections there are of which a sample found so many once and so many twice.

    Source: A. Chao, "Nonparametric estimation of the number of classes in a population" (1984), bias-corrected.
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
    """By nearest rank of (number, how often it is there)."""
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
