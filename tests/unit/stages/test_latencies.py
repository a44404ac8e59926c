"""Latencies in a histogram of bounded size."""

from __future__ import annotations

import pytest

from migrator.stages.latencies import Latencies


def test_nothing_recorded_is_nothing() -> None:
    assert Latencies().summary() is None


def test_percentiles_are_exact_to_three_digits() -> None:
    latencies = Latencies()
    for ms in range(1, 1001):
        latencies.record(ms)
    found = latencies.summary()
    assert found is not None
    assert found.answers == 1000
    shares = (found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms)
    assert shares == pytest.approx((500, 900, 990, 1000), rel=0.001)


@pytest.mark.parametrize(("ms", "kept"), [(0, 0.001), (0.0004, 0.001), (1e12, 3_600_000)])
def test_what_is_out_of_its_range_counts_at_its_end(ms: float, kept: float) -> None:
    latencies = Latencies()
    latencies.record(ms)
    found = latencies.summary()
    assert found is not None
    assert found.max_ms == pytest.approx(kept, rel=0.001)
