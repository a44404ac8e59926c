"""Which revision of a job is the newest: the fake one, and journals of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlRevisions, SqlWriters, newest_of
from migrator.model.errors import OldRevisionError
from migrator.model.instances import Revision, Revisions, Standing
from migrator.model.journal import RunIdentity
from migrator.model.live import Writer
from tests.fakes.journal import FakeRevisions, RevisionBook


class Registered(Revisions, Protocol):
    def standing(self) -> Standing: ...
    def register(self, *, go_back: bool = False) -> Standing: ...


Make = Callable[[str], Registered]


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> Make:
    """A function from a mapping's digest to the revisions of a job as a writer of that mapping sees them."""
    if journal_or_fake is None:
        book = RevisionBook()
        return lambda digest: FakeRevisions(book, digest)
    database = journal_or_fake.database
    return lambda digest: SqlRevisions(database, "job", Revision(digest, f"m{digest}"))


@pytest.fixture
def entered(journal_or_fake: SqlJournal | None) -> Callable[[str], Writer]:
    """A function that gives a writer which is among the journal's writers."""
    if journal_or_fake is None:
        return lambda id_: Writer(id_, "relay", 0.0, 0.0)
    writers = SqlWriters(journal_or_fake.database, "table")
    return lambda _: writers.enter("relay")


def test_the_first_that_registers_is_the_newest_until_a_new_one_does(make: Make) -> None:
    one, two = make("1"), make("2")
    assert (one.standing(), one.is_old()) == ("first", False)
    assert one.register() == "first"
    assert (one.register(), two.standing(), two.is_old()) == ("newest", "new", True)
    assert two.register() == "new"
    assert (one.standing(), one.is_old(), two.standing(), two.is_old()) == ("old", True, "newest", False)


def test_an_old_one_does_not_come_back_by_itself(make: Make) -> None:
    one, two = make("1"), make("2")
    one.register()
    two.register()
    with pytest.raises(OldRevisionError):
        one.register()
    assert two.standing() == "newest"
    assert one.register(go_back=True) == "old"
    assert (one.standing(), two.standing()) == ("newest", "old")


def test_only_writers_by_the_newest_enter(make: Make, entered: Callable[[str], Writer]) -> None:
    one, two = make("1"), make("2")
    first = entered("first")
    one.enter(first)
    assert (one.standing(), one.old([first])) == ("newest", [])
    with pytest.raises(OldRevisionError):
        two.enter(entered("refused"))
    two.register()
    second = entered("second")
    two.enter(second)
    with pytest.raises(OldRevisionError):
        one.enter(entered("late"))
    # A writer that recorded no revision, as one of an older version, is not known.
    assert two.old([first, second, entered("stranger")]) == [first]
    one.leave(first)
    assert two.old([first, second]) == []


def test_runs_from_before_a_revision_came_back_are_told_apart(journal: SqlJournal) -> None:
    one = SqlRevisions(journal.database, "job", Revision("1", "m1"))
    two = SqlRevisions(journal.database, "job", Revision("2", "m2"))
    assert newest_of(journal.database, "job") is None
    # What an older version began goes on.
    before = journal.start_run(RunIdentity("backfill", "job", "table", "1"))
    one.register()
    newest = newest_of(journal.database, "job")
    assert newest is not None
    assert (newest.revision, newest.since, newest.runs_before) == (Revision("1", "m1"), 0.0, 0)
    two.register()
    one.register(go_back=True)
    newest = newest_of(journal.database, "job")
    assert newest is not None
    assert (newest.runs_before, newest.since > 0) == (before.id, True)
    assert newest_of(journal.database, "another job") is None
