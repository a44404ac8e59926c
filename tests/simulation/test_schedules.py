"""Random schedules of the protocol: at rest, the items are what the rows say. Always."""

from __future__ import annotations

import pytest

from tests.simulation.actors import run
from tests.simulation.many import MANY, diverging, many

SCHEDULES = 500
"""The first of those that a landing runs: enough to see at once that a change breaks a rule."""


def test_every_schedule_ends_with_the_items_of_the_rows() -> None:
    assert diverging(0, SCHEDULES) == []


def test_every_schedule_with_a_log_ends_with_items_of_the_rows() -> None:
    assert diverging(0, SCHEDULES // 2, "log") == []


def test_a_seed_is_one_schedule() -> None:
    """Else the seed of a failure would be worth nothing."""
    first, second = run(4711), run(4711)
    assert (first.schedule.steps, first.table.items) == (second.schedule.steps, second.table.items)


@pytest.mark.slow
@pytest.mark.parametrize("mappings", ["one", "log"])
def test_many_schedules(mappings: str) -> None:
    assert many(MANY, mappings=mappings) == []
