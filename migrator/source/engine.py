"""Engines whose every transaction is a read-only snapshot that hands out the driver's own values."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import QueuePool

APPLICATION_NAME = "migrator"
CONNECT_TIMEOUT_S = 10
LOCK_WAIT_S = 30.0
POOL_WAIT_S = 60


def read_engine(url: URL, pool_size: int, lock_wait_s: float = LOCK_WAIT_S) -> Engine:
    """An engine with up to `pool_size` connections; nothing is connected yet.

    `lock_wait_s`: how long SQLite waits for a writer that holds its lock, MySQL for a change of a table.
    """
    return _ENGINES[url.get_backend_name()](url, pool_size, lock_wait_s)


def _pool(pool_size: int) -> dict[str, Any]:
    return {
        "poolclass": QueuePool,
        "pool_size": pool_size,
        "max_overflow": 0,
        "pool_timeout": POOL_WAIT_S,
        "hide_parameters": True,
    }


# ── SQLite ──


def _sqlite_engine(url: URL, pool_size: int, lock_wait_s: float) -> Engine:
    # as_uri() escapes what a file name may hold; mode=ro never creates a file.
    uri = f"{Path(url.database or '').resolve().as_uri()}?mode=ro"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=lock_wait_s, isolation_level=None, check_same_thread=False
        )
        # One text that is not UTF-8 then refuses its row; sqlite3's default would end the whole page.
        connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
        # mode=ro alone would let an ATTACH in a query make a file.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA query_only = ON")
        return connection

    engine = sa.create_engine("sqlite://", creator=connect, **_pool(pool_size))
    sa.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    # sqlite3 begins no transaction before a SELECT, so each SELECT of a page would see a snapshot of its own.
    connection.exec_driver_sql("BEGIN")


# ── PostgreSQL ──


def _postgresql_engine(url: URL, pool_size: int, _: float) -> Engine:
    from migrator.source.postgresql import prepare  # needs psycopg, an extra that SQLite does without

    wanted = {"application_name": APPLICATION_NAME, "connect_timeout": CONNECT_TIMEOUT_S}
    engine = sa.create_engine(
        url,
        connect_args={name: value for name, value in wanted.items() if name not in url.query},
        pool_pre_ping=True,
        **_pool(pool_size),
    )
    sa.event.listen(engine, "connect", prepare)
    return engine


# ── MySQL and MariaDB ──


def _mysql_engine(url: URL, pool_size: int, lock_wait_s: float) -> Engine:
    from migrator.source import mysql  # needs PyMySQL, an extra that SQLite does without

    wanted = {"program_name": APPLICATION_NAME, "connect_timeout": CONNECT_TIMEOUT_S}
    engine = sa.create_engine(
        url,
        connect_args={name: value for name, value in wanted.items() if name not in url.query}
        | mysql.arguments(url.password),
        pool_pre_ping=True,
        **_pool(pool_size),
    )
    sa.event.listen(engine, "connect", partial(mysql.prepare, lock_wait_s=lock_wait_s))
    sa.event.listen(engine, "begin", mysql.begin)
    return engine


_ENGINES: dict[str, Callable[[URL, int, float], Engine]] = {
    "sqlite": _sqlite_engine,
    "postgresql": _postgresql_engine,
    "mysql": _mysql_engine,
}
