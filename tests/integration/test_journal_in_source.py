"""`journal: source`: our tables in the source's own database."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.pool import QueuePool

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Page, RunIdentity, Tally
from migrator.runtime.errors import SettingsError
from migrator.settings.job import Job, load_job
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.session import job as job_wiring
from tests import pins
from tests.support_mysql import end_sessions, run_script, settings_of

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev1")


LIMITS = "max_connections: 4, statement_timeout_s: 2.5"


def job(folder: Path, url: str, more: str = LIMITS) -> Job:
    path = folder / "shop.yaml"
    path.write_text(f"job: 1\nmapping: m.yaml\nsource: {{url: '${{SHOP}}', {more}}}\njournal: source\n")
    return load_job(path, {"SHOP": url})


def asked(journal: SqlJournal, sql: str) -> tuple[Any, ...]:
    with journal.database.begin() as connection:
        return tuple(connection.exec_driver_sql(sql).one())


@pytest.mark.parametrize("server", ["postgres_database", "mysql_database"])
def test_the_sources_database_keeps_the_journal(
    request: pytest.FixtureRequest, tmp_path: Path, server: str
) -> None:
    url = request.getfixturevalue(server)
    for _ in range(2):
        with job_wiring.open_journal(job(tmp_path, url)) as journal:
            journal.start_run(IDENTITY)
    source = SqlSource(source_url(url))
    assert len(source.query("SELECT * FROM migrator_run", {})) == 2
    # Our own tables are none of the source's.
    assert source.facts().tables == {}
    source.close()


def test_postgresql_sees_the_manners_of_a_source(postgres_database: str, tmp_path: Path) -> None:
    names = ("application_name", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    with job_wiring.open_journal(job(tmp_path, postgres_database)) as journal:
        assert asked(journal, f"SELECT {settings}") == ("migrator shop journal", "2500ms", "30s", "2min")
        pool = journal.database.engine.pool
        assert isinstance(pool, QueuePool)
        assert pool.size() == 2


def test_mariadb_sees_the_manners_of_a_source(mysql_database: str, tmp_path: Path) -> None:
    with job_wiring.open_journal(job(tmp_path, mysql_database)) as journal:
        named = settings_of(mysql_database)
        limit = f"@@SESSION.{named.time_limit} / {named.second}"
        found = asked(journal, f"SELECT {limit}, @@SESSION.lock_wait_timeout, @@SESSION.{named.isolation}")
    assert found == (2.5, 30, "READ-COMMITTED")


def test_a_page_that_is_repeated_counts_once_on_mariadb(mysql_database: str, tmp_path: Path) -> None:
    """MariaDB counts rows that an UPDATE changed, unless it is asked to count those that it found."""
    with job_wiring.open_journal(job(tmp_path, mysql_database)) as journal:
        run = journal.start_run(IDENTITY)
        page = Page("order", 1, None, None)
        journal.plan_pages(run, "order", [page])
        for _ in range(2):
            journal.finish_page(run, page, Tally(rows=3), [])
        assert journal.tally(run).rows == 3


def test_a_password_may_change_while_a_run_resumes(mysql_database: str, tmp_path: Path) -> None:
    name = f"keeper_{secrets.token_hex(4)}"
    made = f"CREATE USER {name} IDENTIFIED BY 'old'; GRANT ALL ON *.* TO {name}"
    run_script(mysql_database, made)
    url = make_url(mysql_database)

    def tell(password: str) -> None:
        shown = url.set(username=name, password=password).render_as_string(hide_password=False)
        (tmp_path / "url").write_text(shown)

    try:
        tell("old")
        with job_wiring.open_journal(job(tmp_path, "file:url")) as journal:
            run_script(mysql_database, f"ALTER USER {name} IDENTIFIED BY 'new'")
            tell("new")
            end_sessions(mysql_database, name)
            assert journal.start_run(IDENTITY).state == "running"
    finally:
        run_script(mysql_database, f"DROP USER {name}")


def test_a_file_has_one_writer_so_it_keeps_no_journal_of_several(tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE users (id INTEGER PRIMARY KEY)"))
    engine.dispose()
    with (
        pins.refused(SettingsError),
        job_wiring.open_journal(job(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")),
    ):
        pass
