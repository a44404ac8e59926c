"""Who writes items of a table, by the journal database's own clock."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from migrator.journal.dialect import insert_or_ignore, seconds
from migrator.journal.engine import Database, repeatable
from migrator.journal.schema import fast_path
from migrator.journal.schema import writer as writers
from migrator.ports.live import Writer, WriterKind

FORGOTTEN_S = 86_400.0
"""A writer that was killed leaves its row; nothing of one that was silent for a day can take effect any more."""
_STARTED = secrets.randbits(32)
"""Tells this process from others, with its number: one that forks is two from then on."""


def process_of(writer: Writer) -> str:
    """What the ids of all writers of one process have in common: a relay is a writer in each of its threads."""
    return writer.id[:8]


class SqlWriters:
    """ports.live.Writers of one table. `enter` and `fence` take turns, by a lock on the table's row."""

    def __init__(self, database: Database, table_id: str) -> None:
        self.database = database
        self.table_id = table_id

    def enter(self, kind: WriterKind) -> Writer:
        return self._enter(kind, f"{(_STARTED ^ os.getpid()):08x}{secrets.token_hex(4)}")

    @repeatable
    def _enter(self, kind: WriterKind, name: str) -> Writer:
        with self._alone() as (connection, closed):
            given: WriterKind = "conditional" if kind == "fast" and closed else kind
            if given not in ("fast", "undo"):
                self._close(connection)
            now = seconds(connection)
            dead = (writers.c.table_id == self.table_id, writers.c.alive_at < now - FORGOTTEN_S)
            connection.execute(delete(writers).where(*dead))
            row = {"id": name, "kind": given, "since": now, "alive_at": now, "fenced": 0}
            # It is there already where the answer to its commit was lost; it may have been fenced since.
            connection.execute(insert_or_ignore(connection, writers), {"table_id": self.table_id, **row})
            return _writer(connection.execute(select(writers).where(writers.c.id == name)).one())

    @repeatable
    def beat(self, writer: Writer, *, begins: bool = False) -> Writer:
        """A writer that is not in the journal any more was taken for dead: it counts as fenced."""
        here = writers.c.id == writer.id
        with self.database.begin() as connection:
            now = seconds(connection)
            values = {"alive_at": now} | ({"since": now} if begins else {})
            connection.execute(update(writers).where(here).values(**values))
            row = connection.execute(select(writers).where(here)).first()
        return replace(writer, fenced=True) if row is None else _writer(row)

    @repeatable
    def leave(self, writer: Writer) -> None:
        with self.database.begin() as connection:
            connection.execute(delete(writers).where(writers.c.id == writer.id))

    @repeatable
    def fence(self) -> list[Writer]:
        fast = (writers.c.table_id == self.table_id, writers.c.kind == "fast")
        with self._alone() as (connection, _):
            self._close(connection)
            connection.execute(update(writers).where(*fast).values(fenced=1))
            return self._found(connection, *fast)

    @repeatable
    def living(self, silent_s: float) -> list[Writer]:
        with self.database.begin() as connection:
            lately = writers.c.alive_at > seconds(connection) - silent_s
            return self._found(connection, writers.c.table_id == self.table_id, lately)

    @repeatable
    def now_s(self) -> float:
        """The journal's time, in seconds since 1970."""
        with self.database.begin() as connection:
            return seconds(connection)

    @contextmanager
    def _alone(self) -> Iterator[tuple[Connection, bool]]:
        """A transaction beside which nobody enters or fences, and whether the fast path is closed."""
        mine = select(fast_path.c.closed).where(fast_path.c.table_id == self.table_id)
        with self.database.begin() as connection:
            row = {"table_id": self.table_id, "closed": 0}
            connection.execute(insert_or_ignore(connection, fast_path), row)
            yield connection, bool(connection.execute(mine.with_for_update()).scalar_one())

    def _close(self, connection: Connection) -> None:
        mine = update(fast_path).where(fast_path.c.table_id == self.table_id)
        connection.execute(mine.values(closed=1))

    def _found(self, connection: Connection, *conditions: Any) -> list[Writer]:
        query = select(writers).where(*conditions).order_by(writers.c.since, writers.c.id)
        return [_writer(row) for row in connection.execute(query)]


def _writer(row: Row[Any]) -> Writer:
    return Writer(row.id, row.kind, row.since, row.alive_at, bool(row.fenced))
