"""Texts of revisions, and a change from one to another, in journals of every kind."""

from __future__ import annotations

import pytest

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlChanges, SqlRevisions
from migrator.mapping.difference.steps import under_way
from migrator.mapping.model.instances import Revision, RevisionChange
from migrator.runtime.errors import OldRevisionError, SettingsError
from tests import pins


def revisions(journal: SqlJournal, name: str, text: str = "") -> SqlRevisions:
    own = Revision(f"d-{name}", name, text=text or f"text of {name}")
    return SqlRevisions(journal.database, "job", own)


def test_each_revision_that_becomes_the_newest_leaves_its_text(journal: SqlJournal) -> None:
    changes = SqlChanges(journal.database, "job")
    assert (changes.text("a"), changes.before("a")) == (None, None)
    revisions(journal, "a").register()
    assert (changes.text("a"), changes.before("a")) == (pins.text("case"), None)
    revisions(journal, "a", "with other patterns").register()
    revisions(journal, "b").register()
    assert (changes.text("a"), changes.before("b")) == (pins.text("patterns"), "a")
    changes.keep("c", "not yet")
    assert (changes.text("c"), changes.before("b")) == ("not yet", "a")
    assert (changes.before("b"), changes.before("a")) == ("a", "b")
    assert SqlChanges(journal.database, "another").text("a") is None


def test_change_advances_by_steps_and_persists(journal: SqlJournal) -> None:
    changes = SqlChanges(journal.database, "job")
    assert changes.last() is None
    change = changes.begin("a", "b", goes_back=False)
    assert change == changes.last() == RevisionChange(1, "a", "b", goes_back=False, step="indexes")
    changes.advance(change, "items")
    assert (found := changes.last()) is not None
    assert (found.step, found.is_done) == ("items", False)
    with pins.refused(SettingsError):
        changes.begin("a", "c", goes_back=False)
    changes.advance(change, "")
    assert (found := changes.last()) is not None
    assert found.is_done
    assert changes.begin("b", "c", goes_back=False).number == 2


def test_change_in_progress_blocks_a_third_revision(journal: SqlJournal) -> None:
    old, new, third = (revisions(journal, name) for name in "abc")
    old.register()
    changes = SqlChanges(journal.database, "job")
    change = changes.begin("a", "b", goes_back=False)
    with pins.refused(OldRevisionError, "way"):
        third.register()
    assert (old.register(), new.register()) == ("newest", "new")
    with pins.refused(OldRevisionError, "finish"):
        old.register(go_back=True)
    with pytest.raises(OldRevisionError):
        third.register()
    changes.advance(change, "")
    assert third.register() == "new"


@pytest.mark.parametrize(
    ("goes_back", "own"), [(False, "c"), (False, "a"), (True, "a"), (True, "b"), (True, "c")]
)
def test_command_by_another_mapping_is_refused_with_the_fix(goes_back: bool, own: str) -> None:
    change = RevisionChange(1, "a", "b", goes_back=goes_back, step="items")
    assert pins.said(under_way(change, own))


def test_change_back_replaces_the_change_that_it_leaves(journal: SqlJournal) -> None:
    old, new = revisions(journal, "a"), revisions(journal, "b")
    old.register()
    changes = SqlChanges(journal.database, "job")
    changes.keep("b", "text of b")
    changes.begin("a", "b", goes_back=False)
    back = changes.begin("b", "a", goes_back=True)
    assert back.step == "unasked", "no writer has worked by what it leaves"
    assert [changes.was_newest(name) for name in ("a", "b", "c")] == [True, False, True]
    changes.advance(back, "")
    changes.begin("a", "b", goes_back=False)
    new.register()
    back = changes.begin("b", "a", goes_back=True)
    assert (back.step, changes.last()) == ("indexes", back)
    with pytest.raises(OldRevisionError):
        new.register(go_back=True) if new.standing() == "old" else revisions(journal, "c").register()
    assert old.register(go_back=True) == "old"


def test_a_revision_is_left_where_the_job_went_back_from_it_last(journal: SqlJournal) -> None:
    changes = SqlChanges(journal.database, "job")
    steps = (("a", "b", False), ("b", "a", True), ("a", "b", False), ("b", "c", False))
    left = []
    for before, after, goes_back in steps:
        changes.advance(changes.begin(before, after, goes_back=goes_back), "")
        left.append({name for name in "abc" if changes.is_left(name)})
    assert left == [set(), {"b"}, {"b"}, set()]
