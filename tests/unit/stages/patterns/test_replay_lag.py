"""A replay beside a relay that is behind: what it may still bring is waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.stages.patterns.test_replay import Answers, Replayed, rows_of


def counting(asked: list[None]) -> Answers:
    """Answers of SQL that are right, and counted."""

    def answers(params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        asked.append(None)
        return rows_of(params)

    return answers


@pytest.mark.parametrize(("lag_s", "looks"), [(0.0, 5), (60.0, 9)])
def test_it_looks_longer_while_changes_from_before_wait_for_a_relay(lag_s: float, looks: int) -> None:
    asked: list[None] = []
    replayed = Replayed(answers=counting(asked), samples=1, settle_s=0.01)
    replayed.lag_s = lag_s
    replayed.spoil(3, n=7)
    result = replayed.run()
    assert (len(asked), result.clean, result.lag_s) == (looks, False, lag_s)


def test_what_a_late_relay_brings_is_transient() -> None:
    asked: list[None] = []
    replayed = Replayed(answers=counting(asked), samples=1, settle_s=1)
    replayed.lag_s = 60.0
    replayed.sleep = lambda wait_s: replayed.spoil(3, n=3) if len(asked) > 6 else None
    replayed.spoil(3, n=7)
    result = replayed.run()
    assert (len(asked), result.clean, result.lag_s) == (8, True, 0.0)
