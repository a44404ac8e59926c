"""Marks and tickets: the same promises from the fakes and from each database."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from migrator.journal.database import TEST_CLOCK, Database
from migrator.journal.schema import record, source_mark
from migrator.journal.source_capture import COUNTERS, Counter, JournalMarks, JournalTickets
from migrator.mapping.model.live import (
    TICKETS_AN_EPOCH,
    Image,
    KeptMark,
    Mark,
    Marks,
    MarksState,
    Root,
    Tickets,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import SourceError
from tests import pins
from tests.fakes.marks import MemoryMarks, MemoryTickets
from tests.support_capture import ENGINES, Capturing, capturing, new_sqlite

HOUR_S = 3600.0
JOURNALS = ["journal in a file", "journal on postgresql", "journal on mariadb"]
ROOTS: dict[Root, list[ItemKey]] = {
    ("order", '["Ζ\'\\" 😀"]'): [("USER#1", "ORDER#é"), ("X", "Y")],
    ("user", "[2]"): [(Decimal("1.5"), b"\x00\xff")],
    ("user", "[3]"): [],
}


@pytest.fixture(params=["memory", *ENGINES, *JOURNALS])
def edges(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Marks, Tickets]]:
    if request.param == "memory":
        yield MemoryMarks(), MemoryTickets()
        return
    if request.param in JOURNALS:
        with _journal(request, tmp_path) as database:
            tickets = JournalTickets(database, "shop")
            tickets.install()
            yield JournalMarks(database, "shop", read_image), tickets
        return
    with _real(request, tmp_path) as made:
        made.install()
        yield made.marks, made.tickets


@pytest.fixture
def marks(edges: tuple[Marks, Tickets]) -> Marks:
    return edges[0]


@pytest.fixture
def tickets(edges: tuple[Marks, Tickets]) -> Tickets:
    return edges[1]


@pytest.fixture(params=ENGINES)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Capturing]:
    with _real(request, tmp_path) as made:
        yield made


@pytest.fixture(params=JOURNALS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with _journal(request, tmp_path) as made:
        yield made


@contextmanager
def _journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A journal's database; a server's is shared by the module, and emptied of what is asked here."""
    urls = {"journal on postgresql": "postgresql_journal", "journal on mariadb": "mariadb_journal"}
    fixture = urls.get(request.param)
    made = Database(request.getfixturevalue(fixture) if fixture else f"sqlite:///{tmp_path / 'journal.db'}")
    try:
        yield made
    finally:
        with made.begin() as connection:
            for table in (source_mark, record):
                connection.execute(delete(table))
        made.close()


def read_image(table: str, text: str) -> Image:
    return dict(json.loads(text))


