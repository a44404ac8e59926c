"""What a process tells the journal of itself, and what it hears."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from migrator.dynamodb.throttle import WriteLimit
from migrator.journal.operations import SqlProcesses
from migrator.mapping.model.instances import Advance, ProcessState
from migrator.runtime.errors import StoppedError
from migrator.stages.core.presence import Pace, Presence, process_of
from tests import pins
from tests.support_journal_file import journal_in_file


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[SqlProcesses]:
    with closing(journal_in_file(tmp_path / "journal.db")) as journal:
        yield SqlProcesses(journal.database, "shop", 30)


class Work:
    """How far some work is, by a clock of its own."""

    def __init__(self, processes: SqlProcesses) -> None:
        self.now, self.at = 100.0, Advance(left=1000)
        pace = Pace(WriteLimit(None))
        clock = lambda: self.now  # noqa: E731
        self.presence = Presence(
            *(processes, process_of("backfill"), None, (), pace, lambda: self.at), clock=clock, beat_s=3600
        )

    def goes_on(self, seconds: float, done: int, left: int, trouble: str = "") -> None:
        self.now += seconds
        self.at = Advance(done, left, done, trouble)
        self.presence.beat()


def known(processes: SqlProcesses) -> ProcessState:
    (state,) = processes.read().processes
    return state


def test_rates_are_of_the_last_minute(processes: SqlProcesses) -> None:
    work = Work(processes)
    with work.presence:
        work.goes_on(30, 300, 700)
        assert (known(processes).rate, known(processes).fall) == (10, 10)
        for number in range(1, 13):
            work.goes_on(10, 300 + number * 20, 700 - number * 20)
        state = known(processes)
        assert (round(state.rate), state.done, state.left, state.silent_s) == (2, 540, 460, 0)


def test_presence_reports_how_long_nothing_was_completed(processes: SqlProcesses) -> None:
    work = Work(processes)
    with work.presence:
        work.goes_on(5, 10, 990)
        work.goes_on(40, 10, 990)
        work.goes_on(50, 10, 990)
        assert known(processes).silent_s == 90


def test_a_process_that_ended_is_not_listed(processes: SqlProcesses) -> None:
    work = Work(processes)
    with suppress(StoppedError), work.presence:
        assert known(processes).kind == "backfill"
        raise StoppedError("DynamoDB is away")
    assert list(processes.read().processes) == []


def test_a_trouble_that_is_tried_again_is_a_failure_on_record(processes: SqlProcesses) -> None:
    work = Work(processes)
    with work.presence:
        work.goes_on(5, 1, 2, "waits 4 s: the source is away")
        work.goes_on(5, 2, 1)
        operations = processes.read()
    assert [one.reason for one in operations.failures] == [pins.text()]
    assert operations.processes[0].trouble == ""


def test_a_job_that_is_paused_is_known_before_anything_is_done(processes: SqlProcesses) -> None:
    processes.ask("ops@host", "INC-7", paused=True)
    processes.ask("me@host", "slowly", max_write_units=7)
    work = Work(processes)
    with work.presence:
        assert work.presence.pace.held == "paused by me@host (slowly)"
        assert work.presence.pace.max_write_units == 7
        processes.ask("ops@host", "", paused=False, max_write_units=None)
        work.goes_on(5, 0, 10)
        pace = work.presence.pace
        assert (pace.held, pace.max_write_units) == ("", None)
