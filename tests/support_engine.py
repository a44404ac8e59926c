"""An engine that does not exist: SQLite's files under another dialect's name, written by the recipe of docs/architecture.md.

It stands for a database that is new here: what the contract tests of a source ask goes through its own row of the table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL

from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.engines.base import Address, Connecting, ConnectionOptions
from migrator.source.engines.connect import ENGINES
from migrator.source.engines.sqlite.engine import SQLITE

NAME = "pond"


class PondDialect(SQLiteDialect_pysqlite):
    name = NAME
    supports_statement_cache = True


def _checked_url(url: URL, supported: str) -> URL:
    if not url.database or not Path(url.database).is_file():
        raise SettingsError(f"source: there is no such pond; write {supported}")
    return url


def _opened(address: Address, connection_options: ConnectionOptions) -> sa.Engine:
    """Connections that only read, each transaction one snapshot."""

    def connect() -> sqlite3.Connection:
        path = Path(address.url().database or "").as_uri()
        return sqlite3.connect(f"{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)

    return sa.create_engine(
        f"{NAME}://", creator=connect, poolclass=sa.QueuePool, pool_size=connection_options.pool_size
    )


POND = replace(
    SQLITE,
    name=NAME,
    title="Pond",
    connecting=Connecting(
        form="pond:///path",
        schemes=(NAME,),
        driver="",
        port=0,
        rds=(),
        extra=None,
        checked_url=_checked_url,
        open=_opened,
        begins=lambda *_: "BEGIN",
        raw=frozenset(),
        fetched=SQLITE.connecting.fetched,
    ),
)


@contextmanager
def pond_known() -> Iterator[None]:
    """The engine is a row of the table, as long as the block runs."""
    registry.register(NAME, __name__, PondDialect.__name__)
    ENGINES.append(POND)
    try:
        yield
    finally:
        ENGINES.remove(POND)