def _real(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractContextManager[Capturing]:
    urls = {"postgresql": "postgres_database", "mariadb": "mysql_database"}
    file = request.param == "sqlite"
    url = new_sqlite(tmp_path / "a.db") if file else request.getfixturevalue(urls[request.param])
    return capturing(request.param, url)


def test_marks_of_roots_come_as_they_were_added(marks: Marks) -> None:
    marks.add(ROOTS)
    taken = marks.take(10, HOUR_S)
    assert [(mark.root, mark.keys) for mark in taken] == [(root, tuple(keys)) for root, keys in ROOTS.items()]
    assert all((mark.table, mark.before, mark.cursor, mark.tries) == ("", None, "", 0) for mark in taken)
    assert [mark.id for mark in taken] == sorted({mark.id for mark in taken})


def test_all_marks_are_looked_at_leased_or_not(marks: Marks) -> None:
    marks.add(ROOTS)
    (first,) = marks.take(1, HOUR_S)
    (second,) = marks.take(1, HOUR_S)
    marks.put_back([second.id], HOUR_S)
    found = marks.look(0, 10)
    assert [(mark.root, mark.keys) for mark in found] == [(root, tuple(keys)) for root, keys in ROOTS.items()]
    assert [mark.tries for mark in found] == [0, 1, 0]
    assert marks.look(first.id, 1) == [found[1]]
    assert marks.look(found[-1].id, 10) == []


def test_look_for_free_marks_omits_leased_and_unripe_ones(marks: Marks) -> None:
    marks.add(ROOTS)
    (first,) = marks.take(1, HOUR_S)
    (second,) = marks.take(1, HOUR_S)
    marks.put_back([second.id], HOUR_S)
    (free,) = marks.look(0, 10, free=True)
    assert (free.root, free.age_s >= 0) == (("user", "[3]"), True)
    assert marks.look(free.id, 10, free=True) == []
    marks.release([first.id])
    assert [mark.id for mark in marks.look(0, 10, free=True)] == [first.id, free.id]


def test_no_relay_takes_a_mark_that_another_has(marks: Marks) -> None:
    marks.add(ROOTS)
    first, second = marks.take(2, HOUR_S), marks.take(2, HOUR_S)
    assert (len(first), len(second)) == (2, 1)
    assert not {mark.id for mark in first} & {mark.id for mark in second}
    assert marks.take(2, HOUR_S) == []


def test_a_lease_that_ended_gives_its_marks_to_others(marks: Marks) -> None:
    marks.add(ROOTS)
    first = marks.take(5, 0)
    assert marks.take(5, HOUR_S) == first
    assert marks.take(5, HOUR_S) == []


def test_finished_marks_are_gone_and_may_be_finished_again(marks: Marks) -> None:
    marks.add(ROOTS)
    first, *others = marks.take(5, 0)
    assert marks.finish([first.id]) == 1
    assert marks.finish([first.id, 10**9]) == 0
    assert marks.finish([]) == 0
    assert marks.take(5, HOUR_S) == others


def test_thousands_of_marks_are_finished_put_back_and_released(marks: Marks) -> None:
    marks.add({("user", f"[{number}]"): [] for number in range(1200)})
    taken = [mark.id for mark in marks.take(1200, HOUR_S)]
    # Their order is the caller's.
    assert marks.finish(taken[700::-1]) == 701
    marks.put_back(taken[701:1000], 0)
    marks.release(taken[1000:])
    assert [(mark.id, mark.tries) for mark in marks.look(0, 1200)] == [
        *((number, 1) for number in taken[701:1000]),
        *((number, 0) for number in taken[1000:]),
    ]
    assert len(marks.take(1200, HOUR_S)) == 499


def test_a_mark_that_was_put_back_waits_and_counts_its_failures(marks: Marks) -> None:
    marks.add(ROOTS)
    first, *others = marks.take(5, HOUR_S)
    marks.put_back([first.id], HOUR_S)
    assert marks.take(5, HOUR_S) == []
    state = marks.state()
    assert (state.waiting, state.failed, state.unripe) == (2, 1, 1)
    marks.put_back([first.id], 0)
    (again,) = marks.take(5, HOUR_S)
    assert (again.id, again.tries, again.root) == (first.id, 2, first.root)
    marks.put_back([mark.id for mark in others], 0)
    assert [mark.tries for mark in marks.take(5, HOUR_S)] == [1, 1]


def test_mark_continues_at_its_cursor_behind_all_others(marks: Marks) -> None:
    marks.add(ROOTS)
    first = marks.take(1, HOUR_S)[0]
    marks.advance(first, '["Ζ",7]')
    marks.advance(first, "by a relay that comes late")
    *others, again = marks.take(5, HOUR_S)
    assert len(others) == 2
    assert again == Mark(again.id, root=first.root, keys=first.keys, cursor='["Ζ",7]')


def test_the_state_counts_and_ages(marks: Marks) -> None:
    assert marks.state() == MarksState()
    marks.add(ROOTS)
    time.sleep(0.2)
    state = marks.state()
    assert (state.waiting, state.failed, state.unripe) == (3, 0, 0)
    assert 0.1 < state.oldest_age_s < 30
    marks.take(3, HOUR_S)
    assert marks.state().waiting == 3


def test_tickets_only_grow(tickets: Tickets) -> None:
    assert tickets.highest() % TICKETS_AN_EPOCH == 0
    drawn = [tickets.draw() for _ in range(3)]
    assert drawn == [tickets.highest() - 2, tickets.highest() - 1, tickets.highest()]
    assert drawn[0] % TICKETS_AN_EPOCH == 1


def test_a_raised_epoch_is_above_all_that_is_named(tickets: Tickets) -> None:
    (first, _), known = tickets.generation(), tickets.draw()
    epoch = tickets.raise_epoch(0)
    assert tickets.highest() == epoch * TICKETS_AN_EPOCH > known
    far = 40 * TICKETS_AN_EPOCH + 17
    assert tickets.raise_epoch(far) == 41
    assert tickets.draw() == 41 * TICKETS_AN_EPOCH + 1
    assert tickets.generation() == (first, 41)
    assert first


# ── real databases only ──


def test_no_two_draw_one_ticket(real: Capturing) -> None:
    real.install()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: real.tickets.draw(), range(60)))
    assert len(set(drawn)) == 60


