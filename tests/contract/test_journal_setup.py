"""A journal that is opened for the first time, on each kind of database."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete, inspect, update

from migrator.journal import schema
from migrator.journal.database import _engine, _url, _without_secrets
from migrator.journal.runs import SqlJournal
from migrator.runtime.errors import SettingsError
from tests import pins
from tests.forking import Python

OPEN = "import sys; from migrator.journal.runs import SqlJournal; SqlJournal(sys.argv[1]).close(); print('opened')"


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a database without a journal; afterwards it has none again."""
    is_file = request.param == "file"
    made = f"sqlite:///{tmp_path}/shop.db" if is_file else request.getfixturevalue(f"{request.param}_journal")
    engine = _engine(_url(made))
    schema.metadata.drop_all(engine)
    yield made
    schema.metadata.drop_all(engine)
    engine.dispose()


def test_journal_is_set_up_once_when_several_processes_open_it(url: str) -> None:
    started = [Python(["-c", OPEN, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    ended = [process.communicate(timeout=60) for process in started]
    assert [out for out, _ in ended] == ["opened\n"] * 3, ended
    with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
        assert connection.execute(schema.meta.select()).scalars().all() == [schema.VERSION]
        assert schema.metadata.tables.keys() <= set(inspect(connection).get_table_names())


@pytest.mark.parametrize("version", [schema.VERSION - 1, schema.VERSION + 1])
def test_journal_of_another_version_is_refused_and_unchanged(url: str, version: int) -> None:
    with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
        connection.execute(update(schema.meta).values(version=version))
        schema.record.drop(connection)
    with pins.refused(SettingsError, version=version):
        SqlJournal(url)
    engine = _engine(_url(url))
    assert not inspect(engine).has_table(schema.record.name)
    engine.dispose()


def test_journal_without_one_of_its_tables_is_refused_and_unchanged(url: str) -> None:
    with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
        schema.remembered_key.drop(connection)
    with pins.refused(SettingsError, name=_without_secrets(_url(url))):
        SqlJournal(url)
    engine = _engine(_url(url))
    assert not inspect(engine).has_table(schema.remembered_key.name)
    engine.dispose()


def test_setup_that_was_interrupted_is_finished(url: str) -> None:
    with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
        connection.execute(delete(schema.meta))
        schema.remembered_key.drop(connection)
    with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
        assert inspect(connection).has_table(schema.remembered_key.name)
