"""Writers and service instances that the journal knows: registered, renewed, removed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, select, update

from migrator.journal.database import Database, insert_or_ignore, once_only, repeatable, seconds
from migrator.journal.schema import confirmed_phase as confirmed
from migrator.journal.schema import fast_path
from migrator.journal.schema import instance as instances
from migrator.journal.schema import instance_process as processes
from migrator.journal.schema import writer as writers
from migrator.model.instances import Instance
from migrator.model.live import Writer, WriterKind

# ── Writers of a table's items, by the journal database's own clock ──

FORGOTTEN_S = 86_400.0
"""A writer that was killed leaves its row; nothing of one that was silent for a day can take effect any more."""
_STARTED = secrets.randbits(32)
"""Tells this process from others, with its number: one that forks is two from then on."""


def process_of(writer: Writer) -> str:
    """What the ids of all writers of one process have in common: a relay is a writer in each of its threads."""
    return writer.id[:8]


class SqlWriters:
    """model.live.Writers of one table. `enter` and `fence` take turns, by a lock on the table's row."""

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


# ── Which services run, by the journal database's own clock ──


class SqlInstances:
    """model.instances.Instances of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    def enter(self, instance: Instance) -> Instance:
        return self._enter(instance, secrets.token_hex(8))

    @repeatable
    def _enter(self, instance: Instance, name: str) -> Instance:
        with self.database.begin() as connection:
            now = seconds(connection)
            entered = replace(instance, id=name, since=now, alive_at=now)
            self._add(connection, entered)
        return entered

    @repeatable
    def beat(self, instance: Instance) -> Instance:
        here = instances.c.id == instance.id
        with self.database.begin() as connection:
            beaten = replace(instance, alive_at=seconds(connection))
            said = {name: getattr(instance, name) for name in ("role", "mode", "installation")}
            renewed = update(instances).where(here).values(alive_at=beaten.alive_at, **said)
            if not connection.execute(renewed).rowcount and not connection.scalar(
                select(instances.c.id).where(here)
            ):
                self._add(connection, beaten)
        return beaten

    @repeatable
    def leave(self, instance: Instance) -> None:
        with self.database.begin() as connection:
            self._forget(connection, select(instances.c.id).where(instances.c.id == instance.id))

    @repeatable
    def known(self) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection)

    @repeatable
    def living(self, silent_s: float) -> list[Instance]:
        with self.database.begin() as connection:
            return self._found(connection, instances.c.alive_at > seconds(connection) - silent_s)

    @once_only
    def forget_silent(self, older_than_s: float) -> int:
        with self.database.begin() as connection:
            long_ago = instances.c.alive_at < seconds(connection) - older_than_s
            return self._forget(
                connection, select(instances.c.id).where(instances.c.job == self.job, long_ago)
            )

    @repeatable
    def now_s(self) -> float:
        with self.database.begin() as connection:
            return seconds(connection)

    def _add(self, connection: Connection, entered: Instance) -> None:
        # It is there already where the answer to its commit was lost.
        said = {"job": self.job, **asdict(entered)}
        for table in (instances, processes):
            row = {column.name: said[column.name] for column in table.columns}
            connection.execute(insert_or_ignore(connection, table), row)

    def _forget(self, connection: Connection, which: Select[tuple[str]]) -> int:
        """How many there were."""
        ids = connection.execute(which).scalars().all()
        connection.execute(delete(confirmed).where(confirmed.c.instance.in_(ids)))
        connection.execute(delete(processes).where(processes.c.id.in_(ids)))
        return connection.execute(delete(instances).where(instances.c.id.in_(ids))).rowcount

    def _found(self, connection: Connection, *conditions: Any) -> list[Instance]:
        columns = [column for column in instances.columns if column is not instances.c.job]
        # Instances of older versions say nothing of their process.
        more = [
            func.coalesce(column, "").label(column.name) for column in (processes.c.sees, processes.c.born)
        ]
        joined = instances.outerjoin(processes, processes.c.id == instances.c.id)
        query = select(*columns, *more).select_from(joined).where(instances.c.job == self.job, *conditions)
        ordered = query.order_by(instances.c.since, instances.c.id)
        return [Instance(**row._mapping) for row in connection.execute(ordered)]
