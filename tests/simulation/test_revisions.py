"""Two revisions of one job: at rest the items are the newer mapping's. Each guard taken away is found."""

from __future__ import annotations

import pytest

from migrator.model.errors import MigratorError
from tests.simulation.revisions import run_on

SCHEDULES = 1_000


def test_every_schedule_comes_to_what_the_newer_mapping_says() -> None:
    assert [seed for seed in range(SCHEDULES) if run_on(seed).differences()] == []


@pytest.mark.parametrize("guard", ["refuses", "waits"])
def test_a_guard_against_writers_of_the_old_mapping_taken_away_is_found_out(guard: str) -> None:
    for seed in range(SCHEDULES):
        try:
            if run_on(seed, **{guard: False}).differences():
                return
        except (AssertionError, MigratorError):
            return
    pytest.fail(f"{SCHEDULES} schedules did not find it")
