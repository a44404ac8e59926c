"""When a relay looks at the marks, and whom it tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from migrator.cli.lag import RelayReport
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.live import MarksState
from migrator.mapping.model.results import Refreshed, Worked
from migrator.runtime.errors import SourceError, StoppedError, TargetError
from tests import pins
from tests.fakes.journal import FakeOpenFindings
from tests.fakes.marks import MemoryMarks
from tests.support_fence import no_fence
from tests.support_journal_file import journal_in_file
from tests.support_session import session_by


class Away(MemoryMarks):
    def state(self) -> MarksState:
        raise SourceError("the source is away")


@pytest.fixture
def seen() -> list[MarksState]:
    return []


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with closing(journal_in_file(tmp_path / "journal.db")) as made:
        yield made


def report(
    journal: SqlJournal, marks: MemoryMarks, seen: list[MarksState], kept: list[str] | None = None
) -> RelayReport:
    run = journal.start_run(RunIdentity("relay", "shop", "table-1", "rev1"))

    def keep() -> None:
        if kept is not None:
            kept.append("kept")

    return RelayReport(session_by(journal), run, marks, FakeOpenFindings(), keep, seen.append)


def test_relay_report_looks_when_idle_but_not_at_every_turn(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    kept: list[str] = []
    one = report(journal, MemoryMarks(), seen, kept)
    one.idle()
    one.idle()
    assert (len(seen), kept) == (1, ["kept"])


def test_it_looks_when_the_table_is_away(journal: SqlJournal, seen: list[MarksState]) -> None:
    kept: list[str] = []
    marks = MemoryMarks()
    marks.leave("customer", None, {"id": "integer:1"})
    report(journal, marks, seen, kept).failed(TargetError("DynamoDB is away"), 1.0)
    assert ([state.waiting for state in seen], kept) == ([1], [])


def test_a_source_that_is_away_ends_no_relay_that_has_failed(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    report(journal, Away(), seen).failed(SourceError("the source is away"), 1.0)
    assert seen == []


def test_relay_report_logs_progress_periodically_not_per_batch(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    one = report(journal, MemoryMarks(), seen)
    with capture_logs() as logged:
        one.worked(Worked(taken=3, finished=3), 5)
        one.idle()
        one.looked_at = float("-inf")
        one.worked(Worked(taken=1, finished=1), 5)
        one.idle()
    said = [line for line in logged if line["log_level"] != "debug"]
    assert [(line["event"], line["finished"]) for line in said] == [("relay_lag", 3), ("relay_lag", 1)]


def test_relay_line_shows_its_progress_and_pending_work(journal: SqlJournal, seen: list[MarksState]) -> None:
    one = report(journal, MemoryMarks(), seen)
    assert one.line() == pins.text()
    one.worked(Worked(taken=3, finished=3), 5)
    one.idle()
    assert one.line() == pins.text("worked")
    one.failed(TargetError("DynamoDB is away"), 4.0)
    assert one.line() == pins.text("waits")
    one.worked(Worked(taken=1, finished=1), 5)
    assert "away" not in one.line()


def test_marks_that_another_worker_holds_keep_its_trouble(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    marks = MemoryMarks()
    marks.leave("customer", None, {"id": "integer:1"})
    assert marks.take(10, 60.0)
    one = report(journal, marks, seen)
    one.failed(TargetError("DynamoDB is away"), 4.0)
    one.looked_at = float("-inf")
    one.idle()
    assert "away" in one.trouble


def worked(rows: int, items: int) -> Worked:
    return Worked(taken=1, finished=1, refreshed=[Refreshed(roots=rows, stored=items)])


def test_relays_of_one_run_add_their_tallies_in_the_journal(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    one = report(journal, MemoryMarks(), seen)
    other = RelayReport(
        *(session_by(journal), one.run, MemoryMarks(), FakeOpenFindings()), no_fence, lambda state: None
    )
    for relay in (one, other):
        relay.worked(worked(2, 5), 1)
        relay.idle()
    one.worked(worked(1, 1), 1)
    one.summary()
    tally = journal.tally(one.run)
    assert (tally.rows, tally.items) == (5, 11)


def test_a_journal_that_is_away_has_the_counts_at_the_next_look(
    journal: SqlJournal, seen: list[MarksState], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = report(journal, MemoryMarks(), seen)
    one.worked(worked(2, 5), 1)

    def away(*_: object, **__: object) -> None:
        raise StoppedError("the journal is away")

    with monkeypatch.context() as patched:
        patched.setattr(journal, "finish_page", away)
        one.summary()
    one.summary()
    assert journal.tally(one.run).items == 5


def test_changes_are_counted_by_table_and_dependent_entities(
    journal: SqlJournal, seen: list[MarksState]
) -> None:
    one = report(journal, MemoryMarks(), seen)
    one.entities = {"public.lines": "order,product"}
    one.worked(Worked(changes=[("public.lines", 0.2), ("customer", 0.1)]), 5)
    assert {labels for labels, _ in one.changes.items()} == {
        ("public.lines", "order,product"),
        ("customer", "customer"),  # a mark that names a row of an entity has no table
    }
