"""What every journal keeps: on a SQLite file, in memory, on PostgreSQL, on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Finding, Page, RunIdentity, SegmentState, Tally
from migrator.runtime.errors import StoppedError
from tests import pins

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")
REFUSED = Finding("refused", "order", "no total", "[1]")
PAGES = [Page("order", 1, None, "[10]"), Page("order", 2, "[10]", "[20]"), Page("order", 3, "[20]", None)]


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
    assert journal.waiting_pages(run, "order", 1) == [PAGES[0].number]
    journal.finish_page(run, PAGES[1], Tally(rows=10, items=20, bytes=300, write_units=20.5), [])
    assert journal.claim_pages(run, "order", "a", 9, 60) == [PAGES[0], PAGES[2]]
    assert journal.page_counts(run, "order") == (1, 3)
    assert (
        journal.tally(run)
        == journal.tally(run, "order")
        == Tally(rows=10, items=20, bytes=300, write_units=20.5)
    )
    assert journal.tally(run, "empty") == Tally()


def test_a_page_may_hold_more_than_two_gigabytes(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    journal.finish_page(run, PAGES[0], Tally(rows=1, bytes=3_500_000_000), [])
    assert journal.tally(run).bytes == 3_500_000_000


def test_a_page_that_is_not_planned_cannot_be_finished(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    with pins.refused(StoppedError):
        journal.finish_page(run, PAGES[0], Tally(rows=1), [REFUSED])
    assert journal.findings(run) == []


def test_all_pages_are_planned_or_none(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)

    def broken() -> Iterator[Page]:
        yield PAGES[0]
        raise StoppedError("the source went away")

    with pytest.raises(StoppedError):
        journal.plan_pages(run, "order", broken())
    assert journal.planned(run) == set()
    assert journal.claim_pages(run, "order", "a", 9, 60) == []


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


def test_a_scan_resumes_where_it_stopped(journal: SqlJournal) -> None:
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
    journal.start_run(RunIdentity("relay", "shop", "table-3", "rev1"))
    assert journal.written_tables("shop") == {"table-1", "table-3"}
    assert journal.written_tables("other") == set()


def test_the_writers_of_a_table_are_known(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    assert journal.writers("table-1") == {}
    journal.plan_pages(run, "order", PAGES)
    other = journal.start_run(RunIdentity("backfill", "crm", "table-1", "rev1"))
    journal.plan_pages(other, "user", [])
    verify = journal.start_run(RunIdentity("verify", "crm", "table-1", "rev1"))
    journal.plan_pages(verify, "order", PAGES)
    assert journal.writers("table-1") == {"shop": {"order"}, "crm": {"user"}}
    assert journal.writers("table-2") == {}


def test_the_first_claim_wins(journal: SqlJournal) -> None:
    one, two = b"1" * 16, b"2" * 16
    assert journal.claim("t", [(one, "customer:[1]")]) == {}
    assert journal.claim("t", [(one, "customer:[60]"), (two, "customer:[60]")]) == {one: "customer:[1]"}
    assert journal.claim("t", [(one, "customer:[1]"), (two, "customer:[60]")]) == {}
    assert journal.claim("other", [(one, "customer:[60]")]) == {}
    journal.release("t", [(one, "customer:[60]")])
    assert journal.claim("t", [(one, "customer:[60]")]) == {one: "customer:[1]"}
    journal.release("t", [(one, "customer:[1]")])
    assert journal.claim("t", [(one, "customer:[60]")]) == {}


def test_the_first_of_two_claims_in_one_call_wins(journal: SqlJournal) -> None:
    digest = b"1" * 16
    assert journal.claim("t", [(digest, "b"), (digest, "a")]) == {digest: "b"}
    assert journal.claim("t", [(digest, "b")]) == {}


def test_claims_made_at_once_have_one_winner_each(journal: SqlJournal) -> None:
    digests = [number.to_bytes(16, "big") for number in range(1500)]

    def claim(owner: str) -> int:
        return len(digests) - len(journal.claim("t", [(digest, owner) for digest in digests]))

    with ThreadPoolExecutor(4) as executor:
        won = list(executor.map(claim, ["a", "b", "c", "d"]))
    assert sum(won) == len(digests)


def test_claims_may_be_released_while_others_claim(journal: SqlJournal) -> None:
    digest = b"1" * 16

    def claim_and_release(owner: str) -> None:
        for _ in range(40):
            if not journal.claim("t", [(digest, owner)]):
                journal.release("t", [(digest, owner)])

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(claim_and_release, ["a", "b", "c", "d"]))
    assert journal.claim("t", [(digest, "e")]) == {}


def test_a_journal_may_be_opened_by_several_at_once(
    postgres_database: str, mysql_database: str, tmp_path: Path
) -> None:
    for url in (f"sqlite:///{tmp_path / 'shop.db'}", postgres_database, mysql_database):
        with ThreadPoolExecutor(8) as executor:
            made = list(executor.map(SqlJournal, [url] * 8))
        for journal in made:
            assert journal.runs("shop") == []
            journal.close()


def test_reopened_pages_count_as_not_done(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    other = journal.start_run(RunIdentity("backfill", "shop", "table-2", "rev1"))
    for one in (run, other):
        journal.plan_pages(one, "order", PAGES)
        journal.plan_pages(one, "user", [Page("user", 1, None, None)])
        for page in (*PAGES[:2], Page("user", 1, None, None)):
            journal.finish_page(one, page, Tally(rows=10, items=20), [])
        journal.end_run(one, "done")
    assert journal.reopen_pages("shop", "table-1", ["order", "none"]) == 2
    assert journal.claim_pages(run, "order", "a", 9, 60) == PAGES
    assert journal.tally(run) == Tally(rows=10, items=20)
    found, untouched = journal.find_run(IDENTITY), journal.find_run(other.identity)
    assert (found is not None, untouched is not None) == (True, True)
    assert [one.state for one in (found, untouched) if one] == ["interrupted", "done"]
    assert journal.reopen_pages("shop", "table-1", ["order"]) == 0
    assert journal.reopen_pages("other", "table-1", ["user"]) == 0


def test_runs_begin_and_end_by_the_journals_clock(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.journal.runs.seconds", lambda connection: 1_700_000_600.0)
    run = journal.start_run(IDENTITY)
    journal.end_run(run, "done")
    found = journal.runs("shop")[0]
    assert (found.started_at, found.ended_at) == ("2023-11-14 22:23:20+00:00",) * 2


def test_page_parts_come_from_the_first_checkpoint_until_the_end(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    journal.finish_page(run, PAGES[1], Tally(), [], parts=[b"later"])
    journal.finish_page(run, PAGES[0], Tally(rows=1), [], parts=[b"\x00one", b"two" * 40_000])
    journal.finish_page(run, PAGES[0], Tally(rows=2), [], parts=[b"another"])
    first, second = PAGES[0].number, PAGES[1].number
    wanted = [(first, b"\x00one"), (first, b"two" * 40_000), (second, b"later")]
    assert list(journal.page_parts(run, "order")) == wanted
    assert list(journal.page_parts(run, "empty")) == []
    journal.end_run(run, "interrupted")
    assert len(list(journal.page_parts(run, "order"))) == 3
    journal.end_run(run, "done")
    assert list(journal.page_parts(run, "order")) == []


def test_new_run_of_the_job_forgets_page_parts_of_others(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    journal.plan_pages(run, "order", PAGES)
    journal.finish_page(run, PAGES[0], Tally(), [], parts=[b"part"])
    journal.start_run(IDENTITY)
    assert list(journal.page_parts(run, "order")) == []


def test_a_segment_that_is_done_stays_done(journal: SqlJournal) -> None:
    run = journal.start_run(IDENTITY)
    done = SegmentState(None, True, {"items": 9})
    journal.save_segment(run, 0, SegmentState(("A", "B"), False, {"items": 3}), [])
    journal.save_segment(run, 0, done, [])
    journal.save_segment(run, 0, SegmentState(("A", "C"), False, {"items": 5}), [])
    assert journal.segment(run, 0) == done
