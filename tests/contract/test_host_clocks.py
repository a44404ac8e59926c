"""A process that was killed on a host whose clock is minutes ahead keeps the others waiting no longer than any other."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from migrator.journal.database import TEST_CLOCK
from migrator.journal.operations import LIFE_S, PROCESSES, WINDOW_S, RunLease, SqlProcesses
from migrator.journal.reverse import SqlStreamJournal
from migrator.journal.runs import SqlJournal
from migrator.journal.source_capture import JournalMarks
from migrator.journal.writers import SqlInstances, SqlWriters
from migrator.mapping.model.instances import Advance, Instance, ProcessState, Share
from migrator.mapping.model.journal import Page, RunIdentity
from migrator.mapping.model.live import LONGEST_WAIT_S, Mark, Shard
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from tests.journeys.test_read_only_folder import read_only
from tests.support_capture import capturing, new_sqlite
from tests.support_journal_file import journal_in_file

AHEAD_S = 600.0
PAGES = [Page("order", 1, "[0]", None)]
SERVICE = Instance("shop", "web-1", 1, "1", "1", "read", "", "abc", "")
STREAM = "arn:aws:dynamodb:eu:1:table/Shop/stream/1"
At = Callable[[float], None]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    made = journal_in_file(tmp_path / "shop.db")
    yield made
    made.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    return lambda seconds: monkeypatch.setenv(TEST_CLOCK, str(seconds))


def test_run_lease_of_clock_ahead_ends_after_one_life(
    journal: SqlJournal, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(AHEAD_S)
    other = RunLease(journal, "shop", heartbeat_s=3600)
    other.holder = replace(other.holder, host="another-host")
    other._acquire()
    at(0)
    with pytest.raises(SettingsError):
        RunLease(journal, "shop").__enter__()
    at(LIFE_S + 1)
    with RunLease(journal, "shop") as taken:
        taken.check()


def test_run_lease_of_clock_ahead_stands_while_it_is_renewed(journal: SqlJournal, at: At) -> None:
    at(AHEAD_S)
    with RunLease(journal, "shop", heartbeat_s=3600) as other:
        for passed_s in (20.0, 40.0, 60.0):
            at(passed_s)
            with suppress(SettingsError):
                RunLease(journal, "shop").__enter__()
            at(passed_s + AHEAD_S)
            other._renew()
            other.check()


def test_page_of_clock_ahead_is_claimed_after_one_lease(journal: SqlJournal, at: At) -> None:
    run = journal.start_run(RunIdentity("backfill", "shop", "table-1", "rev1"))
    journal.plan_pages(run, "order", PAGES)
    at(AHEAD_S)
    assert journal.claim_pages(run, "order", "a", 1, 60) == PAGES
    at(0)
    assert journal.claim_pages(run, "order", "b", 1, 60) == []
    at(61)
    assert journal.claim_pages(run, "order", "b", 1, 60) == PAGES


def test_shard_of_clock_ahead_is_claimed_after_one_lease(journal: SqlJournal, at: At) -> None:
    shards = SqlStreamJournal(journal.database, "shop", "Shop")
    shards.begin(STREAM)
    shards.list_shards(STREAM, [Shard("a")], 0)
    at(AHEAD_S)
    assert len(shards.claim(STREAM, "a", 60).shards) == 1
    at(0)
    assert len(shards.claim(STREAM, "b", 60).shards) == 0
    at(61)
    assert len(shards.claim(STREAM, "b", 60).shards) == 1


def test_writer_of_clock_ahead_is_dead_after_its_silence(journal: SqlJournal, at: At) -> None:
    writers = SqlWriters(journal.database, "table-1")
    at(AHEAD_S)
    writers.enter("fast")
    at(0)
    own = writers.enter("relay")
    assert len(writers.living(60)) == 2
    at(61)
    assert [writer.id for writer in writers.living(60)] == []
    writers.beat(own)
    assert [writer.id for writer in writers.living(60)] == [own.id]


def test_writer_of_clock_ahead_is_dead_for_those_that_only_read(journal: SqlJournal, at: At) -> None:
    writers = SqlWriters(journal.database, "table-1")
    at(AHEAD_S)
    writers.enter("fast")
    at(0)
    assert len(writers.living(60)) == 1
    at(61)
    assert writers.living(60) == []


@pytest.mark.parametrize("in_snapshot", [False, True])
def test_instance_of_clock_ahead_is_gone_after_its_silence(
    journal: SqlJournal, at: At, *, in_snapshot: bool
) -> None:
    instances = SqlInstances(journal.database, "shop")
    at(AHEAD_S)
    instances.enter(SERVICE)
    at(0)
    read = partial(instances.registry, 60)
    first = journal.database.snapshot(read) if in_snapshot else read()
    assert [instance.alive_at for instance in first.living] == [pytest.approx(first.now_s, abs=60)]
    at(61)
    registry = instances.registry(60)
    assert (registry.living, len(registry.silent), registry.replaced) == ([], 1, [])
    assert instances.forget_silent(60) == 1


def test_a_clock_ahead_reports_no_later_than_now(journal: SqlJournal, at: At) -> None:
    processes = SqlProcesses(journal.database, "shop", 60)
    at(AHEAD_S)
    processes.beat("one", ProcessState("relay", "host", 1, "marks"), None, Advance())
    at(0)
    processes.read()
    at(61)
    (state,) = (read := processes.read()).processes
    assert read.now_s - state.alive_at == pytest.approx(61, abs=5)


def test_share_of_clock_ahead_leaves_room_after_its_silence(journal: SqlJournal, at: At) -> None:
    processes = SqlProcesses(journal.database, "shop", 60)
    at(AHEAD_S)
    for name in ("killed", "left"):
        processes.beat(name, None, Share(name, "run 1", 1), Advance())
    processes.leave("left", None)
    # Of another host, whose processes cannot be seen here.
    with journal.database.begin() as connection:
        for name, kept in PROCESSES.all(connection, "shop").items():
            other = replace(kept.holder, host="another-host")
            PROCESSES.put(connection, "shop", replace(kept, holder=other), name)
    at(0)
    own = ("own", None, Share("own", "run 1"), Advance())
    assert processes.beat(*own)[1] == 0
    at(WINDOW_S + 1)
    assert processes.at_work("run 1") == 2
    at(60 + WINDOW_S + 1)
    assert (processes.at_work("run 1"), processes.beat(*own)[1]) == (0, 1)


def test_read_only_journal_of_clock_ahead_is_read(journal: SqlJournal, at: At, tmp_path: Path) -> None:
    at(AHEAD_S)
    SqlInstances(journal.database, "shop").enter(SERVICE)
    at(0)
    journal.close()
    copy = tmp_path / "kept" / "shop.db"
    copy.parent.mkdir()
    shutil.copy(tmp_path / "shop.db", copy)
    with read_only(copy.parent), closing(journal_in_file(copy)) as kept:
        assert len(SqlInstances(kept.database, "shop").registry(60).living) == 1


def test_mark_put_back_by_clock_ahead_returns_after_longest_wait(journal: SqlJournal, at: At) -> None:
    marks = JournalMarks(journal.database, "shop", lambda table, text: {})
    marks.add({("order", "[1]"): []})
    at(AHEAD_S)
    marks.put_back([mark.id for mark in marks.take(1, 60)], 1)
    at(0)
    assert marks.take(1, 60) == []
    at(LONGEST_WAIT_S + 1)
    assert len(marks.take(1, 60)) == 1


def test_mark_in_the_journal_of_clock_ahead_is_taken_after_lease(journal: SqlJournal, at: At) -> None:
    marks = JournalMarks(journal.database, "shop", lambda table, text: {})
    marks.add({("order", "[1]"): []})
    at(AHEAD_S)
    assert len(marks.take(1, 60)) == 1
    at(0)
    assert marks.take(1, 60) == []
    at(61)
    assert len(marks.take(1, 60)) == 1


def test_mark_put_back_in_a_file_by_clock_ahead_has_longest_wait(tmp_path: Path) -> None:
    with capturing("sqlite", new_sqlite(tmp_path / "source.db")) as made:
        made.install()
        made.marks.add({("order", "[1]"): []})
        made.marks.put_back([mark.id for mark in made.marks.take(1, 60)], 1)

        def at(seconds: float) -> None:
            made.run(f"UPDATE migrator_mark SET ready_at = ready_at + {seconds}")

        def take() -> list[Mark]:
            made.marks.from_the_first()
            return made.marks.take(1, 60)

        at(AHEAD_S)
        assert take() == []
        at(-LONGEST_WAIT_S - 1)
        assert len(take()) == 1


def test_mark_in_a_file_of_clock_ahead_is_taken_after_one_lease(tmp_path: Path) -> None:
    with capturing("sqlite", new_sqlite(tmp_path / "source.db")) as made:
        made.install()
        made.marks.add({("order", "[1]"): []})

        def at(seconds: float) -> None:
            made.run(f"UPDATE migrator_mark SET leased_until = leased_until + {seconds}")

        def take() -> list[Mark]:
            made.marks.from_the_first()
            return made.marks.take(1, 60)

        assert len(take()) == 1
        at(AHEAD_S)
        assert take() == []
        at(-61)
        assert len(take()) == 1
