"""Ways to fill a table: hours and dollars by numbers that are computed by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest

from migrator.mapping.capacity.advice import (
    EXPORT_US,
    JOINED_US,
    PLAIN_US,
    START_S,
    Filling,
    cheapest_of,
    fastest_of,
    ways_of,
)
from migrator.mapping.items.wire import Price
from migrator.mapping.model.capacity import Way
from migrator.runtime.values import replace
from tests import pins

GB = 1024**3
PRICE = Price(
    *("nowhere", Decimal("0.5"), Decimal("0.1"), Decimal("0.25"), "by hand"),
    import_gb=Decimal("0.15"),
    glue_worker_hour=Decimal("0.44"),
    emr_worker_hour=Decimal("0.30"),
)
BILLION = Filling(
    plain_items=1_000_000_000,
    joined_items=0,
    write_units=2_000_000_000,
    busiest_units=1_000_000_000,
    units_per_s=4_000,
    limit="by hand",
    json_bytes=600 * GB,
    cores=2,
    is_journal_on_server=True,
)
"""A unit an item in the table and in an index each."""


def by_name(filling: Filling, price: Price | None = PRICE) -> dict[str, Way]:
    return {way.name: way for way in ways_of(filling, price)}


def test_batch_hours_follow_the_busiest_meter_at_the_write_limit() -> None:
    batches = by_name(BILLION)["batches"]
    assert batches.hours == pytest.approx(1_000_000_000 / 4_000 / 3_600)
    assert batches.usd == Decimal(1_000)
    assert batches.bound == pins.text()


def test_batches_are_bound_by_cores_if_the_table_accepts_more() -> None:
    warm = replace(BILLION, plain_items=500_000_000, joined_items=500_000_000, units_per_s=1_000_000)
    batches = by_name(warm)["batches"]
    assert (PLAIN_US, JOINED_US) == (16, 24)
    assert batches.hours == pytest.approx(20_000 / 2 / 3_600)  # 8,000 s and 12,000 s of CPU, by two cores
    assert batches.bound == pins.text()


def test_spark_workers_follow_cpu_and_cost_on_top_of_write_units() -> None:
    """16,000 s of CPU in 1,000 s, which the write limit takes: 16 vCPUs are 4 executors, and the driver is a worker more."""
    ways = by_name(replace(BILLION, units_per_s=1_000_000))
    assert (ways["glue"].workers, START_S) == (5, 120)
    assert ways["glue"].hours == pytest.approx(1_120 / 3_600)
    assert ways["glue"].usd == pytest.approx(Decimal(1_000) + Decimal("0.44") * 5 * Decimal(1_120) / 3_600)
    assert ways["emr-serverless"].usd == pytest.approx(1_000 + Decimal("0.30") * 5 * Decimal(1_120) / 3_600)
    assert ways["glue"].against == (pins.text(),)
    assert fastest_of(list(ways.values())) == ways["glue"]


def test_spark_is_bound_by_its_maximum_of_executors() -> None:
    """160,000 s of CPU by 99 executors of four vCPUs, where 268 would be needed to take 600 s."""
    ten = replace(BILLION, plain_items=40_000_000_000, units_per_s=1e9)
    glue = by_name(ten)["glue"]
    assert (glue.workers, glue.bound) == (100, pins.text())
    assert glue.hours == pytest.approx((120 + 640_000 / 396) / 3_600)


def test_spark_lists_what_prevents_it() -> None:
    against = by_name(replace(BILLION, is_journal_on_server=False))["glue"].against
    assert against[1] == pins.text("hosts")
    assert against[2] == pins.text("batches")


def test_import_is_billed_by_file_size_and_its_end_is_unknown() -> None:
    ways = by_name(BILLION)
    assert ways["import"].usd == Decimal(90)
    assert ways["import"].hours == pytest.approx(1_000_000_000 * EXPORT_US / 1e6 / 3_600)
    assert ways["import"].is_open_ended
    assert cheapest_of(list(ways.values())) == ways["import"]
    assert fastest_of(list(ways.values())) == ways["batches"]


def test_below_a_cent_no_way_is_cheaper_than_batches() -> None:
    few = replace(BILLION, plain_items=1_000, write_units=2_000, busiest_units=1_000, json_bytes=600_000)
    ways = by_name(few)
    assert (ways["batches"].usd, ways["import"].usd) == (Decimal("0.001"), Decimal("0.15") * 600_000 / GB)
    assert cheapest_of(list(ways.values())) == ways["batches"]


def test_impossible_ways_are_neither_cheapest_nor_fastest() -> None:
    ways = by_name(replace(BILLION, no_import="it has a local index"))
    assert ways["import"].impossible == pins.text()
    assert cheapest_of(list(ways.values())) == ways["batches"]


def test_without_prices_no_way_is_the_cheapest() -> None:
    unpriced = ways_of(BILLION, None)
    assert [way.usd for way in unpriced] == [None] * 4
    assert cheapest_of(unpriced) is None
    partly = by_name(BILLION, price=replace(PRICE, import_gb=None, glue_worker_hour=None))
    assert (partly["glue"].usd, partly["import"].usd) == (None, None)
    assert cheapest_of(list(partly.values())) == partly["batches"]


def test_an_empty_table_takes_no_time() -> None:
    empty = by_name(replace(BILLION, plain_items=0, write_units=0, busiest_units=0, json_bytes=0))
    assert empty["batches"].hours == empty["batches"].usd == 0
    assert empty["glue"].workers == 2
