"""Looks for a schedule that shows what a broken rule does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from migrator.runtime.errors import MigratorError
from tests.simulation.actors import Cast, run
from tests.simulation.world import Parts, World

SCHEDULES = 8000


def found_out(
    cast_of: Callable[[World], Cast] = Cast,
    parts: Parts = Parts(),  # noqa: B008  (frozen)
    first: int = 0,
) -> int:
    """The first seed, from `first` on, whose schedule does not end with the items that the rows make.

    `first` spares the time of a rule that is seldom missed; nothing is known of the seeds that are left out.
    """
    for seed in range(first, first + SCHEDULES):
        try:
            if run(seed, cast_of, parts).differences():
                return seed
        except (AssertionError, MigratorError):
            return seed
    pytest.fail(f"{SCHEDULES} schedules did not find it")
