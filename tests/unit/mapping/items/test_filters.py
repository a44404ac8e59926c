"""What a `*` stands for, and that items write the same texts."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from migrator.mapping.items import values
from migrator.mapping.items.filters import (
    FILTERS,
    FilterContext,
    FilterSpec,
    StarKind,
    bucket,
    buckets_between,
    texts_of,
    unit_of,
)
from migrator.mapping.items.templates import parse_template
from migrator.mapping.items.values import json_text
from migrator.mapping.model.mapping import Filter, Ref
from migrator.runtime.errors import RowError
from tests import pins

NOON = datetime(2026, 6, 10, 12, 30)


def written(used: Filter, value: Any) -> str:
    return str(FILTERS[used.name].make(used.args, FilterContext())(value))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("hour", "2026-06-10T12"),
        ("day", "2026-06-10"),
        ("week", "2026-W24"),
        ("month", "2026-06"),
        ("quarter", "2026-Q2"),
        ("year", "2026"),
    ],
)
def test_the_bucket_of_a_moment(unit: str, expected: str) -> None:
    assert written(Filter("bucket", (unit,)), NOON) == expected
    assert bucket(unit, NOON.replace(tzinfo=UTC)) == expected
    assert bucket(unit, date(2026, 6, 10)) == expected.replace("T12", "T00")


@pytest.mark.parametrize(
    ("unit", "since", "until", "expected"),
    [
        ("hour", NOON, datetime(2026, 6, 10, 14), ["2026-06-10T12", "2026-06-10T13", "2026-06-10T14"]),
        ("day", date(2024, 2, 28), date(2024, 3, 1), ["2024-02-28", "2024-02-29", "2024-03-01"]),
        ("month", datetime(2025, 11, 30), date(2026, 1, 1), ["2025-11", "2025-12", "2026-01"]),
        ("month", date(2026, 1, 31), date(2026, 3, 1), ["2026-01", "2026-02", "2026-03"]),
        ("year", date(2024, 2, 29), date(2026, 1, 1), ["2024", "2025", "2026"]),
        # The first of January 2027 is a Friday, so that it is of the last week of 2026.
        ("week", date(2026, 12, 27), date(2027, 1, 4), ["2026-W52", "2026-W53", "2027-W01"]),
        ("week", date(2025, 12, 31), date(2026, 1, 1), ["2026-W01"]),
        ("week", date(9999, 12, 26), date(9999, 12, 31), ["9999-W51", "9999-W52"]),
        ("week", date(1, 1, 1), date(1, 1, 8), ["0001-W01", "0001-W02"]),
        ("quarter", NOON, date(2027, 1, 1), ["2026-Q2", "2026-Q3", "2026-Q4", "2027-Q1"]),
        ("quarter", date(2026, 5, 31), date(2026, 8, 1), ["2026-Q2", "2026-Q3"]),
        ("quarter", date(9999, 9, 30), date(9999, 12, 31), ["9999-Q3", "9999-Q4"]),
        ("day", NOON, NOON, ["2026-06-10"]),
        ("day", NOON, NOON - timedelta(days=1), []),
        ("year", date(9998, 1, 1), date(9999, 12, 31), ["9998", "9999"]),
    ],
)
def test_all_buckets_of_a_time(unit: str, since: date, until: date, expected: list[str]) -> None:
    assert buckets_between(unit, since, until) == expected


def test_question_takes_400_buckets_at_most() -> None:
    last = date(2026, 1, 1) + timedelta(days=399)
    assert len(buckets_between("day", date(2026, 1, 1), last)) == 400
    with pins.refused(ValueError):
        buckets_between("day", date(2026, 1, 1), last + timedelta(days=1))


@pytest.mark.parametrize("name", ["date", "week", "month", "quarter", "year"])
def test_the_older_time_filters_are_buckets(name: str) -> None:
    since, until = NOON - timedelta(days=40), NOON
    assert written(Filter(name), NOON) in texts_of(Filter(name), [since, until])


@pytest.mark.parametrize("count", ["2", "10", "11", "100"])
def test_every_row_has_one_of_the_shards(count: str) -> None:
    used = Filter("shard", (count,))
    shards = texts_of(used, ())
    assert len(shards) == len(set(shards)) == int(count)
    assert {written(used, number) for number in range(500)} <= set(shards)
    assert len({len(shard) for shard in shards}) == 1


def test_a_place_has_the_cell_that_items_write() -> None:
    used = Filter("geohash", ("6",))
    assert texts_of(used, (35.6586, 139.7454))[0] == written(used, (35.6586, 139.7454)) == "xn76gg"
    with pytest.raises(RowError):
        written(used, (91, 0))


STARS: tuple[StarKind, ...] = ("shard", "time", "place")


def test_a_star_is_read_where_it_may_stand() -> None:
    (ref,) = parse_template("A#{*since, until|bucket:day}", stars=STARS).refs
    assert ref == Ref(("since", "until"), None, (Filter("bucket", ("day",)),), every=True)
    (ref,) = parse_template("{*|shard:4}", stars=STARS).refs
    assert ref == Ref((), None, (Filter("shard", ("4",)),), every=True)


@pytest.mark.parametrize(
    "text",
    [
        "{*}",
        "{*a|lower}",
        "{*a,b|date|lower}",
        "{*a|shard:4}",
        "{*a|bucket:day}",
        "{*a,|bucket:day}",
        "{*a,b|bucket:decade}",
        "{*a,b|geohash:13}",
    ],
)
def test_a_star_in_wrong_use(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_template(text, stars=STARS)
    assert pins.said(str(caught.value))


def test_a_star_is_refused_elsewhere() -> None:
    with pins.refused(ValueError):
        parse_template("A#{*|shard:4}")


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
    texts = [json_text(result) if spec.of_array else values.text(result) for result in results]
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
