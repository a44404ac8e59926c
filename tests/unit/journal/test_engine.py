"""A journal's database that is none, or another one's."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from migrator.errors import MigratorError, SettingsError
from migrator.journal import schema
from migrator.journal.store import SqlJournal


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_text("not a database, but long enough to be looked at " * 100)
    with pytest.raises(SettingsError, match="is no SQLite database"):
        SqlJournal.in_file(path)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be created"):
        SqlJournal.in_file(tmp_path / "file" / "shop.db")


@pytest.mark.parametrize(
    ("url", "message"),
    [("nonsense", "no database URL"), ("oracle://h/d", "needs a driver"), ("x://h", "needs a driver")],
)
def test_a_url_that_is_none(url: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        SqlJournal(url)


def test_a_server_that_does_not_answer_shows_no_password() -> None:
    with pytest.raises(MigratorError) as caught:
        SqlJournal("postgresql://me:s3cret@127.0.0.1:1/none")
    assert "does not answer" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_journal_of_another_version(tmp_path: Path) -> None:
    journal = SqlJournal.in_file(tmp_path / "shop.db")
    with journal.database.begin() as connection:
        connection.execute(update(schema.meta).values(version=99))
    journal.close()
    with pytest.raises(SettingsError, match="is of version 99"):
        SqlJournal.in_file(tmp_path / "shop.db")
