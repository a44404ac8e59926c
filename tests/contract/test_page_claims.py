"""Pages that processes claim, on each kind of journal: each page is one process's, until its claim runs out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from migrator.journal.runs import SqlJournal
from migrator.journal.schema import page_claim
from migrator.mapping.model.journal import Finding, Page, Run, RunIdentity, Tally

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")
PAGES = [Page("order", number, f"[{number}0]", f"[{number + 1}0]") for number in range(1, 6)]
UNWRITTEN = Finding("unwritten", "order", "why", item_key='["A","B"]')


@pytest.fixture
def run(journal: SqlJournal) -> Run:
    made = journal.start_run(IDENTITY)
    journal.plan_pages(made, "order", PAGES)
    return made


def let_claims_lapse(journal: SqlJournal) -> None:
    with journal.database.begin() as connection:
        connection.execute(update(page_claim).values(leased_until=1.0))


def test_a_page_is_given_to_one_process(journal: SqlJournal, run: Run) -> None:
    assert journal.claim_pages(run, "order", "a", 2, 60) == PAGES[:2]
    assert journal.claim_pages(run, "order", "b", 2, 60) == PAGES[2:4]
    assert journal.claim_pages(run, "order", "a", 2, 60, after=2) == PAGES[4:]
    assert journal.claim_pages(run, "order", "a", 2, 60) == []
    assert (journal.claimed_by_others(run, "a"), journal.claimed_by_others(run, "b")) == (2, 3)
    other = journal.start_run(IDENTITY)
    assert journal.claim_pages(other, "order", "a", 2, 60) == []


def test_a_claim_that_ran_out_is_another_s_unless_it_was_renewed(journal: SqlJournal, run: Run) -> None:
    journal.claim_pages(run, "order", "a", 2, 60)
    let_claims_lapse(journal)
    assert journal.claim_pages(run, "order", "a", 9, 60) == PAGES[2:], "its own pages are under way"
    assert journal.claim_pages(run, "order", "b", 1, 60) == PAGES[:1]
    journal.renew_pages(run, "a", 60)
    assert journal.claim_pages(run, "order", "b", 1, 60) == []


def test_pages_released_by_a_process_are_claimed_at_once(journal: SqlJournal, run: Run) -> None:
    journal.claim_pages(run, "order", "a", 5, 60)
    journal.leave_page(run, PAGES[0], "a", [UNWRITTEN])
    journal.release_pages(run, "a")
    assert journal.claim_pages(run, "order", "b", 5, 60) == PAGES[1:], (
        "the first one waits for the next start"
    )
    assert journal.findings(run) == [UNWRITTEN]
    assert journal.claimed_by_others(run, "c") == 4
    resumed = journal.resume_run(run)
    assert journal.claim_pages(resumed, "order", "c", 5, 60) == PAGES


def test_a_page_is_checkpointed_once(journal: SqlJournal, run: Run) -> None:
    journal.claim_pages(run, "order", "a", 1, 60)
    let_claims_lapse(journal)
    journal.claim_pages(run, "order", "b", 1, 60)
    journal.finish_page(run, PAGES[0], Tally(rows=7), [])
    journal.finish_page(run, PAGES[0], Tally(rows=8), [])
    assert journal.tally(run).rows == 7
    journal.finish_page(run, PAGES[0], Tally(rows=9), [], again=True)
    assert journal.tally(run).rows == 9
    assert journal.claimed_by_others(run, "c") == 0
    let_claims_lapse(journal)
    assert PAGES[0] not in journal.claim_pages(run, "order", "c", 5, 60)


def test_a_slice_of_pages_is_claimed_and_no_more(journal: SqlJournal, run: Run) -> None:
    journal.claim_pages(run, "order", "a", 1, 60, after=1)
    assert journal.claim_pages(run, "order", "b", 3, 60, 0, 3) == [PAGES[0], PAGES[2]]
    assert journal.claim_pages(run, "order", "c", 3, 60, 0, 3) == []
    assert journal.claim_pages(run, "order", "c", 9, 60) == PAGES[3:]


def test_release_frees_pages_of_a_process_and_its_children(journal: SqlJournal, run: Run) -> None:
    for number, who in enumerate(("a", "a.1", "a.2", "ab", "a%")):
        journal.claim_pages(run, "order", who, 1, 60, number)
    journal.release_pages(run, "a")
    assert journal.claim_pages(run, "order", "c", 9, 60) == PAGES[:3]


def test_pages_wait_until_they_are_done_or_left_open(journal: SqlJournal, run: Run) -> None:
    journal.claim_pages(run, "order", "a", 2, 60)
    assert journal.waiting_pages(run, "order", 9) == [1, 2, 3, 4, 5]
    journal.finish_page(run, PAGES[0], Tally(), [])
    journal.leave_page(run, PAGES[1], "a", [])
    assert journal.waiting_pages(run, "order", 2) == [3, 4]
    assert journal.waiting_pages(journal.resume_run(run), "order", 9) == [2, 3, 4, 5]


def test_processes_that_claim_at_once_share_no_page(journal: SqlJournal, run: Run) -> None:
    journal.plan_pages(run, "user", [Page("user", number, None, None) for number in range(1, 41)])

    def claimed(who: int) -> list[int]:
        numbers, after = list[int](), 0
        while pages := journal.claim_pages(run, "user", f"who-{who}", 3, 60, after):
            numbers += [page.number for page in pages]
            after = numbers[-1]
        return numbers

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for each in pool.map(claimed, range(4)) for number in each]
    assert sorted(numbers) == list(range(1, 41))
