"""Which revision of a job is the newest: the fake one, and journals of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlRevisions, SqlWriters, newest_of
from migrator.mapping.model.instances import Revision, Revisions, Standing
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.live import Writer
from migrator.runtime.errors import OldRevisionError
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


def test_first_registered_is_newest_until_a_new_one_registers(make: Make) -> None:
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


def test_runs_before_a_revision_returned_are_kept_apart(journal: SqlJournal) -> None:
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


def test_answer_unchanged_by_a_revision_keeps_its_age(journal: SqlJournal) -> None:
    def revisions(digest: str, **answers: str) -> SqlRevisions:
        return SqlRevisions(journal.database, "job", Revision(digest, digest, answers=answers))

    def known() -> dict[str, tuple[str, float]]:
        newest = newest_of(journal.database, "job")
        answers = {} if newest is None else newest.answers
        return {name: (answered.digest, answered.since) for name, answered in answers.items()}

    def since() -> float:
        newest = newest_of(journal.database, "job")
        assert newest is not None
        return newest.since

    assert known() == {}
    revisions("1", order="a", orders="a", gone="a").register()
    assert known() == {"order": ("a", 0.0), "orders": ("a", 0.0), "gone": ("a", 0.0)}
    revisions("2", order="a", orders="b").register()
    second = since()
    assert second > 0
    assert known() == {"order": ("a", 0.0), "orders": ("b", second)}
    # A pattern alone was changed: items are as old as the revision.
    revisions("2", order="c", orders="b", more="a").register()
    assert known() == {"order": ("c", second), "orders": ("b", second), "more": ("a", second)}
    revisions("1", order="a", orders="a").register(go_back=True)
    assert known() == {"order": ("a", since()), "orders": ("a", since())}


def test_a_revision_in_other_words_is_the_same_one(journal: SqlJournal) -> None:
    def revisions(digest: str, meaning: str) -> SqlRevisions:
        return SqlRevisions(journal.database, "job", Revision(digest, f"m{digest}", meaning))

    writers = SqlWriters(journal.database, "table")
    one, same, two = revisions("1", "a"), revisions("2", "a"), revisions("3", "b")
    assert one.register() == "first"
    first, second = writers.enter("relay"), writers.enter("relay")
    one.enter(first)
    same.enter(second)
    assert (same.standing(), same.is_old(), same.old([first, second])) == ("newest", False, [])
    newest, standing = same.newest_and_standing()
    assert newest is not None
    assert (newest.revision.mapping, standing) == ("m1", "newest")
    assert same.register() == "newest"
    assert (one.is_old(), two.register()) == (False, "new")
    # Known by its meaning, so that it does not take the job over.
    assert (revisions("4", "a").standing(), two.old([first, second])) == ("old", [first, second])
    # What an older migrator registered has none.
    revisions("5", "").register()
    assert (revisions("6", "").standing(), revisions("4", "a").standing()) == ("new", "old")
