"""A rota's places are as old as their oldest turn, and no older than they must be."""

from __future__ import annotations

import pytest

from migrator.mapping.model.instances import Lifetimes
from migrator.runtime.errors import StoppedError
from migrator.stages.live.refresh import RestoredError
from migrator.stages.live.writers import TURN_S, SharedLeases, WriterHeartbeats
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.fakes.time import VirtualTime
from tests.support_fence import all_answered


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def shared_leases(clock: VirtualTime) -> SharedLeases:
    writers = FakeWriters(clock.clock)
    return SharedLeases(
        WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), clock.clock, all_answered),
        "strict",
        clock.clock,
        lambda: None,
    )


def living(shared_leases: SharedLeases) -> int:
    return len(shared_leases.heartbeats.writers.living(10_000))


def test_turns_share_a_slot(shared_leases: SharedLeases) -> None:
    with shared_leases.turn(), shared_leases.turn():
        assert living(shared_leases) == 1
    assert living(shared_leases) == 1
    shared_leases.close()
    assert living(shared_leases) == 0


def test_time_is_the_journals_even_after_the_last_place_was_left(clock: VirtualTime) -> None:
    """Between two turns no writer is here, and this host's clock may be hours apart."""
    clock.now = 5_000.0
    heartbeats = WriterHeartbeats(
        FakeWriters(clock.clock), FakeRevisions(), Lifetimes(), lambda: clock.now - 4_000, all_answered
    )
    heartbeats.leave(heartbeats.enter("strict"), clean=True)
    clock.now += 30
    assert heartbeats.now_s() == 5_030.0


def test_an_old_place_is_left_when_its_last_turn_has_ended(
    shared_leases: SharedLeases, clock: VirtualTime
) -> None:
    first = shared_leases.enter()
    clock.now += TURN_S
    first.writer_lease.beat()
    second = shared_leases.enter()
    assert living(shared_leases) == 2
    shared_leases.leave(first)
    assert [one.since for one in shared_leases.heartbeats.writers.living(10_000)] == [clock.now]
    shared_leases.leave(second)
    shared_leases.close()
    assert living(shared_leases) == 0


def test_turn_that_could_not_leave_the_place_before_it_is_no_turn(
    shared_leases: SharedLeases, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise StoppedError("the journal does not answer")

    with shared_leases.turn():
        pass
    clock.now += TURN_S
    with monkeypatch.context() as patched:
        patched.setattr(shared_leases.heartbeats.writers, "leave", away)
        with pytest.raises(StoppedError, match="the journal"):
            shared_leases.enter()
    slot = shared_leases.enter()
    assert slot.turns == 1
    shared_leases.leave(slot)


def test_place_of_a_failed_turn_stays_for_its_request_lifetime(
    shared_leases: SharedLeases,
) -> None:
    with pytest.raises(ValueError, match="x"), shared_leases.turn():
        raise ValueError("x")
    shared_leases.close()
    assert living(shared_leases) == 1


def test_a_turn_of_a_writer_silent_for_too_long_is_refused(
    shared_leases: SharedLeases, clock: VirtualTime
) -> None:
    with shared_leases.turn():
        clock.now += 40
    with pytest.raises(StoppedError), shared_leases.turn():
        raise AssertionError("no turn may begin here")


def test_turn_after_a_source_restore_is_guarded_before_it_begins(
    shared_leases: SharedLeases, clock: VirtualTime
) -> None:
    asked: list[float] = []
    shared_leases.guard = lambda: asked.append(clock.clock())
    for _ in range(3):
        with shared_leases.turn():
            pass
    assert len(asked) == 1, "before each place, not before each turn"
    with pytest.raises(RestoredError), shared_leases.turn():
        raise RestoredError("the counter went back")
    with pytest.raises(StoppedError), shared_leases.turn():
        raise StoppedError("DynamoDB is away")
    with shared_leases.turn():
        pass
    assert len(asked) == 2

    def refuse() -> None:
        raise RestoredError("no writer goes on before the repair")

    shared_leases.guard = refuse
    clock.sleep(TURN_S + 1)
    with pytest.raises(RestoredError), shared_leases.turn():
        raise AssertionError("no turn begins")


def test_a_fast_writer_that_was_fenced_stops_at_its_next_check(clock: VirtualTime) -> None:
    writers = FakeWriters(clock.clock)
    lease = WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), clock.clock, all_answered).enter("fast")
    lease.check()
    writers.fence()
    lease.beat()
    with pytest.raises(StoppedError):
        lease.check()
