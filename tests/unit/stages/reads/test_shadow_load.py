"""Shadows of a busy service: none hides a difference, and none keeps the processor from callers."""

from __future__ import annotations

import random
import time

import pytest

from migrator.model.results import PartAnswer
from migrator.settings.job import ShadowSettings
from migrator.stages.reads.shadow import AnsweredCall
from tests.unit.stages.reads.test_shadow import Call, Rows, shadowing


def test_a_shadow_that_computes_for_long_is_seldom_begun() -> None:
    def computes() -> Rows:
        ends_at = time.thread_time() + 0.02
        while time.thread_time() < ends_at:
            pass
        return []

    with shadowing(per_s=20.0, deadline_s=60) as one:
        one.offer(Call([], computes))  # type: ignore[arg-type]
        one.until(lambda window: window.same == 1)
        time.sleep(0.1)
        one.offer(Call([], []))
        assert one.until(lambda window: bool(window.dropped)).dropped == {"budget": 1}


def test_a_copy_that_takes_the_callers_time_counts_as_several_shadows() -> None:
    def copied() -> AnsweredCall:
        ends_at = time.thread_time() + 0.02
        while time.thread_time() < ends_at:
            pass
        return AnsweredCall(Call([], []), "sql", [], {"id": "1"})

    with shadowing(per_s=20.0, deadline_s=60) as one:
        one.shadow.offer("p", copied)
        one.offer(Call([], []))
        assert one.until(lambda window: bool(window.dropped)).dropped == {"budget": 1}


def test_one_comparison_is_made_at_a_time() -> None:
    under_way: list[int] = []

    class Slow(Call):
        def compared(self, items: Rows, rows: Rows) -> tuple[PartAnswer, ...]:
            under_way.append(1)
            time.sleep(0.05)
            most.append(len(under_way))
            under_way.pop()
            return super().compared(items, rows)

    most: list[int] = []
    with shadowing(at_once=4, deadline_s=60) as one:
        for _ in range(4):
            one.offer(Slow([], []))
        one.until(lambda window: window.same == 4)
    assert most == [1, 1, 1, 1]


def tenfold() -> float:
    """Seconds ten times as short as they are."""
    return time.monotonic() * 10


@pytest.mark.parametrize(("share", "calls_per_s"), [(0.3, 100.0), (1.0, 15.0)])
def test_a_busy_service_hides_no_difference(share: float, calls_per_s: float) -> None:
    """As a job without settings has it: many more calls than are compared, or nearly as many."""
    chance = random.Random(7)
    defaults = {name: getattr(ShadowSettings(), name) for name in ("settle_s", "per_s", "at_once")}
    with shadowing(clock=tenfold, deadline_s=6000, **defaults) as one:
        looked_at = 0
        while looked_at < 300:
            for _ in range(30):
                one.offer(Call([(1, 5)], [(1, 6 if chance.random() < share else 5)]))
                time.sleep(0.1 / calls_per_s)
            found = one.until(lambda window: True)
            assert "broken" not in found.dropped
            unsettled = found.dropped.get("unsettled", 0)
            looked_at = found.compared + unsettled
    assert found.transient == 0
    # Those that were judged for good are some of them; with the others it is the share.
    assert abs((found.different + unsettled) / looked_at - share) < 0.1
    assert found.different >= 20
