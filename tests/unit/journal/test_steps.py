"""A journal that the release before has written, and one of a release to come."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
from sqlalchemy import delete, inspect, update

from migrator.journal import schema
from migrator.journal.database import OLDEST, PACKAGE, STEPS
from migrator.journal.identity import SqlIdentity
from migrator.model.errors import SettingsError
from migrator.model.journal import RunIdentity, Tally
from tests import pins
from tests.support_journal_file import journal_in_file

KEPT = Path(__file__).with_name("journal_version_2.sql")


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A journal's file as the release before has left it, in the middle of a backfill."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(KEPT.read_text())
    return path


def test_a_journal_of_the_release_before_is_brought_up_and_its_run_goes_on(before: Path) -> None:
    with closing(journal_in_file(before)) as journal:
        run = journal.find_run(RunIdentity("backfill", "shop", "table-1", "rev-1"))
        assert run is not None
        assert [page.number for page in journal.open_pages(run, "order")] == [2]
        assert journal.tally(run) == Tally(rows=100, items=200, refused=1, bytes=5000, write_units=200.0)
        assert [(one.kind, one.source_key) for one in journal.findings(run)] == [("refused", "[7]")]
        assert SqlIdentity(journal.database, "shop").journal_id() == "4435f5ec96ee9614eb10c4be38011d8f"
        assert SqlIdentity(journal.database, "shop").seen("table-1") == 5
        assert journal.claim("table-1", [(b"0123456789abcdef", "order:[2]")]) == {
            b"0123456789abcdef": "order:[1]"
        }
        assert not journal.database.is_new
        with journal.database.begin() as connection:
            assert connection.execute(schema.meta.select()).scalar() == schema.VERSION
            steps = connection.execute(schema.step.select().order_by(schema.step.c.number)).all()
    assert [(one.number, one.migrator) for one in steps] == [
        (number, version(PACKAGE)) for number in (3, 4, 5, 6, 7)
    ]
    assert all(one.at > 1_700_000_000 for one in steps)


def test_brought_up_it_has_the_tables_and_columns_of_a_new_one(before: Path, tmp_path: Path) -> None:
    with (
        closing(journal_in_file(before)) as old,
        closing(journal_in_file(tmp_path / "new.db")) as new,
        old.database.begin() as one,
        new.database.begin() as other,
    ):
        assert columns(one) == columns(other)


def columns(connection: object) -> dict[str, list[tuple[str, str]]]:
    look = inspect(connection)
    return {
        name: [(column["name"], str(column["type"])) for column in look.get_columns(name)]
        for name in sorted(look.get_table_names())
    }


def test_every_version_has_its_step() -> None:
    assert [one.number for one in STEPS] == list(range(OLDEST + 1, schema.VERSION + 1))


def of_version(path: Path, number: int, made_by: str = "") -> None:
    with closing(journal_in_file(path)) as journal, journal.database.begin() as connection:
        connection.execute(delete(schema.step))
        if made_by:
            connection.execute(schema.step.insert().values(number=number, at=1.8e9, migrator=made_by))
        connection.execute(update(schema.meta).values(version=number))


def test_a_newer_one_is_refused_with_the_release_to_install_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    of_version(path, 99, "7.1.0")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE migrator_window")
    with pins.refused(SettingsError, version=schema.VERSION):
        journal_in_file(path)
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'migrator_window'"
        ).fetchone()
    assert count == 0


def test_one_that_does_not_say_what_made_it_asks_for_a_newer_migrator(tmp_path: Path) -> None:
    of_version(tmp_path / "shop.db", 99)
    with pins.refused(SettingsError):
        journal_in_file(tmp_path / "shop.db")


def test_one_that_no_step_begins_with_is_refused(tmp_path: Path) -> None:
    of_version(tmp_path / "shop.db", 1)
    with pins.refused(SettingsError):
        journal_in_file(tmp_path / "shop.db")
