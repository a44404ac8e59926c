"""What happened, counted by minute and handed to the journal."""

from __future__ import annotations

import time
from threading import Event

import pytest
from structlog.testing import capture_logs

from migrator.mapping.model.evidence import SAMPLES_KEPT, DiffKey, Sample, Window
from migrator.runtime.errors import StoppedError
from migrator.stages.patterns.latencies import added
from migrator.stages.reads import metrics
from migrator.stages.reads.metrics import ReadMetrics
from tests.fakes.evidence import FakeEvidence
from tests.support_waiting import until

BLANK = Window("", 0, "", "shop", "rev", "service")
KEY = DiffKey("value", "", "total")


class Clock:
    def __init__(self) -> None:
        self.now = 6000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def evidence(clock: Clock) -> FakeEvidence:
    return FakeEvidence(clock)


@pytest.fixture
def ledger(evidence: FakeEvidence, clock: Clock) -> ReadMetrics:
    return ReadMetrics(evidence, BLANK, {}, lambda: "me", clock=clock, every_s=0.01)


def test_counts_grow_until_their_minute_is_over(
    ledger: ReadMetrics, evidence: FakeEvidence, clock: Clock
) -> None:
    ledger.answered("p", "sql", 1.5)
    ledger.flush()
    ledger.answered("p", "sql", 2.5)
    ledger.answered("p", "table", 4)
    ledger.compared("p", "same", "limit")
    ledger.compared("p", "different", "", {KEY: 2}, [Sample("p", KEY, 1.0, "me", "rev")])
    ledger.dropped("p", "busy")
    ledger.failed("q", "table", Sample("q", DiffKey("error", "", "table"), 1.0, "me", "rev", why="away"))
    ledger.flush()
    clock.now += 59
    ledger.compared("p", "transient", "limit")
    ledger.flush()
    first, second = evidence.windows(0)
    assert (first.begun_at, first.writer, first.service, first.revision) == (6000, "me", "shop", "rev")
    assert (first.answered, first.dropped) == ({"sql": 2, "table": 1}, {"busy": 1})
    assert (first.compared, first.same, first.transient, first.different) == (3, 1, 1, 1)
    assert (first.kinds, first.found) == ({"limit": 2, "": 1}, {KEY: 2})
    assert added([first.latency["sql"]]).answers == 2
    assert (second.pattern, second.errors) == ("q", {"table": 1})
    assert second.found == {DiffKey("error", "", "table"): 1}
    assert len(evidence.samples()) == 2
    clock.now += 2
    ledger.answered("p", "sql", 1)
    ledger.flush()
    assert [one.begun_at for one in evidence.windows(0, "p")] == [6000, 6060]
    assert evidence.windows(0, "p")[0] == first


def test_a_journal_that_is_away_loses_no_count(
    ledger: ReadMetrics, evidence: FakeEvidence, clock: Clock
) -> None:
    evidence.away = StoppedError("away")
    for _ in range(5):
        for _ in range(100):
            ledger.answered("p", "sql", 1)
            ledger.compared("p", "different", "", {KEY: 1}, [Sample("p", KEY, clock.now, "me", "rev")])
        with pytest.raises(StoppedError):
            ledger.flush()
        clock.now += 60
    evidence.away = None
    ledger.flush()
    found = evidence.windows(0)
    assert [one.compared for one in found] == [100] * 5
    assert len(evidence.samples()) == SAMPLES_KEPT
    ledger.flush()
    assert evidence.windows(0) == found


def test_there_is_a_bound_to_what_is_kept(
    ledger: ReadMetrics, evidence: FakeEvidence, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "WINDOWS_HELD", 3)
    monkeypatch.setattr(metrics, "EVENTS_HELD", 10)
    evidence.away = StoppedError("away")
    for _ in range(6):
        for _ in range(12):
            ledger.answered("p", "sql", 1)
        with pytest.raises(StoppedError):
            ledger.flush()
        clock.now += 60
    evidence.away = None
    ledger.flush()
    # The last one tells of what went when there were too many.
    assert [one.answered.get("sql") for one in evidence.windows(0)] == [10, 10, 10, None]
    assert sum(one.dropped[metrics.LOST] for one in evidence.windows(0)) == 12
    assert ledger.lost == 12


