"""The many texts that a reference with a `*` stands for: every shard, every bucket of a time, the cells of a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.mapping.buckets import buckets_between
from migrator.mapping.filters import shard_text
from migrator.mapping.geo import cells_around
from migrator.model import Filter


@dataclass(frozen=True)
class Way:
    """`values`: how many parameters it takes; `texts(argument, values)` gives what it stands for."""

    values: int
    texts: Callable[[str, Sequence[Any]], list[str]]


def texts_of(used: Filter, values: Sequence[Any]) -> list[str]:
    """The texts that `{*…|used}` stands for, in order and each once; `values` are its parameters.

    Raises: RowError or ValueError for values that have no such texts, or more than a question may ask.
    """
    return WAYS[used.name].texts(used.args[0] if used.args else "", values)


def _shards(argument: str, _: Sequence[Any]) -> list[str]:
    return [shard_text(number, int(argument)) for number in range(int(argument))]


def _buckets(unit: str) -> Callable[[str, Sequence[Any]], list[str]]:
    return lambda argument, values: buckets_between(unit or argument, values[0], values[1])


WAYS: dict[str, Way] = {
    "shard": Way(0, _shards),
    "bucket": Way(2, _buckets("")),
    "date": Way(2, _buckets("day")),
    "month": Way(2, _buckets("month")),
    "year": Way(2, _buckets("year")),
    "geohash": Way(2, lambda argument, values: cells_around(values[0], values[1], int(argument))),
}
