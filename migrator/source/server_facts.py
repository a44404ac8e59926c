"""Facts of a server that decide how it is read: row statistics and poolers."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from migrator.model.facts import TableFacts
from migrator.source.engines.table import engine_at

# ──
# How many rows a table must have by the catalogue's own statistics, which no policy and no condition of a
# view touches.


def rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A number of rows that the table has in all likelihood; None where the database has no statistics to go by.

    Of PostgreSQL three quarters of what the last ANALYZE found, less all changes since; of MariaDB, which samples
    some pages, a quarter of what it expects. SQLite keeps none, MySQL none younger than a day, a view has none.
    """
    return engine_at(connection).server.rows_at_least(connection, table)


# ──
# Whether a connection pooler (PgBouncer, a proxy) stands between us and the server, and how it shares
# sessions.

Pooling = Literal["", "by session", "by transaction"]
"""Nothing stands between; a connection keeps its session of the server, as far as can be seen; transactions share them."""


def pooling_of(connection: Connection, engine: Engine) -> Pooling:
    """What stands between `connection`, of `engine`, and the server; its transaction ends here."""
    if not is_pooled(connection):
        return ""
    first = _session(connection)
    connection.rollback()
    return "by transaction" if _shared(connection, engine, first) else "by session"


def is_pooled(connection: Connection) -> bool:
    """Whether the session that serves is not the one that the log-in named.

    A pooler makes that number up, as it cannot know which sessions will serve.
    """
    if engine_at(connection).server.session is None:
        return False
    return _session(connection) != _told(connection.connection.driver_connection)


def _shared(connection: Connection, engine: Engine, first: int) -> bool:
    """Whether a second connection gets the session of the first, or takes it away from it."""
    pool = engine.pool
    if not isinstance(pool, sa.QueuePool) or pool.size() < 2:
        return False
    with engine.connect() as other:
        shared = _session(other) == first or _session(connection) != first
    connection.rollback()
    return shared


def _session(connection: Connection) -> int:
    asked = engine_at(connection).server.session
    return 0 if asked is None else int(connection.execute(asked).scalar_one())


def _told(driver_connection: Any) -> int:
    of_mysql = hasattr(driver_connection, "thread_id")
    return int(driver_connection.thread_id() if of_mysql else driver_connection.info.backend_pid)
