"""A relay goes on through what can pass: here a journal that is away when a worker takes its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread, current_thread

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.live import MarksState, Writer, WriterKind
from migrator.mapping.model.results import Worked
from migrator.runtime.errors import Interrupted, MigratorError, SourceError, StoppedError
from migrator.stages.live import daemon as daemon_module
from migrator.stages.live.daemon import Daemon, RelayLag
from migrator.stages.live.relay import Relay
from migrator.stages.live.writers import WriterHeartbeats
from tests import pins
from tests.fakes.journal import FakeRevisions, FakeWriters
from tests.support_fence import all_answered
from tests.unit.stages.core.live_world import Shop


class Away(FakeWriters):
    """A journal that cannot be asked, so many times."""

    times = 2

    def enter(self, kind: WriterKind) -> Writer:
        if self.times:
            self.times -= 1
            raise StoppedError("the journal does not answer")
        return super().enter(kind)


@dataclass
class RowPart:
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


def daemon(shop: Shop, writers: FakeWriters, told: RowPart) -> Daemon:
    def relay(check: Callable[[], None]) -> Relay:
        return shop.relay

    heartbeats = WriterHeartbeats(writers, FakeRevisions(), Lifetimes(), writers.clock, all_answered)
    return Daemon(relay, heartbeats, told, lambda: None, workers=1, stop=told.stop)


def test_it_waits_for_a_journal_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.stages.live.daemon.FAILED_S", 0.01)
    shop, told = Shop(), RowPart()
    shop.change("users", 1, name="Ann")
    daemon(shop, Away(lambda: 0.0), told).run(once=False)
    assert (told.finished, told.failures) == (1, ["the journal does not answer"] * 2)


def test_one_that_runs_once_reports_that_it_cannot() -> None:
    with pins.refused(StoppedError):
        daemon(Shop(), Away(lambda: 0.0), RowPart()).run(once=True)


def test_daemon_reports_the_worker_error_not_the_interruptions() -> None:
    told = RowPart()

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


def test_held_relay_takes_nothing_and_continues_when_released() -> None:
    shop, told, looks = Shop(), RowPart(), []
    shop.change("users", 1, name="Ann")
    held = daemon(shop, FakeWriters(lambda: 0.0), told)

    def why() -> str:
        looks.append(told.finished)
        return "paused by ops" if len(looks) < 3 else ""

    held.held = why
    held.run(once=False)
    assert (looks, told.finished) == ([0, 0, 0], 1)


def test_the_source_is_queried_once_a_second() -> None:
    states, now = [MarksState(1, 5.0), MarksState(2, 7.0)], [0.0]
    lag = RelayLag(lambda: states.pop(0), lambda: now[0])
    assert [lag(), lag()] == [5.0, 5.0]
    now[0] = 1.5
    assert lag() == 7.0


def test_cached_state_ages_until_it_is_read_again() -> None:
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


def test_failed_marks_do_not_affect_the_others() -> None:
    assert RelayLag(lambda: MarksState(1, 86_400.0, failed=1))() == 0.0


def test_a_user_that_may_not_read_marks_goes_by_time_alone() -> None:
    def refused() -> MarksState:
        raise SourceError("the source says no")

    assert RelayLag(refused)() == 0.0


def test_a_span_goes_to_the_applications_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with daemon_module.span("migrator.relay", marks=3):
        pass
    (span,) = exporter.get_finished_spans()
    assert (span.name, dict(span.attributes or {})) == ("migrator.relay", {"marks": 3})


def test_without_opentelemetry_there_is_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "trace", None)
    with daemon_module.span("migrator.relay") as nothing:
        assert nothing is None
