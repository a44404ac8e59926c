"""What the table of filters promises of each, tried on values: letters, width, order, no two results alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.mapping.heart import values
from migrator.mapping.heart.filters import FILTERS, FilterContext, FilterSpec, bucket, unit_of
from migrator.model.mapping import Filter

ARGS = {"bucket": ("day",), "map": ("m",), "or": ("x",), "shard": ("12",), "at": ("1",), "geohash": ("6",)}
START = datetime(1999, 12, 31, 23, 59, 58, tzinfo=UTC)
TIMES: list[Any] = [START + timedelta(days=41 * step, seconds=step, microseconds=step) for step in range(60)]
TEXTS: list[Any] = sorted(f"{word}{step}" for step in range(30) for word in ("Ann", "b#", "%", " é"))
PADDED: list[Any] = [f"{step:04}" for step in range(60)]
PLACES: list[Any] = [(step - 30, 3 * step) for step in range(60)]
AROUND = FilterContext("#", {"m": dict.fromkeys(TEXTS, "one")})


def given(spec: FilterSpec) -> list[Any]:
    """Values that it takes, in order."""
    if spec.of_list:
        return [[text] for text in PADDED]
    if spec.values == 2:
        return PLACES
    return TIMES if spec.takes else PADDED if spec.fixed else TEXTS


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_filter_keeps_what_it_promises(name: str) -> None:
    spec, args = FILTERS[name], ARGS.get(name, ())
    results = [spec.make(args, AROUND)(value) for value in given(spec)]
    texts = [values.text(result) for result in results]
    if spec.closed is True:
        assert not any("#" in text for text in texts)
    # What |escape leaves as it is can be any text.
    if spec.alphabet and not (spec.injective and spec.closed is True):
        assert set("".join(texts)) <= set(spec.alphabet)
    if spec.width == "fixed":
        assert len(set(map(len, texts))) == 1
    if spec.injective or args in spec.whole:
        assert len(set(texts)) == len(texts)
    if spec.order != "lost":
        assert results == sorted(results, reverse=spec.order == "reversed")


@pytest.mark.parametrize("name", sorted(name for name, spec in FILTERS.items() if spec.unit))
def test_a_filter_gives_the_buckets_of_its_unit(name: str) -> None:
    apply = FILTERS[name].make(ARGS.get(name, ()), AROUND)
    unit = unit_of(Filter(name, ARGS.get(name, ())))
    assert [apply(moment) for moment in TIMES] == [bucket(unit, moment) for moment in TIMES]
