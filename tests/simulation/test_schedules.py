"""Random schedules of the protocol: at rest, the items are what the rows say. Always."""

from __future__ import annotations

import os

import pytest

from tests.simulation.actors import run
from tests.simulation.many import diverging, many

SCHEDULES = 20_000
_CHUNKS = 8


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_every_schedule_comes_to_what_the_rows_say(chunk: int) -> None:
    size = SCHEDULES // _CHUNKS
    assert diverging(chunk * size, size) == []


def test_a_seed_is_one_schedule() -> None:
    """Else the seed of a failure would be worth nothing."""
    one, other = run(4711), run(4711)
    assert (one.schedule.steps, one.table.items) == (other.schedule.steps, other.table.items)


@pytest.mark.soak
def test_two_hundred_thousand_more() -> None:
    count = int(os.environ.get("MIGRATOR_TEST_SCHEDULES", "200000"))
    assert many(count, first=1_000_000) == []
