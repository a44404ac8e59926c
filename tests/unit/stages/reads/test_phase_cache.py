"""Phases as a service knows them."""

from __future__ import annotations

import time
from threading import Event

import pytest
from structlog.testing import capture_logs

from migrator.model.errors import SettingsError, StoppedError
from migrator.model.evidence import OFF, Move, PatternPhase, State
from migrator.stages.reads.phases import PhaseCache
from tests import pins
from tests.fakes.phases import FakePhases
from tests.unit.stages.live.test_instances import until


class Away(FakePhases):
    """Phases that cannot be asked while there is a `fault`."""

    fault: Exception | None = None
    asked = 0

    def all(self) -> dict[str, PatternPhase]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return super().all()


@pytest.fixture
def phases() -> Away:
    return Away(time.time)


def move(phases: FakePhases, before: State, after: State, version: int) -> None:
    phases.move(Move("p", before, after, "me"), version)


def test_phases_are_renewed_and_confirmed_once_calls_act_by_them(phases: Away) -> None:
    with PhaseCache(phases, lambda: "me", 0.01) as cache:
        assert cache.state("p") == OFF
        move(phases, OFF, State("shadow"), 0)
        until(lambda: cache.state("p") == State("shadow"))
        until(lambda: phases.confirmed() == {"me": {"p": 1}})
        move(phases, State("shadow"), State("ramp", 10), 1)
        until(lambda: phases.confirmed() == {"me": {"p": 2}})
        assert cache.state("p") == State("ramp", 10)
        assert cache.state("unknown") == OFF


def test_an_instance_without_an_id_confirms_later(phases: Away) -> None:
    names = [""]
    move(phases, OFF, State("shadow"), 0)
    with PhaseCache(phases, lambda: names[0], 0.01) as cache:
        assert cache.state("p") == State("shadow")
        assert phases.confirmed() == {}
        names[0] = "me"
        until(lambda: phases.confirmed() == {"me": {"p": 1}})


@pytest.mark.parametrize(
    "fault", [StoppedError("away"), SettingsError("edited by hand"), KeyError("a secret"), MemoryError()]
)
def test_a_start_that_cannot_ask_fails_and_later_the_last_known_stay(phases: Away, fault: Exception) -> None:
    phases.fault = fault
    with pytest.raises(type(fault)), PhaseCache(phases, lambda: "me", 0.01):
        pass
    phases.fault = None
    move(phases, OFF, State("live"), 0)
    with capture_logs() as logs, PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.fault = fault
        before = phases.asked
        until(lambda: phases.asked > before + 3)
        assert cache.state("p") == State("live")
        assert [one["event"] for one in logs] == ["phases_cannot_be_read"]
        assert "secret" not in str(logs)
        phases.fault = None
        move(phases, State("live"), State("shadow"), 1)
        until(lambda: cache.state("p") == State("shadow"))


def test_a_state_is_given_while_the_journal_hangs() -> None:
    class Hanging(FakePhases):
        answers, asking = Event(), Event()

        def all(self) -> dict[str, PatternPhase]:
            if not self.answers.is_set():
                self.asking.set()
                assert self.answers.wait(120)
            return super().all()

    phases = Hanging(time.time)
    phases.answers.set()
    with PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.answers.clear()
        assert phases.asking.wait(120)
        # A caller that waited for the journal would wait for the line after this one.
        assert [cache.state("p") for _ in range(1000)] == [OFF] * 1000
        phases.answers.set()


class Edited(FakePhases):
    """Phases of which one was edited by hand."""

    edited = ""

    def all(self) -> dict[str, PatternPhase]:
        found = super().all()
        if self.edited:
            found[self.edited] = PatternPhase(self.edited, State("live"), 7, 0.0, "p was edited by hand")
        return found


def test_a_phase_that_was_edited_by_hand_holds_up_no_other_one() -> None:
    phases = Edited(time.time)
    move(phases, OFF, State("shadow"), 0)
    with capture_logs() as logs, PhaseCache(phases, lambda: "me", 0.01) as cache:
        phases.edited = "p"
        phases.move(Move("q", OFF, State("shadow"), "me"), 0)
        until(lambda: cache.state("q") == State("shadow"))
        assert cache.state("p") == State("shadow")
        until(lambda: phases.confirmed() == {"me": {"p": 1, "q": 1}})
        until(lambda: [one["reason"] for one in logs] == ["p was edited by hand"])
    with pins.refused(SettingsError), PhaseCache(phases, lambda: "me", 0.01):
        pass
