"""Keys and waiting rows of the way back, on each kind of journal and on the fake of them."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from migrator.journal.reverse import SqlReverseJournal, SqlUnkept
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.live import ReverseJournal, RowId, Unkept, WaitingRow
from migrator.mapping.model.table import ItemKey
from tests.fakes.reverse import FakeReverseJournal

ONE: RowId = ("orders", "[1]")
TWO: RowId = ("orders", '["Ä","2"]')
A: ItemKey = ("C#1", "O#1")
B: ItemKey = ("C#2", Decimal("1.50"))
C: ItemKey = (b"\x00\xff", "x")


@pytest.fixture
def remembered(journal_or_fake: SqlJournal | None) -> ReverseJournal:
    if journal_or_fake is None:
        return FakeReverseJournal(time.time)
    return SqlReverseJournal(journal_or_fake.database, "shop", "Shop")


def test_keys_are_kept_until_the_row_is_forgotten(remembered: ReverseJournal) -> None:
    remembered.remember({ONE: {A}, TWO: {B, C}})
    remembered.remember({ONE: {A, B}})
    assert remembered.keys_of([ONE, TWO, ("orders", "[9]")]) == {
        ONE: {A, B},
        TWO: {B, C},
        ("orders", "[9]"): set(),
    }
    assert remembered.rows_of([B]) == {ONE, TWO}
    assert remembered.rows_of([C]) == {TWO}
    assert remembered.rows_of([]) == set()
    seen = WaitingRow(ONE, "gone", 1764115026.123456, looks=1)
    remembered.wait([seen])
    remembered.forget({ONE: seen})
    remembered.forget({ONE: seen, TWO: WaitingRow(TWO, "gone", 1.0)})
    assert remembered.keys_of([ONE, TWO]) == {ONE: set(), TWO: {B, C}}
    assert remembered.waiting() == []


def test_row_found_meanwhile_by_another_process_is_not_forgotten(remembered: ReverseJournal) -> None:
    seen = WaitingRow(ONE, "gone", 1.0, looks=1)
    remembered.remember({ONE: {A}})
    for meanwhile in (WaitingRow(ONE, "refused", 1.0, "foreign key"), WaitingRow(ONE, "gone", 2.0)):
        remembered.wait([meanwhile])
        remembered.forget({ONE: seen})
        assert remembered.keys_of([ONE]) == {ONE: {A}}
        assert remembered.waiting() == [meanwhile]


def test_rows_of_tables_that_own_the_truth_again_wait_no_longer(remembered: ReverseJournal) -> None:
    line = WaitingRow(("line", "[1]"), "refused", 1.0)
    remembered.remember({ONE: {A}})
    remembered.wait([WaitingRow(ONE, "gone", 2.0), line])
    remembered.withdraw([])
    remembered.withdraw(["orders", "customer"])
    remembered.withdraw(["orders", "customer"])
    assert remembered.waiting() == [line]
    assert remembered.keys_of([ONE]) == {ONE: {A}}


def test_a_row_waits_for_one_reason_until_it_is_done(remembered: ReverseJournal) -> None:
    first = WaitingRow(ONE, "refused", 7.5, "unique", tries=1)
    later = WaitingRow(TWO, "misfit", 9.0, "an item of type Order", tries=2)
    remembered.wait([later, first])
    assert remembered.waiting() == [first, later]
    assert remembered.waiting(1) == [first]
    elsewhere = WaitingRow(("line", "[1]"), "gone", 1.0)
    remembered.wait([elsewhere])
    assert remembered.waiting(1, ["orders", ""]) == [first]
    assert remembered.waiting(None, ["line"]) == [elsewhere]
    assert remembered.waiting(None, []) == []
    remembered.done([elsewhere.row])
    again = WaitingRow(ONE, "gone", 10.0, looks=1)
    remembered.wait([again])
    assert remembered.waiting_of([ONE, ("orders", "[9]")]) == {ONE: again}
    remembered.done([ONE])
    remembered.done([ONE])
    assert remembered.waiting() == [later]


def test_it_is_known_when_all_were_requested_to_end(remembered: ReverseJournal) -> None:
    assert remembered.stopped_at() == 0.0
    before = remembered.now()
    remembered.ask_to_stop()
    remembered.ask_to_stop()
    assert before <= remembered.stopped_at() <= remembered.now()


def test_rows_of_another_job_are_not_seen(journal: SqlJournal) -> None:
    SqlReverseJournal(journal.database, "other", "Shop").remember({ONE: {A}})
    own = SqlReverseJournal(journal.database, "shop", "Shop")
    assert own.rows_of([A]) == set()
    assert abs(own.now() - time.time()) < 60


def test_counts_of_unkept_attributes_replace_each_other(journal: SqlJournal) -> None:
    shop, zoo = (SqlUnkept(journal.database, job) for job in ("shop", "zoo"))
    assert shop.last() == (Unkept(), 0.0)
    counted = Unkept({("User", 'é"😀'): 2**40}, {("User", "tags"): 1})
    shop.save(counted)
    kept, age_s = shop.last()
    assert (kept, 0 <= age_s < 60) == (counted, True)
    assert zoo.last() == (Unkept(), 0.0)
    shop.save(Unkept())
    assert not shop.last()[0]
