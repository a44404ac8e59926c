"""A journal that is damaged, can only be read, has no room or has lost a table says what to do, not 'go on'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event, text

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Finding, Page, RunIdentity
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from tests import pins
from tests.support_journal_file import journal_in_file

IDENTITY = RunIdentity("backfill", "shop", "t", "r")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with some pages in it, closed, so that nothing is in its log."""
    found = tmp_path / "shop.db"
    with closing(journal_in_file(found)) as journal:
        run = journal.start_run(IDENTITY)
        journal.plan_pages(run, "order", [Page("order", number, None, "x" * 200) for number in range(500)])
        journal.add_findings(run, [Finding("refused", "order", "why", str(number)) for number in range(500)])
        with journal.database.begin() as connection:
            assert connection.execute(text("SELECT COUNT(*) FROM migrator_page")).scalar() == 500
    return found


def used(path: Path) -> None:
    with closing(journal_in_file(path)) as journal:
        run = journal.find_run(IDENTITY)
        assert run is not None
        journal.waiting_pages(run, "order", 1000)
        journal.findings(run)


def refused(path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        used(path)
    message = str(caught.value)
    assert str(path) in message
    assert "docs/lost-journal.md" in message
    assert "the same command resumes" not in message
    return message


def test_pages_of_the_file_that_are_overwritten(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (size - 8192))
    assert "is damaged" in refused(path)


def test_a_file_that_was_cut_off(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(12_000)
    assert "is damaged" in refused(path)


def test_a_file_whose_head_is_gone(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * 100)
    assert pins.said(refused(path))


def test_what_remains_and_what_is_lost_is_reported(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(12_000)
    message = refused(path)
    for words in ("-wal", "backup", "the source and the table are as they were", "phases", "remembered keys"):
        assert words in message


@pytest.fixture(params=["sqlite", "postgres_database", "mysql_database"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlJournal]:
    of_file = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/j.db" if of_file else request.getfixturevalue(request.param)
    with closing(SqlJournal(url)) as made:
        yield made


@pytest.mark.parametrize(
    "statement", ["DROP TABLE migrator_run", "ALTER TABLE migrator_run DROP COLUMN revision"]
)
def test_a_table_or_column_that_is_gone(journal: SqlJournal, statement: str) -> None:
    with journal.database.begin() as connection:
        connection.execute(text(statement))
    with pins.refused(SettingsError):
        journal.runs("shop")
    with pins.refused(SettingsError):
        journal.start_run(IDENTITY)


READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
}


def test_one_that_can_only_be_read(journal: SqlJournal) -> None:
    engine = journal.database.engine
    statement = READ_ONLY[engine.dialect.name]
    if engine.dialect.name == "mysql":
        engine.dispose()
        event.listen(engine, "connect", lambda driver, _: driver.cursor().execute(statement))
    else:
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(statement))
    with pins.refused(SettingsError) as caught:
        journal.start_run(IDENTITY)
    assert "resumes" not in str(caught.value)


def test_full_disk_is_reported_and_a_rerun_continues(path: Path) -> None:
    with closing(journal_in_file(path)) as journal:
        engine = journal.database.engine
        with engine.begin() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        limit = f"PRAGMA max_page_count = {pages}"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(limit))
        run = journal.find_run(IDENTITY)
        assert run is not None
        with pins.refused(StoppedError) as caught:
            journal.plan_pages(run, "user", [Page("user", number, None, "x" * 400) for number in range(5000)])
        assert caught.value.exit_code == 3
        assert journal.planned(run) == {"order"}


def test_missing_rights_are_named_to_the_user(postgres_database: str) -> None:
    import psycopg

    with psycopg.connect(postgres_database, autocommit=True) as server:
        name = f"nobody_{server.info.dbname}"
        server.execute(f"CREATE ROLE {name} LOGIN")
        try:
            url = postgres_database.replace("//", f"//{name}@", 1) if "@" not in postgres_database else ""
            url = url or f"postgresql://{name}@{postgres_database.rpartition('@')[2]}"
            with pins.refused(MigratorError):
                SqlJournal(url)
        finally:
            server.execute(f"DROP ROLE {name}")


def test_a_search_path_without_a_schema_is_named(postgres_database: str) -> None:
    with pytest.raises(SettingsError, match="search_path"):
        SqlJournal(f"{postgres_database}?options=-csearch_path%3D''")
