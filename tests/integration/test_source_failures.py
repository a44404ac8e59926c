"""What a user reads when the source fails: one line that says where, what and what to do, and holds no secret."""

from __future__ import annotations

import re
import shutil
import socket
import sqlite3
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import URL, make_url

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import SourceError
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.values import replace
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.engines.shared import explanations
from migrator.source.engines.sqlite.engine import ERRORS
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_source import CUSTOMER, INTEGER, PURCHASE, TEXT, column, plan_of
from tests.support_source_databases import fill_postgresql, make_sqlite, past_the_gate, postgresql_database

PASSWORD = "hunter2"
PLAN = plan_of(PURCHASE)


@pytest.fixture(scope="module")
def database(postgres_url: str) -> Iterator[URL]:
    with postgresql_database(postgres_url) as url:
        fill_postgresql(url)
        yield make_url(url)


def failure_of(url: URL | str, sql: str = "", *, checked: bool = True, **params: object) -> str:
    """The message of a failed page, or of a failed statement of the user's, which the gate has seen or not."""
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    twice = Retry(Backoff(attempts=2, base_s=0.01))
    source = SqlSource(source_url(text), connection_options=ConnectionOptions(lock_wait_s=0.05), retry=twice)
    ask = partial(source.query, sql, params) if sql else partial(source.read_page, PLAN, None, None)
    ask = ask if checked else partial(past_the_gate, source, sql)
    with closing(source), pytest.raises(SourceError) as caught:
        ask()
    message = str(caught.value)
    assert PASSWORD not in message
    assert "\n" not in message
    assert caught.value.__suppress_context__
    return message


# ── SQLite: the file of a process that was killed in a write ──


def test_an_unfinished_write_of_a_killed_process_is_rolled_back(tmp_path: Path) -> None:
    killed, file = tmp_path / "killed.db", tmp_path / "shop.db"
    with closing(sqlite3.connect(killed)) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.executemany("INSERT INTO customer (name) VALUES (?)", [("a" * 500,)] * 1000)
        connection.commit()
        connection.execute("PRAGMA cache_size = 2")  # so that changed pages go to the file before the end
        connection.execute("UPDATE customer SET name = 'b' || name")
        for name in ("", "-journal"):
            shutil.copy(f"{killed}{name}", f"{file}{name}")
    with (
        closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection,
        pytest.raises(sqlite3.OperationalError) as refused,
    ):
        connection.execute("SELECT * FROM customer").fetchone()
    assert next(ERRORS.reasons(refused.value)) != explanations("reasons")["would_write"]
    with closing(SqlSource(source_url(f"sqlite:///{file}"))) as source:
        assert "customer" in source.facts().tables
        assert source.query("SELECT count(*) n FROM customer WHERE name LIKE 'b%'", {}) == [(0,)]


# ── PostgreSQL: connecting ──


def test_a_missing_database_is_named(database: URL) -> None:
    message = failure_of(database.set(database="nowhere", password=PASSWORD))
    assert message.startswith("PostgreSQL database nowhere at ")
    assert pins.said(message)


def test_unknown_user_error_names_the_url_to_correct(database: URL) -> None:
    assert pins.said(failure_of(database.set(username="nobody", password=PASSWORD)))


def test_a_port_without_a_server_is_reported(database: URL) -> None:
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        message = failure_of(database.set(host="127.0.0.1", port=unused.getsockname()[1], password=PASSWORD))
    assert pins.said(message)


def test_an_unknown_host_is_reported(database: URL) -> None:
    assert pins.said(failure_of(database.set(host="host.invalid", password=PASSWORD)))


def test_a_wrong_password_is_reported(database: URL) -> None:
    with server_that_refuses("28P01", 'password authentication failed for user "ada"') as port:
        message = failure_of(database.set(host="127.0.0.1", port=port, username="ada", password=PASSWORD))
    assert pins.said(message)
    assert not re.search(r"\bada\b", message)


def test_a_full_server_is_reported(database: URL) -> None:
    with server_that_refuses("53300", "sorry, too many clients already", times=2) as port:
        message = failure_of(database.set(host="127.0.0.1", port=port))
    assert pins.said(message, "workers")
    assert pins.said(message, "gave")