def test_no_two_take_one_mark(real: Capturing) -> None:
    real.install()
    real.marks.add({("order", f"[{number}]"): [] for number in range(100)})
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: real.marks.take(10, HOUR_S), range(20)))
    ids = [mark.id for marks in taken for mark in marks]
    assert (len(ids), len(set(ids))) == (100, 100)


def test_every_command_without_capture_names_the_fix(real: Capturing) -> None:
    for call in (real.tickets.draw, real.marks.state, lambda: real.marks.take(1, 1)):
        with pins.refused(SourceError):
            call()


def test_a_capture_of_another_version_draws_no_ticket(real: Capturing) -> None:
    real.install()
    schema = "migrator." if real.engine == "postgresql" else "migrator_"
    real.run(f"UPDATE {schema}ticket SET version = 99")
    with pins.refused(SourceError, "needs"):
        real.tickets.draw()
    real.run(f"DELETE FROM {schema}ticket")
    with pins.refused(SourceError, "lost"):
        real.tickets.highest()


def test_a_damaged_mark_keeps_no_other_from_being_taken(real: Capturing) -> None:
    real.install()
    real.marks.add(ROOTS)
    schema = "migrator." if real.engine == "postgresql" else "migrator_"
    columns = "root_entity, root_key, item_keys, changed_at"
    for keys in ("garbage", "[1]", '[[{"N": "x"}]]', "[" * 100_000):
        real.run(f"INSERT INTO {schema}mark ({columns}) VALUES ('bad', '[1]', '{keys}', 0)")
    for image in ("garbage", "[]", '{"id": 7}', '{"id": "nobody:1"}', '{"id": "99999999999999:1"}'):
        real.run(f"INSERT INTO {schema}mark (table_name, image_after, changed_at) VALUES ('t', '{image}', 0)")
    taken = real.marks.take(20, 1)
    assert [mark.root for mark in taken if not mark.fault and not mark.table] == list(ROOTS)
    assert [bool(mark.fault) for mark in taken if mark.root and mark.root[0] == "bad"] == [True] * 4
    assert len(taken) == len(ROOTS) + 9


@pytest.mark.parametrize("real", ["postgresql", "mariadb"], indirect=True)
def test_marks_of_open_transactions_stop_no_relay(real: Capturing) -> None:
    """A relay neither waits for a service's transaction nor makes it wait, also if it takes nearly all marks."""
    real.install()
    schema = "migrator." if real.engine == "postgresql" else "migrator_"
    insert = f"INSERT INTO {schema}mark (root_entity, root_key, changed_at) VALUES ('late', '[1]', 0)"
    with real.service() as service:
        service.execute("BEGIN")
        service.execute(insert)
        real.marks.add({("root", f"[{number}]"): [] for number in range(100)})
        taken = real.marks.take(200, HOUR_S)
        assert len(taken) == 100
        real.marks.put_back([mark.id for mark in taken], 0)
        assert real.marks.finish([mark.id for mark in taken]) == 100
        assert real.marks.take(10, HOUR_S) == []
        service.execute("COMMIT")
    assert [mark.root for mark in real.marks.take(10, HOUR_S)] == [("late", "[1]")]


def test_marks_that_failed_can_be_discarded_and_no_others(marks: Marks) -> None:
    marks.add(ROOTS)
    first, second, third = marks.take(10, HOUR_S)
    marks.put_back([first.id], 0.0)
    marks.put_back([first.id, second.id], 0.0)
    assert marks.discard_failed(2) == 1
    assert marks.discard_failed(2) == 0
    marks.release([third.id])
    assert [mark.tries for mark in marks.take(10, HOUR_S)] == [1, 0]


# ── journals only, where a source keeps nothing of ours ──


