"""Latencies in a histogram of bounded size."""

from __future__ import annotations

import pytest

from migrator.stages.patterns.latencies import Latencies, added


def test_percentiles_are_exact_to_three_digits() -> None:
    latencies = Latencies()
    for ms in range(1, 1001):
        latencies.record(ms)
    found = latencies.curve()
    assert found is not None
    assert found.answers == 1000
    shares = (*map(found.at, (50.0, 90.0, 99.0)), found.max_ms)
    assert shares == pytest.approx((500, 900, 990, 1000), rel=0.001)


@pytest.mark.parametrize(("ms", "kept"), [(0, 0.001), (0.0004, 0.001), (1e12, 3_600_000)])
def test_latency_out_of_range_counts_at_its_end(ms: float, kept: float) -> None:
    latencies = Latencies()
    latencies.record(ms)
    found = latencies.curve()
    assert found is not None
    assert found.max_ms == pytest.approx(kept, rel=0.001)


def test_texts_of_several_are_added_up() -> None:
    first, second = Latencies(), Latencies()
    for _ in range(9):
        first.record(2)
    second.record(3_000)
    together = added([first.text(), second.text()])
    assert (together.answers, together.above(2), together.above(3_000)) == (10, 1, 0)
    assert together.p99_ms == 3_000


def test_answers_that_all_differ_take_bounded_room() -> None:
    latencies = Latencies()
    for number in range(200_000):
        latencies.record(number * 18.0)
    assert len(latencies.text()) < 30_000
