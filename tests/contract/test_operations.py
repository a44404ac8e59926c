"""Processes, failures and what is asked of them, on each kind of journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from migrator.journal.operations import MINUTES_KEPT_S, SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import record
from migrator.mapping.model.instances import AS_SET, Advance, ProcessState
from migrator.runtime.values import replace

STATE = ProcessState(
    "relay", "host-1", 77, "0.1.0", done=5, left=10**12, rate=0.5, fall=-0.5, held="it waits"
)


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def journal(request: pytest.FixtureRequest) -> Iterator[SqlJournal]:
    url = "sqlite://" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_journal")
    with closing(SqlJournal(url)) as made:
        yield made
        with made.database.begin() as connection:
            connection.execute(record.delete())


def test_process_is_known_by_its_last_beat_and_journal_clock(journal: SqlJournal) -> None:
    processes = SqlProcesses(journal.database, "shop", 30)
    first, _, throttle = processes.beat("one", STATE, None, Advance())
    assert first is not None
    assert (throttle, first.since, first.alive_at) == (AS_SET, first.alive_at, first.since)
    second, _, _ = processes.beat("one", replace(first, done=6), None, Advance())
    assert second is not None
    assert (first.id, second.id, second.since) == ("one", "one", first.since)
    operations = processes.read()
    assert list(operations.processes) == [second]
    assert 0 <= operations.now_s - second.alive_at < 120
    assert list(SqlProcesses(journal.database, "other", 30).read().processes) == []
    processes.leave("one", Advance())
    assert list(processes.read().processes) == []


def test_the_last_failure_of_each_kind_stays(journal: SqlJournal) -> None:
    processes = SqlProcesses(journal.database, "shop", 30)
    for reason in ("one", "two"):
        processes.failed(STATE, reason)
    processes.failed(replace(STATE, kind="backfill"), "three")
    assert {one.kind: one.reason for one in processes.read().failures} == {
        "relay": "two",
        "backfill": "three",
    }


def test_what_is_not_named_stays_open(journal: SqlJournal) -> None:
    processes = SqlProcesses(journal.database, "shop", 30)
    processes.ask("me", "INC-7", paused=True)
    asked = processes.ask("you", "", max_write_units=2**40)
    assert (asked.paused, asked.max_write_units, asked.who, asked.reason) == (True, 2**40, "you", "")
    assert processes.throttle() == asked
    assert processes.beat("one", STATE, None, Advance())[2] == asked
    assert not processes.ask("you", "", paused=False).paused


def test_writes_of_a_process_are_kept_by_the_minute(journal: SqlJournal) -> None:
    processes = SqlProcesses(journal.database, "shop", 30)
    first, _, _ = processes.beat("one", STATE, None, Advance(items=3, write_units=4.5, lag_s=2.0))
    assert first is not None
    processes.leave("one", Advance(items=2**40, write_units=9.5, lag_s=1.0))
    *_, last = processes.minutes(first.since)
    assert (last.process, last.items, last.write_units, last.lag_s) == (first.id, 2**40, 9.5, 1.0)
    assert last.begun_at % 60 == 0
    assert first.since - 60 < last.begun_at <= first.since + 120
    assert SqlProcesses(journal.database, "other", 30).minutes(0) == []
    with journal.database.begin() as connection:
        old = record.update().where(record.c.kind == "progress")
        connection.execute(old.values(alive_at=last.begun_at - MINUTES_KEPT_S - 120))
    processes.beat("two", STATE, None, Advance())
    assert [minute.process == first.id for minute in processes.minutes(0)] == [False]