def test_what_is_lost_stands_in_the_log(evidence: FakeEvidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "EVENTS_HELD", 1)
    evidence.away = StoppedError("away")
    with capture_logs() as logs:
        with ReadMetrics(evidence, BLANK, {}, lambda: "me", every_s=60) as ledger:
            for _ in range(5):
                ledger.dropped("p", "busy")
        assert [(one["event"], one["lost"]) for one in logs] == [("counts_cannot_be_kept", 4)]


def test_an_error_that_is_not_ours_ends_no_counting(
    ledger: ReadMetrics, evidence: FakeEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fails(windows: object, samples: object) -> None:
        asked.append(1)
        raise ValueError("ann@example.com")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(evidence, "keep", fails)
        ledger.__enter__()
        ledger.answered("p", "sql", 1)
        until(lambda: len(asked) > 3)
        assert [(one["event"], one["reason"]) for one in logs] == [("counts_cannot_be_kept", "ValueError")]
    until(lambda: bool(evidence.windows(0)))
    ledger.__exit__()


def test_before_it_has_a_name_nothing_is_handed_on(evidence: FakeEvidence, clock: Clock) -> None:
    names = [""]
    ledger = ReadMetrics(evidence, BLANK, {}, lambda: names[0], clock=clock)
    ledger.answered("p", "sql", 1)
    ledger.flush()
    assert evidence.windows(0) == []
    names[0] = "me"
    ledger.flush()
    assert [one.writer for one in evidence.windows(0)] == ["me"]


def test_a_thread_hands_over_and_so_does_the_end(ledger: ReadMetrics, evidence: FakeEvidence) -> None:
    with ledger:
        ledger.answered("p", "sql", 1)
        until(lambda: evidence.windows(0))
        ledger.every_s = 60
        time.sleep(0.05)
        ledger.answered("p", "sql", 1)
    assert evidence.windows(0)[0].answered == {"sql": 2}


def test_an_event_waits_for_nothing(clock: Clock) -> None:
    """While the journal hangs."""

    class Hanging(FakeEvidence):
        answers, asking = Event(), Event()

        def keep(self, windows: object, samples: object) -> None:
            self.asking.set()
            assert self.answers.wait(120)

    evidence = Hanging(clock)
    with ReadMetrics(evidence, BLANK, {}, lambda: "me", clock=clock, every_s=0.01) as ledger:
        ledger.answered("p", "sql", 1)
        assert evidence.asking.wait(120)
        for _ in range(1000):
            # A caller that waited for the journal would wait for the line after this loop.
            ledger.answered("p", "sql", 1)
        evidence.answers.set()


def test_move_begins_a_new_window_without_earlier_counts(evidence: FakeEvidence, clock: Clock) -> None:
    versions = {"p": 1}
    ledger = ReadMetrics(evidence, BLANK, {}, lambda: "me", clock=clock, versions=lambda: versions)
    clock.now += 5
    for _ in range(2):
        ledger.compared("p", "same", "")
        ledger.flush()
    begun_at = evidence.windows(0)[0].begun_at
    clock.now += 10.5
    versions = {"p": 2}
    ledger.compared("p", "different", "")
    ledger.compared("q", "same", "")
    ledger.flush()
    ledger.compared("p", "same", "")
    ledger.flush()
    versions = {"p": 3}
    ledger.flush()
    ledger.compared("p", "same", "")
    ledger.flush()
    clock.now += 60
    ledger.compared("p", "same", "")
    ledger.flush()
    found = evidence.windows(0, "p")
    assert sum(one.compared for one in found) == 6
    assert [(one.begun_at, one.different) for one in found if one.begun_at > 6015] == [
        (6016, 0),
        (6017, 0),
        (6060, 0),
    ]
    assert begun_at in (6000, 6006)
    assert [one.begun_at for one in evidence.windows(0, "q")] == [6000]
