"""A relay goes on through what can pass: here a journal that is away when a worker takes its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, current_thread

import pytest

from migrator.model.errors import Interrupted, MigratorError, StoppedError
from migrator.model.instances import Lifetimes
from migrator.model.live import Writer, WriterKind
from migrator.model.results import Worked
from migrator.stages.live.daemon import Daemon
from migrator.stages.live.relay import Relay
from migrator.stages.live.writers import WriterHeartbeats
from tests import pins
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.support_fence import all_answered
from tests.unit.stages.live_world import Shop


class Away(FakeWriters):
    """A journal that cannot be asked, so many times."""

    times = 2

    def enter(self, kind: WriterKind) -> Writer:
        if self.times:
            self.times -= 1
            raise StoppedError("the journal does not answer")
        return super().enter(kind)


@dataclass
class Told:
    """daemon.Listener that stops the daemon when a mark was worked."""

    stop: Event = field(default_factory=Event)
    failures: list[str] = field(default_factory=list)
    finished: int = 0

    def worked(self, worked: Worked, took_ms: int) -> None:
        self.finished += worked.finished
        self.stop.set()

    def failed(self, error: MigratorError, wait_s: float) -> None:
        self.failures.append(str(error))

    def idle(self) -> None:
        return


def daemon(shop: Shop, writers: FakeWriters, told: Told) -> Daemon:
    def relay(check: Callable[[], None]) -> Relay:
        return shop.relay

    heartbeats = WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), writers.clock, all_answered)
    return Daemon(relay, heartbeats, told, lambda: None, workers=1, stop=told.stop)


def test_it_waits_for_a_journal_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.stages.live.daemon.FAILED_S", 0.01)
    shop, told = Shop(), Told()
    shop.change("users", 1, name="Ann")
    daemon(shop, Away(lambda: 0.0), told).run(once=False)
    assert (told.finished, told.failures) == (1, ["the journal does not answer"] * 2)


def test_one_that_runs_once_says_that_it_cannot() -> None:
    with pins.refused(StoppedError):
        daemon(Shop(), Away(lambda: 0.0), Told()).run(once=True)


def test_it_says_what_one_worker_met_and_not_that_the_others_were_stopped() -> None:
    told = Told()

    def relay(check: Callable[[], None]) -> Relay:
        # The first worker is asked first how it ended.
        if current_thread().name == "relay_0":
            told.stop.wait()
            raise Interrupted("stopped while it waited")
        raise StoppedError("the table is gone")

    both = daemon(Shop(), FakeWriters(lambda: 0.0), told)
    both.relay, both.workers = relay, 2
    with pins.refused(StoppedError):
        both.run(once=True)


def test_one_that_is_held_takes_nothing_and_goes_on_when_it_is_let_go() -> None:
    shop, told, looks = Shop(), Told(), []
    shop.change("users", 1, name="Ann")
    held = daemon(shop, FakeWriters(lambda: 0.0), told)

    def why() -> str:
        looks.append(told.finished)
        return "paused by ops" if len(looks) < 3 else ""

    held.held = why
    held.run(once=False)
    assert (looks, told.finished) == ([0, 0, 0], 1)
