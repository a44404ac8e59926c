"""What every journal keeps: on a SQLite file, in memory, on PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from migrator.errors import SettingsError, StoppedError
from migrator.journal.lease import RunLease
from migrator.journal.store import SqlJournal
from migrator.ports import Finding, Page, RunIdentity, SegmentState, Tally

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")
REFUSED = Finding("refused", "order", "no total", "[1]")
PAGES = [Page("order", 1, None, "[10]"), Page("order", 2, "[10]", "[20]"), Page("order", 3, "[20]", None)]


@pytest.fixture(params=["file", "memory", "postgresql"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    if request.param == "file":
        made = SqlJournal.in_file(tmp_path / "deep" / "shop.db")
    elif request.param == "memory":
        made = SqlJournal.in_memory()
    else:
        made = SqlJournal(request.getfixturevalue("postgres_database"))
    yield made
    made.close()


def test_a_run_is_found_by_what_it_is(journal: SqlJournal) -> None:
    assert journal.find_run(IDENTITY) is None
    run = journal.start_run(IDENTITY)
    assert journal.find_run(IDENTITY) == run
    assert journal.find_run(RunIdentity("backfill", "shop", "table-2", "rev1")) is None
    assert journal.find_run(RunIdentity("verify", "shop", "table-1", "rev1")) is None
    assert journal.find_run(RunIdentity("backfill", "shop", "table-1", "rev1", "order")) is None


def test_an_ended_run_is_resumed(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.end_run(run, "interrupted")
    found = journal.find_run(IDENTITY)
    assert found is not None
    assert (found.state, found.ended_at is None) == ("interrupted", False)
    resumed = journal.resume_run(found)
    assert (resumed.id, resumed.state, resumed.resumed) == (run.id, "running", True)
    again = journal.start_run(IDENTITY)
    assert [one.id for one in journal.runs("shop")] == [run.id, again.id]
    assert journal.runs("other") == []
    assert journal.find_run(IDENTITY) == again


def test_pages_are_open_until_they_are_finished(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    journal.plan_pages(run, "empty", [])
    assert journal.planned(run) == {"order", "empty"}
    pages = journal.open_pages(run, "order")
    assert next(pages) == PAGES[0]
    journal.finish_page(run, PAGES[1], Tally(rows=10, items=20, bytes=300, write_units=20.5), [])
    assert list(journal.open_pages(run, "order")) == [PAGES[0], PAGES[2]]
    assert journal.page_counts(run, "order") == (1, 3)
    assert (
        journal.tally(run)
        == journal.tally(run, "order")
        == Tally(rows=10, items=20, bytes=300, write_units=20.5)
    )
    assert journal.tally(run, "empty") == Tally()


def test_all_pages_are_planned_or_none(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)

    def broken() -> Iterator[Page]:
        yield PAGES[0]
        raise StoppedError("the source went away")

    with pytest.raises(StoppedError):
        journal.plan_pages(run, "order", broken())
    assert journal.planned(run) == set()
    assert list(journal.open_pages(run, "order")) == []


def test_a_page_that_is_repeated_counts_once(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    for _ in range(2):
        journal.finish_page(run, PAGES[0], Tally(rows=10, refused=1), [REFUSED])
    assert journal.tally(run) == Tally(rows=10, refused=1)
    assert journal.findings(run) == [REFUSED]
    assert journal.finding_counts(run) == {"refused": 1}


def test_findings_belong_to_their_run_and_keep_their_order(journal: SqlJournal) -> None:
    first, second = journal.start_run(IDENTITY), journal.start_run(IDENTITY)
    many = [Finding("missing", "order", "none", f"[{number}]") for number in range(1200)]
    journal.add_findings(first, many)
    journal.add_findings(second, [REFUSED])
    assert journal.findings(first) == many
    assert journal.findings(first, 3) == many[:3]
    assert journal.finding_counts(second) == {"refused": 1}


def test_a_scan_goes_on_where_it_was(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    assert journal.segment(run, 0) == SegmentState()
    key = ("USER#1", Decimal("1.50"), b"\x00\xff")
    for state in (SegmentState(key, False, {"items": 3}), SegmentState(None, True, {"items": 5})):
        journal.save_segment(run, 0, state, [REFUSED])
        assert journal.segment(run, 0) == state
    assert journal.segment(run, 1) == SegmentState()
    assert journal.findings(run) == [REFUSED]


def test_a_job_knows_the_tables_that_it_wrote_to(journal: SqlJournal) -> None:
    journal.start_run(IDENTITY)
    journal.start_run(RunIdentity("verify", "shop", "table-2", "rev1"))
    assert journal.written_tables("shop") == {"table-1"}
    assert journal.written_tables("other") == set()


def test_the_first_claim_wins(journal: SqlJournal) -> None:
    one, two = b"1" * 16, b"2" * 16
    assert journal.claim("t", [(one, "customer:[1]")]) == {}
    assert journal.claim("t", [(one, "customer:[60]"), (two, "customer:[60]")]) == {one: "customer:[1]"}
    assert journal.claim("t", [(one, "customer:[1]"), (two, "customer:[60]")]) == {}
    assert journal.claim("other", [(one, "customer:[60]")]) == {}
    journal.release("t", [one])
    assert journal.claim("t", [(one, "customer:[60]")]) == {}
    journal.forget_claims("t")
    assert journal.claim("t", [(two, "customer:[7]")]) == {}


def test_claims_made_at_once_have_one_winner_each(journal: SqlJournal) -> None:
    digests = [number.to_bytes(16, "big") for number in range(1500)]

    def claim(owner: str) -> int:
        return len(digests) - len(journal.claim("t", [(digest, owner) for digest in digests]))

    with ThreadPoolExecutor(4) as executor:
        won = list(executor.map(claim, ["a", "b", "c", "d"]))
    assert sum(won) == len(digests)


def test_a_second_run_of_a_job_is_refused(journal: SqlJournal) -> None:
    with RunLease(journal, "shop"):
        with pytest.raises(SettingsError, match=f"another run of job shop is at work.*process {os.getpid()}"):
            RunLease(journal, "shop").__enter__()
        with RunLease(journal, "other"):
            pass
    with RunLease(journal, "shop"):
        pass


def test_a_lease_that_ran_out_is_taken_over_and_its_holder_stops(journal: SqlJournal) -> None:
    now = [1000.0]
    slow = RunLease(journal, "shop", heartbeat_s=3600, clock=lambda: now[0])
    with slow:
        slow.check()
        now[0] += 31
        with pytest.raises(StoppedError, match="lease of job shop"):
            slow.check()
        with RunLease(journal, "shop", clock=lambda: now[0]):
            pass


def test_a_lease_is_renewed(journal: SqlJournal) -> None:
    with RunLease(journal, "shop", life_s=1.0, heartbeat_s=0.05) as lease:
        for _ in range(30):
            time.sleep(0.05)
            lease.check()


HOLD = """
import sys, time
from migrator.journal.lease import RunLease
from migrator.journal.store import SqlJournal
with RunLease(SqlJournal(sys.argv[1]), "shop"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lease_of_a_killed_process_is_taken_over_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    journal = SqlJournal(url)
    with subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SettingsError, match=f"process {holder.pid}"):
            RunLease(journal, "shop").__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
        with RunLease(journal, "shop"):
            pass
    journal.close()
