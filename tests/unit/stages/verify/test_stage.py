"""Which stopped run a verify resumes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.instances import Newest, Revision
from migrator.mapping.model.journal import RunIdentity
from migrator.stages.verify.stage import RESUMED_WITHIN_S, begin

IDENTITY = RunIdentity("verify", "shop", "table", "a")


@pytest.fixture
def journal() -> Iterator[SqlJournal]:
    with closing(SqlJournal.in_memory()) as made:
        yield made


def begun(journal: SqlJournal, runs_before: int, idle_s: float = 0.0) -> int:
    newest = Newest(Revision("a", "m"), 1.0, runs_before)
    return begin(journal, IDENTITY, newest, lambda _: idle_s, lambda told: None, again=False).id


def test_a_run_of_before_the_mapping_returned_is_not_resumed(journal: SqlJournal) -> None:
    """Mapping A, then B, then A again: what the first A looked at has changed since."""
    stopped = journal.start_run(IDENTITY)
    assert begun(journal, runs_before=stopped.id) != stopped.id


def test_a_run_of_after_the_mapping_returned_is_resumed(journal: SqlJournal) -> None:
    stopped = journal.start_run(IDENTITY)
    assert begun(journal, runs_before=stopped.id - 1) == stopped.id


def test_a_run_is_resumed_up_to_the_limit_and_not_after_it(journal: SqlJournal) -> None:
    stopped = journal.start_run(IDENTITY)
    assert begun(journal, 0, idle_s=RESUMED_WITHIN_S) == stopped.id
    assert begun(journal, 0, idle_s=RESUMED_WITHIN_S + 0.001) != stopped.id