@contextmanager
def server_that_refuses(sqlstate: str, reason: str, times: int = 1) -> Iterator[int]:
    """The port of a server that answers PostgreSQL's start-up message with an ErrorResponse, to so many clients.

    Source: PostgreSQL's documentation, "Frontend/Backend Protocol", "Message Formats".
    """
    fields = f"SFATAL\0VFATAL\0C{sqlstate}\0M{reason}\0\0".encode()
    answer = b"E" + struct.pack("!i", len(fields) + 4) + fields
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(10)
        thread = threading.Thread(target=_refuse, args=(server, answer, times), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def _refuse(server: socket.socket, answer: bytes, times: int) -> None:
    for _ in range(times):
        _refuse_one(server, answer)


def _refuse_one(server: socket.socket, answer: bytes) -> None:
    asks_for_encryption = {80877103, 80877104}
    with closing(server.accept()[0]) as client:
        while True:
            length, code = struct.unpack("!ii", client.recv(8, socket.MSG_WAITALL))
            if code not in asks_for_encryption:
                break
            client.sendall(b"N")
        client.recv(length - 8, socket.MSG_WAITALL)
        client.sendall(answer)


# ── PostgreSQL: reading ──


def test_a_cancelled_statement_is_reported(database: URL) -> None:
    url = database.update_query_dict({"options": "-c statement_timeout=100"})
    assert pins.said(failure_of(url, "SELECT pg_sleep(20)", checked=False))


def test_a_table_that_is_gone_is_reported(postgres_url: str) -> None:
    with postgresql_database(postgres_url) as url:
        assert pins.said(failure_of(url))


def test_a_type_that_is_gone_is_named_by_the_server(database: URL) -> None:
    message = failure_of(database, "SELECT CAST(1 AS gone)", checked=False)
    assert '(server: type "gone" does not exist)' in message


def test_a_column_that_is_gone_is_reported(database: URL) -> None:
    gone = column("gone", INTEGER)
    plan = plan_of(replace(PURCHASE, columns=(*PURCHASE.columns, gone)))
    source = SqlSource(source_url(database.render_as_string(hide_password=False)))
    with closing(source), pins.refused(SourceError):
        source.sums(plan, [gone])


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM purchase",
        "COMMIT; DELETE FROM purchase",
        "WITH gone AS (DELETE FROM purchase RETURNING 1) SELECT * FROM gone",
        "SELECT * INTO other FROM purchase",
        "DROP TABLE purchase CASCADE",
    ],
)
def test_a_statement_that_would_write_is_refused(database: URL, sql: str) -> None:
    message = failure_of(database, sql, checked=False)
    # Two in one text never begin: PostgreSQL takes one at a time from us.
    assert "the source is only read" in message or "syntax error" in message


def test_invalid_parameter_is_reported_without_its_value(database: URL) -> None:
    message = failure_of(database, 'SELECT * FROM purchase WHERE "Id" = :id', id="seven")
    assert pins.said(message)
    assert "seven" not in message


def test_a_missing_parameter_is_reported(database: URL) -> None:
    assert pins.said(failure_of(database, "SELECT :id"))


def test_a_value_that_python_cannot_hold_ends_no_page(postgres_url: str) -> None:
    with postgresql_database(postgres_url) as url:
        fill_postgresql(url)
        with psycopg.connect(url) as server:
            server.execute("""UPDATE purchase SET placed_at = 'infinity' WHERE "Id" = 10""")
        source = SqlSource(source_url(url))
        found = source.read_page(plan_of(PURCHASE, ["id", "placed_at"]), None, None)
        source.close()
    assert len(found) == 5
    assert found[0] == (10, "infinity")


@pytest.mark.parametrize(
    "read", [lambda source: source.count(PLAN), lambda source: source.query("SELECT 1", {})]
)
def test_second_try_succeeds_if_all_connections_broke(
    postgres_url: str, read: Callable[[SqlSource], Any]
) -> None:
    twice = Retry(Backoff(attempts=2, base_s=0.01))
    with (
        postgresql_database(postgres_url) as url,
        closing(SqlSource(source_url(url), ConnectionOptions(pool_size=3), retry=twice)) as source,
    ):
        fill_postgresql(url)
        assert source.count(PLAN) == 5
        with source.engine.connect(), source.engine.connect(), source.engine.connect():
            pass
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'migrator'"
            )
        assert read(source)


# ── SQLite ──


def test_a_locked_file_is_reported(tmp_path: Path) -> None:
    url = make_sqlite(tmp_path / "shop.db")
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN EXCLUSIVE")
        message = failure_of(url)
    assert pins.said(message)


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    make_sqlite(tmp_path / "shop.db")
    damaged = bytearray((tmp_path / "shop.db").read_bytes())
    damaged[100:] = b"\xff" * (len(damaged) - 100)
    (tmp_path / "copy.db").write_bytes(damaged)
    assert pins.said(failure_of(str(tmp_path / "copy.db")))


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM purchase",
        "CREATE TABLE other (a)",
        "ATTACH 'other.db' AS other",
        "SELECT 1; SELECT 2",
        "SELECT * FROM timeout",
        "SELECT gone FROM purchase",
        "SELEC",
        "PRAGMA query_only = OFF",
    ],
)
def test_statement_other_than_select_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pins.said(failure_of(make_sqlite(tmp_path / "shop.db"), sql, checked=False))
    assert not (tmp_path / "other.db").exists()


def test_text_that_is_not_utf_8_ends_no_page(tmp_path: Path) -> None:
    url = make_sqlite(tmp_path / "shop.db")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as writer:
        writer.execute("UPDATE customer SET name = CAST(x'41ff' AS TEXT) WHERE id = 1")
        writer.commit()
    source = SqlSource(source_url(url))
    found = source.read_page(plan_of(CUSTOMER, ["id", "name"]), None, None)
    source.close()
    assert [row[1] for row in found] == ["A\udcff", "Bob", None]


def test_key_without_a_text_form_is_reported(database: URL) -> None:
    text = database.render_as_string(hide_password=False)
    with psycopg.connect(text) as server:
        server.execute("CREATE TABLE tagged (tags text[] PRIMARY KEY); INSERT INTO tagged VALUES ('{a}')")
    plan = plan_of(TableFacts("tagged", "tagged", (column("tags", TEXT),), ("tags",)))
    with closing(SqlSource(source_url(text))) as source, pins.refused(SourceError):
        next(source.page_bounds(plan, 1))


def test_more_readers_than_connections_wait_for_each_other(database: URL) -> None:
    source = SqlSource(
        source_url(database.render_as_string(hide_password=False)),
        connection_options=ConnectionOptions(pool_size=2),
    )
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(source.count(PLAN))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    source.close()
    assert found == [5] * 8
