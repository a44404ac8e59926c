"""A journal's database that is none, or another one's."""

from __future__ import annotations

import socket
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from migrator.journal.runs import SqlJournal
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import read_engine, source_url
from migrator.source.sql.transactions import source_error
from tests import pins
from tests.support_journal_file import journal_in_file


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    path.write_text("not a database, but long enough to be looked at " * 100)
    with pins.refused(SettingsError):
        journal_in_file(path)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pins.refused(SettingsError):
        journal_in_file(tmp_path / "file" / "shop.db")


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pins.refused(SettingsError):
        journal_in_file(tmp_path)


def test_a_path_with_a_mark_of_urls_in_it(tmp_path: Path) -> None:
    path = tmp_path / "what?" / "100%#1.db"
    journal_in_file(path).close()
    assert path.is_file()


@pytest.mark.parametrize("url", ["nonsense", "oracle://me:s3cret@h/d", "x://h"])
def test_a_url_that_is_none(url: str) -> None:
    with pins.refused(SettingsError) as caught:
        SqlJournal(url)
    assert "s3cret" not in str(caught.value)


def test_a_server_that_does_not_answer_shows_no_password() -> None:
    with pytest.raises(MigratorError) as caught:
        SqlJournal("postgresql://me:s3cret@127.0.0.1:1/none")
    assert pins.said(str(caught.value))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "answer"),
    [
        pytest.param("mysql", b"\0\0\0\0", id="empty"),
        pytest.param("mysql", b"\1\0\0\0\x0a", id="cut off"),
        pytest.param("mysql", b'INFO {"server_id": 1}\r\n', id="mysql text"),
        pytest.param("postgresql", b"HTTP/1.1 400 Bad Request\r\n", id="postgresql text"),
    ],
)
def test_a_server_of_another_kind_is_named(scheme: str, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def respond() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=respond, daemon=True).start()
        url = f"{scheme}://me@127.0.0.1:{server.getsockname()[1]}/none"
        with pins.refused(StoppedError, "text" if b" " in answer else ""):
            SqlJournal(url)
        with pytest.raises((StoppedError, DBAPIError)) as source:
            read_engine(Address.of(source_url(url)), ConnectionOptions()).connect()
        why = (
            str(source.value)
            if isinstance(source.value, StoppedError)
            else source_error(source.value, "", "")
        )
        assert "another kind of server" in str(why)


def test_a_mysql_server_that_never_speaks_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"mysql://me@127.0.0.1:{server.getsockname()[1]}/none?connect_timeout=1"
        with pins.refused(StoppedError):
            SqlJournal(url)
        with pytest.raises(DBAPIError) as source:
            read_engine(Address.of(source_url(url)), ConnectionOptions()).connect()
        assert "no answer in time" in str(source_error(source.value, "", ""))


@pytest.mark.parametrize("option", ["s3cret=1", "ssl_ca=/s3cret", "connect_timeout=s3cret"])
def test_an_option_that_its_driver_does_not_take(option: str) -> None:
    url = f"mysql://me@127.0.0.1:1/none?{option}"
    with pins.refused(SettingsError) as caught:
        SqlJournal(url)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(SettingsError) as source:
        read_engine(Address.of(source_url(url)), ConnectionOptions()).connect()
    assert str(source.value) == str(caught.value).replace("journal's", "source's")


def test_every_commit_reaches_the_disk(tmp_path: Path) -> None:
    journal = journal_in_file(tmp_path / "shop.db")
    with journal.database.begin() as connection:
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    assert (mode, synchronous) == ("wal", 2)
    journal.close()


def test_journal_waits_while_another_process_switches_to_wal(tmp_path: Path) -> None:
    """SQLite's own time limit does not hold there: it says at once that the file is locked."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("CREATE TABLE t (a)")
        other.execute("BEGIN IMMEDIATE")
        ends = threading.Timer(0.3, lambda: other.execute("COMMIT"))
        ends.start()
        journal_in_file(path).close()
        ends.join()
