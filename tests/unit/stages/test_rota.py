"""A rota's places are as old as their oldest turn, and no older than they must be."""

from __future__ import annotations

import pytest

from migrator.errors import StoppedError
from migrator.stages.lifetimes import Lifetimes
from migrator.stages.presences import Presences
from migrator.stages.refresh import RestoredError
from migrator.stages.rota import TURN_S, Rota
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.fakes.time import VirtualTime
from tests.support_fence import all_answered


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def rota(clock: VirtualTime) -> Rota:
    writers = FakeWriters(clock.clock)
    return Rota(
        Presences(writers, FakeRevisions(), Lifetimes(), clock.clock, all_answered),
        "strict",
        clock.clock,
        lambda: None,
    )


def living(rota: Rota) -> int:
    return len(rota.presences.writers.living(10_000))


def test_turns_share_a_place(rota: Rota) -> None:
    with rota.turn(), rota.turn():
        assert living(rota) == 1
    assert living(rota) == 1
    rota.close()
    assert living(rota) == 0


def test_an_old_place_is_left_when_its_last_turn_has_ended(rota: Rota, clock: VirtualTime) -> None:
    first = rota.enter()
    clock.now += TURN_S
    first.presence.beat()
    second = rota.enter()
    assert living(rota) == 2
    rota.leave(first)
    assert [one.since for one in rota.presences.writers.living(10_000)] == [clock.now]
    rota.leave(second)
    rota.close()
    assert living(rota) == 0


def test_a_place_of_which_a_turn_failed_stays_as_long_as_its_requests_may_live(rota: Rota) -> None:
    with pytest.raises(ValueError, match="x"), rota.turn():
        raise ValueError("x")
    rota.close()
    assert living(rota) == 1


def test_a_turn_of_who_was_silent_for_too_long_is_refused(rota: Rota, clock: VirtualTime) -> None:
    with rota.turn():
        clock.now += 40
    with pytest.raises(StoppedError), rota.turn():
        raise AssertionError("nobody may work here")


def test_where_the_source_went_back_the_next_turn_is_guarded_before_it_begins(
    rota: Rota, clock: VirtualTime
) -> None:
    asked: list[float] = []
    rota.guard = lambda: asked.append(clock.clock())
    for _ in range(3):
        with rota.turn():
            pass
    assert len(asked) == 1, "before each place, not before each turn"
    with pytest.raises(RestoredError), rota.turn():
        raise RestoredError("the counter went back")
    with pytest.raises(StoppedError), rota.turn():
        raise StoppedError("DynamoDB is away")
    with rota.turn():
        pass
    assert len(asked) == 2

    def refuse() -> None:
        raise RestoredError("nobody writes before the repair")

    rota.guard = refuse
    clock.sleep(TURN_S + 1)
    with pytest.raises(RestoredError), rota.turn():
        raise AssertionError("no turn begins")