def test_a_journal_gives_no_ticket_twice_and_no_mark_to_two(database: Database) -> None:
    tickets, marks = JournalTickets(database, "shop"), JournalMarks(database, "shop", read_image)
    tickets.install()
    marks.add({("order", f"[{number}]"): [] for number in range(100)})
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: tickets.draw(), range(60)))
        taken = list(pool.map(lambda _: marks.take(10, HOUR_S), range(20)))
    ids = [mark.id for some in taken for mark in some]
    assert (len(set(drawn)), len(ids), len(set(ids))) == (60, 100, 100)


def test_journal_keeps_changes_in_order_until_processed(database: Database) -> None:
    marks, now = JournalMarks(database, "shop", read_image), time.time()
    changes = [
        KeptMark("Users", None, '{"id": "é"}', now - 5),
        KeptMark("Users", '{"id": "é"}', '{"id": "é"}', now - 4),
        KeptMark("Users", '{"id": "é"}', None, now + 1000),
        KeptMark("Users", None, '{"id": "later"}', now - 5, ready_in_s=HOUR_S),
    ]
    marks.store(changes)
    first, second, third = marks.take(10, HOUR_S)
    row = {"id": "é"}
    assert [(mark.before, mark.after) for mark in (first, second, third)] == [
        (None, row),
        (row, row),
        (row, None),
    ]
    assert 4 < first.age_s < 60
    assert third.age_s < 60, "a clock that is ahead makes no change younger than now"
    state = marks.state()
    assert (state.waiting, state.unripe) == (3, 1)
    marks.finish([first.id, second.id, third.id])
    assert marks.state() == MarksState(unripe=1)
    marks.discard()
    assert marks.state() == MarksState()


def test_pending_change_is_no_older_when_its_time_comes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = JournalMarks(database, "shop", read_image)
    marks.store([KeptMark("Users", None, "{}", time.time() - 500, ready_in_s=0.0)])
    marks.store([KeptMark("Users", None, "{}", time.time(), ready_in_s=10.0)])
    assert len(marks.take(10, 0)) == 1
    monkeypatch.setenv(TEST_CLOCK, "11")
    ages = [mark.age_s for mark in marks.take(10, HOUR_S)]
    assert ages[0] > 400
    assert ages[1] < 30


def test_jobs_sharing_a_journal_have_their_own_marks_and_tickets(database: Database) -> None:
    shop, zoo = (JournalMarks(database, job, read_image) for job in ("shop", "zoo"))
    tickets = JournalTickets(database, "shop")
    tickets.install()
    shop.add(ROOTS)
    (first, *_) = shop.look(0, 10)
    zoo.finish([first.id])
    zoo.advance(first, "x")
    assert (zoo.take(10, HOUR_S), zoo.look(0, 10), zoo.state()) == ([], [], MarksState())
    assert len(shop.take(10, HOUR_S)) == 3
    with pins.refused(SourceError):
        JournalTickets(database, "zoo").draw()


def test_counter_continues_after_capture_is_reinstalled(database: Database) -> None:
    tickets = JournalTickets(database, "shop")
    assert tickets.installed() is None
    tickets.install()
    first, before = tickets.draw(), tickets.generation()
    tickets.uninstall()
    assert tickets.installed() is None
    for call in (tickets.draw, tickets.highest, tickets.generation, lambda: tickets.raise_epoch(0)):
        with pins.refused(SourceError):
            call()
    tickets.install()
    found = tickets.installed()
    assert found is not None
    assert (found.job, found.ticket, found.marked_by) == ("shop", first, "triggers")
    assert (found.id, found.epoch) == tickets.generation() != before
    assert tickets.draw() == first + 1


def test_capture_of_another_version_in_a_journal_draws_no_ticket(database: Database) -> None:
    tickets = JournalTickets(database, "shop")
    tickets.install()
    with database.begin() as connection:
        COUNTERS.put(connection, "shop", Counter("installed", version=99))
    with pins.refused(SourceError):
        tickets.draw()


def test_damaged_mark_in_a_journal_does_not_block_others(database: Database) -> None:
    marks = JournalMarks(database, "shop", read_image)
    marks.add(ROOTS)
    (first, *_) = marks.look(0, 1)
    with database.begin() as connection:
        damaged = update(source_mark).where(source_mark.c.id == first.id)
        connection.execute(damaged.values(item_keys="garbage"))
    assert [bool(mark.fault) for mark in marks.take(10, HOUR_S)] == [True, False, False]
