"""How far items are behind rows, as a shadow knows it."""

from __future__ import annotations

from migrator.errors import SourceError
from migrator.ports.live import MarksState
from migrator.stages.relay_lag import RelayLag


def test_the_source_is_asked_once_a_second() -> None:
    states, now = [MarksState(1, 5.0), MarksState(2, 7.0)], [0.0]
    lag = RelayLag(lambda: states.pop(0), lambda: now[0])
    assert [lag(), lag()] == [5.0, 5.0]
    now[0] = 1.5
    assert lag() == 7.0


def test_marks_that_failed_say_nothing_of_the_others() -> None:
    assert RelayLag(lambda: MarksState(1, 86_400.0, failed=1))() == 0.0


def test_who_may_not_read_marks_goes_by_time_alone() -> None:
    def refused() -> MarksState:
        raise SourceError("the source says no")

    assert RelayLag(refused)() == 0.0
