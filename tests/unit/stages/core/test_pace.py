"""What holds a process, and how it hears of it."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from migrator.dynamodb.throttle import WriteLimit
from migrator.mapping.model.instances import AS_SET, Throttle
from migrator.runtime.errors import Interrupted, SourceError
from migrator.stages.core.presence import Pace, Strain
from tests import pins

PAUSED = Throttle(paused=True, who="ops@host", since=1.0, reason="INC-7")


def test_a_pause_holds_until_it_is_resumed() -> None:
    pace, naps = Pace(WriteLimit(None)), []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        pace.obey(AS_SET)

    pace.wait(nap)
    assert naps == []
    pace.obey(PAUSED)
    assert pace.held == "paused by ops@host (INC-7)"
    pace.wait(nap)
    assert (len(naps), pace.held) == (1, "")


def test_who_waits_can_be_stopped() -> None:
    pace = Pace(WriteLimit(None))
    pace.obey(PAUSED)

    def stopped(seconds: float) -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        pace.wait(stopped)


def test_throttle_changes_the_limit_and_off_restores_it() -> None:
    limit = WriteLimit(50)
    pace = Pace(limit)
    pace.obey(Throttle(max_write_units=200, who="me", since=1.0))
    assert (limit.units_per_s, pace.max_write_units) == (200, 200)
    pace.obey(Throttle(who="me", since=2.0))
    assert limit.units_per_s == 50
    unlimited = WriteLimit(None)
    free = Pace(unlimited)
    free.obey(Throttle(max_write_units=1, who="me", since=1.0))
    assert unlimited.units_at_most == 1
    free.obey(AS_SET)
    assert unlimited.units_at_most is None


def test_source_above_its_limit_or_unreachable_holds_the_pace() -> None:
    answers: list[float | Exception] = [3.0, 31.0, 25.0, SourceError("it is away"), 1.0]

    def ask() -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    pace = Pace(WriteLimit(None), [Strain("load", "", 25.0, ask)])
    held = []
    for _ in range(5):
        pace.look()
        held.append(pace.held)
    assert [bool(why) for why in held] == [False, True, False, True, False]
    assert held[1] == pins.text("load")
    assert held[3] == pins.text("away")
    assert pace.strains == {"load": (1.0, 25.0)}


def test_source_query_that_never_works_is_an_error_at_the_start() -> None:
    def ask() -> float:
        raise SourceError("no such table")

    with pins.refused(SourceError), Pace(WriteLimit(None), [Strain("load", "", 1, ask)]):
        pass


def test_it_reports_how_long_it_was_held() -> None:
    now = [0.0]
    pace = Pace(WriteLimit(None), clock=lambda: now[0])
    with capture_logs() as logged:
        pace.obey(PAUSED)
        now[0] = 4.0
        assert pace.held_s == 4.0
        pace.obey(AS_SET)
    now[0] = 9.0
    assert pace.held_s == 4.0
    said = [
        (line["event"], line.get("why", line.get("held_s")))
        for line in logged
        if line["log_level"] == "warning"
    ]
    assert said == [("process_held", "paused by ops@host (INC-7)"), ("process_goes_on", 4.0)]
