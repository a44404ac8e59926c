"""Engines that hand out the driver's own values; whose every transaction is a read-only snapshot, or one that writes."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import QueuePool

from migrator.errors import SettingsError, SourceError
from migrator.server_failures import refuses_login
from migrator.source.address import Address
from migrator.source.manners import Manners

CONNECT_TIMEOUT_S = 10


def read_engine(address: Address, manners: Manners) -> Engine:
    """An engine with up to `manners.pool_size` connections; nothing is connected yet.

    Each new connection asks the address again. Raises: SettingsError as the address does.
    """
    return _ENGINES[address.url().get_backend_name()](address, manners)


def write_engine(address: Address, manners: Manners) -> Engine:
    """The same for capture's own tables: transactions see what others committed before each statement, and write."""
    return read_engine(address, replace(manners, writes=True))


def _pool(manners: Manners) -> dict[str, Any]:
    return {
        "poolclass": QueuePool,
        "pool_size": manners.pool_size,
        "max_overflow": 0,
        "pool_timeout": manners.pool_wait_s,
        "hide_parameters": True,
    }


# ── SQLite ──


class _TimedConnection(sqlite3.Connection):
    """A connection that knows when its statement must have ended."""

    ends_at: float = math.inf


def _sqlite_engine(address: Address, manners: Manners) -> Engine:
    # as_uri() escapes what a file name may hold; mode=ro never creates a file.
    mode = "rw" if manners.writes else "ro"
    uri = f"{Path(address.url().database or '').resolve().as_uri()}?mode={mode}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri,
            uri=True,
            timeout=manners.lock_wait_s,
            isolation_level=None,
            check_same_thread=False,
            factory=_TimedConnection,
        )
        # One text that is not UTF-8 then refuses its row; sqlite3's default would end the whole page.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        # mode=ro alone would let an ATTACH in a query make a file.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA synchronous = FULL" if manners.writes else "PRAGMA query_only = ON")
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, **_pool(manners))
    sa.event.listen(engine, "begin", _begin_writing if manners.writes else _begin)
    if limit_s := manners.limit_s(0):
        _limit_sqlite(engine, limit_s)
    return engine


def _begin(connection: Connection) -> None:
    # sqlite3 begins no transaction before a SELECT, so each SELECT of a page would see a snapshot of its own.
    connection.exec_driver_sql("BEGIN")


def _begin_writing(connection: Connection) -> None:
    # A transaction that reads first and writes then is refused where another one wrote in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _limit_sqlite(engine: Engine, limit_s: float) -> None:
    """SQLite knows no limit of time itself; it asks us now and then whether to go on."""

    def watch(connection: _TimedConnection, _: object) -> None:
        connection.set_progress_handler(lambda: time.monotonic() > connection.ends_at, _STEPS_A_LOOK)

    def start(_: object, cursor: sqlite3.Cursor, *__: object) -> None:
        connection = cursor.connection
        assert isinstance(connection, _TimedConnection)
        connection.ends_at = time.monotonic() + limit_s

    sa.event.listen(engine, "connect", watch)
    sa.event.listen(engine, "before_cursor_execute", start)


_STEPS_A_LOOK = 10_000
"""Instructions of SQLite's machine between two looks at the clock: well below a millisecond."""


# ── servers ──


def _server_engine(address: Address, manners: Manners, arguments: Callable[[URL], dict[str, Any]]) -> Engine:
    """`arguments`: what a connection is made with beside what its URL says."""
    first = address.url()

    def asked() -> URL:
        try:
            url = address.url()
        except SettingsError as error:
            # It was right when the run began, so the run can go on when it is right again.
            raise SourceError(f"{error}; then run the same command again") from None
        if url.drivername != first.drivername:
            raise SourceError("source: the URL is now one of another kind of database; correct it")
        return url

    def make(dialect: Dialect, url: URL) -> DBAPIConnection:
        words, named = dialect.create_connect_args(url)
        return dialect.connect(*words, **{**named, **arguments(url)})

    def connect(dialect: Dialect, *_: object) -> DBAPIConnection:
        url = asked()
        try:
            return make(dialect, url)
        except dialect.loaded_dbapi.Error as error:
            if not refuses_login(error):
                raise
            # The password may have been changed within the time that an answer is believed.
            address.forget()
            if (now := asked()) == url:
                raise
        return make(dialect, now)

    # The engine itself never holds the password.
    engine = sa.create_engine(first.set(password=None), pool_pre_ping=True, **_pool(manners))
    sa.event.listen(engine, "do_connect", connect)
    return engine


def _unless_in(url: URL, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if name not in url.query}


# ── PostgreSQL ──


def _postgresql_engine(address: Address, manners: Manners) -> Engine:
    from migrator.source import postgresql  # needs psycopg, an extra that SQLite does without

    wanted = {"application_name": manners.name, "connect_timeout": CONNECT_TIMEOUT_S, **postgresql.ALIVE}
    # Whatever the database keeps: of one that keeps any bytes (SQL_ASCII), the driver would give bytes for texts.
    engine = _server_engine(
        address, manners, lambda url: _unless_in(url, wanted) | {"client_encoding": "utf8"}
    )
    sa.event.listen(engine, "connect", postgresql.prepare)
    sa.event.listen(engine, "begin", partial(postgresql.begin, manners=manners))
    return engine


# ── MySQL and MariaDB ──


def _mysql_engine(address: Address, manners: Manners) -> Engine:
    from migrator.source import mysql  # needs PyMySQL, an extra that SQLite does without

    wanted: dict[str, Any] = {"program_name": manners.name, "connect_timeout": CONNECT_TIMEOUT_S}
    if manners.statement_timeout_s:
        wanted["read_timeout"] = math.ceil(manners.statement_timeout_s + manners.silence_s)
    engine = _server_engine(
        address, manners, lambda url: _unless_in(url, wanted) | mysql.arguments(url.password)
    )
    sa.event.listen(engine, "connect", partial(mysql.prepare, manners=manners))
    if not manners.writes:
        sa.event.listen(engine, "begin", mysql.begin)
    return engine


_ENGINES: dict[str, Callable[[Address, Manners], Engine]] = {
    "sqlite": _sqlite_engine,
    "postgresql": _postgresql_engine,
    "mysql": _mysql_engine,
}
