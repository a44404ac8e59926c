"""Which journal this is, and what it has seen of tables: the simulation's and the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.journal.identity import SqlIdentity
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import Identity
from migrator.mapping.model.journal import RunIdentity


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def identity_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Identity]]:
    """Identities of jobs in one journal."""
    fixtures = {"postgresql": "postgres_database", "mysql": "mysql_database"}
    where = (
        request.getfixturevalue(fixtures[request.param])
        if request.param in fixtures
        else f"sqlite:///{tmp_path / 'journal.db'}"
    )
    journal = SqlJournal(where)
    yield lambda job: SqlIdentity(journal.database, job)
    journal.close()


def test_journal_id_is_shared_by_its_jobs_and_not_by_journals(
    identity_of: Callable[[str], Identity],
) -> None:
    own = identity_of("shop").journal_id()
    assert identity_of("other").journal_id() == identity_of("shop").journal_id() == own
    assert SqlIdentity(SqlJournal.in_memory().database, "shop").journal_id() != own


def test_what_was_seen_of_a_table_is_of_one_job(identity_of: Callable[[str], Identity]) -> None:
    identity = identity_of("shop")
    assert (identity.seen("t1"), identity.tables_named("Shop")) == (None, frozenset())
    for table_id, ticket in (("t1", 5), ("t1", 9), ("t2", 0)):
        identity.see(table_id, "Shop", ticket)
    assert (identity.seen("t1"), identity.seen("t2")) == (9, 0)
    assert identity.tables_named("Shop") == {"t1", "t2"}
    assert (identity_of("other").seen("t1"), identity_of("other").tables_named("Shop")) == (None, frozenset())


def test_journal_keeps_the_first_names_of_table_and_source(
    identity_of: Callable[[str], SqlIdentity],
) -> None:
    identity = identity_of("shop")
    assert identity.names("source") == frozenset()
    assert identity.first_name("source", "first") == {"first"}
    assert identity.first_name("source", "other") == {"first"}
    assert identity.first_name("table", "Shop") == {"Shop"}
    assert identity_of("other").names("source") == frozenset()
    for _ in range(2):
        identity.add_name("source", "other")
    assert identity.names("source") == {"first", "other"}


def test_tables_that_were_written_with_tickets_are_the_jobs(
    identity_of: Callable[[str], SqlIdentity],
) -> None:
    """All that a journal of an older version knows of it."""
    identity = identity_of("shop")
    identity.see("t1", "Shop", 5)
    assert identity.first_name("table", "Staging") == {"Shop"}
    identity.add_name("table", "Staging")
    assert identity.names("table") == {"Shop", "Staging"}


def test_job_is_known_by_written_runs_and_not_by_compared_ones(
    identity_of: Callable[[str], SqlIdentity],
) -> None:
    identity = identity_of("shop")
    journal = SqlJournal(identity.database.engine.url)
    for kind in ("verify", "replay"):
        journal.start_run(RunIdentity(kind, "shop", "t1", "revision"))  # type: ignore[arg-type]
    assert not identity.knows_job()
    identity.see("t1", "Shop", 5)
    assert identity.knows_job()
    journal.start_run(RunIdentity("backfill", "other", "t1", "revision"))
    assert identity_of("other").knows_job()
    assert not identity_of("third").knows_job()
    journal.close()
