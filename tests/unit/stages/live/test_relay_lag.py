"""How far items are behind rows, as a shadow knows it."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from migrator.model.errors import SourceError
from migrator.model.live import MarksState
from migrator.stages.live.daemon import RelayLag


def test_the_source_is_asked_once_a_second() -> None:
    states, now = [MarksState(1, 5.0), MarksState(2, 7.0)], [0.0]
    lag = RelayLag(lambda: states.pop(0), lambda: now[0])
    assert [lag(), lag()] == [5.0, 5.0]
    now[0] = 1.5
    assert lag() == 7.0


def test_what_is_known_grows_older_until_it_is_asked_again() -> None:
    now = [0.0]
    lag = RelayLag(lambda: MarksState(1, 5.0), lambda: now[0])
    assert lag() == 5.0
    now[0] = 0.8
    assert lag() == pytest.approx(5.8)


def test_no_caller_waits_for_another_that_asks() -> None:
    asking, answer = Event(), Event()

    def slow() -> MarksState:
        asking.set()
        assert answer.wait(120)
        return MarksState(1, 5.0)

    lag = RelayLag(slow)
    thread = Thread(target=lag)
    thread.start()
    try:
        assert asking.wait(120)
        assert lag() == 0.0
    finally:
        answer.set()
        thread.join()
    assert lag() >= 5.0


def test_marks_that_failed_say_nothing_of_the_others() -> None:
    assert RelayLag(lambda: MarksState(1, 86_400.0, failed=1))() == 0.0


def test_a_user_that_may_not_read_marks_goes_by_time_alone() -> None:
    def refused() -> MarksState:
        raise SourceError("the source says no")

    assert RelayLag(refused)() == 0.0
