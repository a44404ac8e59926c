"""Steps that bring a journal up, on each kind of database: by several processes at once, and cut off in between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, MetaData, inspect, update

from migrator.journal import database, schema
from migrator.journal.database import STEPS, Step, _engine, _url, add_columns
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import Column, Table, Text
from migrator.model.journal import RunIdentity
from tests.forking import Python

IDENTITY = RunIdentity("backfill", "shop", "table-1", "rev-1")
OPEN = "import sys; from migrator.journal.runs import SqlJournal; SqlJournal(sys.argv[1]).close(); print('opened')"


@pytest.fixture(params=["file", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A journal's URL; afterwards its tables are as they were."""
    is_file = request.param == "file"
    made = f"sqlite:///{tmp_path}/shop.db" if is_file else request.getfixturevalue(f"{request.param}_journal")
    yield made
    engine = _engine(_url(made))
    with engine.begin() as connection:
        schema.metadata.drop_all(connection)
    engine.dispose()


def as_of_version_2(url: str) -> None:
    """A journal with a run, as the release before has left it."""
    with closing(SqlJournal(url)) as journal:
        journal.start_run(IDENTITY)
        with journal.database.begin() as connection:
            for table in (schema.step, schema.process, schema.failure, schema.throttle):
                table.drop(connection)
            for column in (*schema.ADDED, *schema.AUDIENCE, *schema.OF_REVISIONS, *schema.OF_REQUESTS):
                connection.exec_driver_sql(f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}")
            connection.execute(update(schema.meta).values(version=2))


def recorded(url: str) -> tuple[int, list[int]]:
    """(the journal's version, the steps that it says were applied)."""
    with closing(SqlJournal(url)) as journal:
        assert journal.find_run(IDENTITY) is not None
        with journal.database.begin() as connection:
            return of(connection)


def of(connection: Connection) -> tuple[int, list[int]]:
    numbers = [row.number for row in connection.execute(schema.step.select())]
    return int(connection.execute(schema.meta.select()).scalar_one()), sorted(numbers)


def test_of_several_processes_one_brings_it_up_and_all_go_on(url: str) -> None:
    as_of_version_2(url)
    started = [Python(["-c", OPEN, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    ended = [process.communicate(timeout=60) for process in started]
    assert [out for out, _ in ended] == ["opened\n"] * 3, ended
    assert recorded(url) == (schema.VERSION, list(range(3, schema.VERSION + 1)))


class KilledError(BaseException):
    """The process is gone."""


def note(connection: Connection) -> None:
    add_columns(connection, [Table("migrator_run", MetaData(), Column("note", Text)).c.note])


def note_and_die(connection: Connection) -> None:
    note(connection)
    raise KilledError


def test_one_that_is_killed_in_a_step_keeps_those_before_and_does_that_one_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_of_version_2(url)
    following = schema.VERSION + 1
    with monkeypatch.context() as patched:
        patched.setattr(schema, "VERSION", following)
        patched.setattr(database, "STEPS", (*STEPS, Step(following, note_and_die)))
        with pytest.raises(KilledError):
            SqlJournal(url)
    # The steps before are there for good, and the migrator that has no more of them opens it.
    assert recorded(url)[0] == schema.VERSION
    with monkeypatch.context() as patched:
        patched.setattr(schema, "VERSION", following)
        patched.setattr(database, "STEPS", (*STEPS, Step(following, note)))
        assert recorded(url) == (following, list(range(3, following + 1)))
        with closing(SqlJournal(url)) as journal, journal.database.begin() as connection:
            assert "note" in {column["name"] for column in inspect(connection).get_columns("migrator_run")}
