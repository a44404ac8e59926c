"""The questions of ours for a server's load and its replicas' lag, and what a user hears who may not ask them."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import SettingsError, SourceError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins


@contextmanager
def opened(url: str) -> Iterator[SqlSource]:
    source = SqlSource(source_url(url))
    try:
        yield source
    finally:
        source.close()


def a_file(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as made:
        made.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")


@contextmanager
def user_of(url: str, *made: str, dropped: str) -> Iterator[str]:
    """The URL of a user without any right but to log in. {name} and {word} stand in the statements."""
    name, word = f"u_{secrets.token_hex(4)}", secrets.token_hex(8)
    engine = sa.create_engine(source_url(url), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in made:
                connection.exec_driver_sql(statement.format(name=name, word=word))
        own = sa.make_url(url).set(username=name, password=word)
        yield own.render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(dropped.format(name=name))
        engine.dispose()


def test_postgresql_load_counts_sessions_and_knows_replicas(postgres_database: str) -> None:
    with opened(postgres_database) as source:
        assert source.strain("load") >= 0
        assert source.strain("replica lag") >= 0
        assert source.strain("load", "SELECT 7.5") == 7.5


def test_mariadb_counts_sessions_at_work(new_mysql_database: Callable[[], str]) -> None:
    with opened(new_mysql_database()) as source:
        assert source.strain("load") >= 0
        with pins.refused(SettingsError):
            source.strain("replica lag")


def test_postgresql_user_blind_to_other_sessions_gets_the_right(postgres_database: str) -> None:
    """Else it would count its own sessions alone, and never be held."""
    made = "CREATE ROLE {name} LOGIN PASSWORD '{word}'"
    with (
        user_of(postgres_database, made, dropped="DROP ROLE {name}") as url,
        opened(url) as source,
        pytest.raises(SourceError, match="GRANT pg_read_all_stats"),
    ):
        source.strain("load")


def test_mariadb_user_blind_to_other_sessions_gets_the_right(
    new_mysql_database: Callable[[], str],
) -> None:
    url = new_mysql_database()
    made = (
        "CREATE USER {name} IDENTIFIED BY '{word}'",
        f"GRANT SELECT ON {sa.make_url(url).database}.* TO {{name}}",
    )
    with (
        user_of(url, *made, dropped="DROP USER {name}") as own,
        opened(own) as source,
        pytest.raises(SourceError, match="GRANT PROCESS"),
    ):
        source.strain("load")


@pytest.mark.parametrize("question", ["SELECT NULL", "SELECT 'much'", "SELECT 1 WHERE 1 = 0"])
def test_load_query_without_a_number_is_reported(question: str, tmp_path: Path) -> None:
    a_file(tmp_path)
    with opened(f"sqlite:///{tmp_path}/shop.db") as source, pins.refused(SourceError):
        source.strain("load", question)


def test_a_question_that_writes_is_refused(tmp_path: Path) -> None:
    a_file(tmp_path)
    with (
        opened(f"sqlite:///{tmp_path}/shop.db") as source,
        pytest.raises(SettingsError, match="source_load_query"),
    ):
        source.strain("load", "DELETE FROM t")
