"""Writers, service instances and mapping revisions that the journal knows: registered, renewed, removed."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, select, update

from migrator.journal.changes import NEVER, keep_text, refuse_third
from migrator.journal.database import (
    Database,
    insert_or_ignore,
    insert_or_replace,
    once_only,
    repeatable,
    seconds,
)
from migrator.journal.schema import answer, fast_path, known_revision, run, writer, writer_revision
from migrator.journal.schema import confirmed_phase as confirmed
from migrator.journal.schema import instance as instances
from migrator.journal.schema import instance_process as processes
from migrator.journal.schema import revision as newest_revision
from migrator.journal.schema import writer as writers
from migrator.mapping.model.instances import Answered, Instance, MarkedColumns, Newest, Revision, Standing
from migrator.mapping.model.live import Writer, WriterKind
from migrator.runtime.errors import OldRevisionError

# ── Writers of a table's items, by the journal database's own clock ──

FORGOTTEN_S = 86_400.0
"""A writer that was killed leaves its row; nothing of one that was silent for a day can take effect any more."""
_STARTED = secrets.randbits(32)
"""Tells this process from others, with its number: one that forks is two from then on."""


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
            granted: WriterKind = "conditional" if kind == "fast" and closed else kind
            if granted not in ("fast", "undo"):
                self._close(connection)
            now = seconds(connection)
            forgotten = (writers.c.table_id == self.table_id, writers.c.alive_at < now - FORGOTTEN_S)
            connection.execute(delete(writers).where(*forgotten))
            row = {"id": name, "kind": granted, "since": now, "alive_at": now, "fenced": 0}
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
            return self._selected(connection, *fast)

    @repeatable
    def living(self, silent_s: float) -> list[Writer]:
        self.database.bring_back(writers, writers.c.table_id == self.table_id)
        with self.database.begin(reads=True) as connection:
            lately = writers.c.alive_at > seconds(connection) - silent_s
            return self._selected(connection, writers.c.table_id == self.table_id, lately)

    @repeatable
    def now_s(self) -> float:
        """The journal's time, in seconds since 1970."""
        with self.database.begin(reads=True) as connection:
            return seconds(connection)

    @contextmanager
    def _alone(self) -> Iterator[tuple[Connection, bool]]:
        """A transaction during which no other writer enters or fences, and whether the fast path is closed."""
        own_row = select(fast_path.c.closed).where(fast_path.c.table_id == self.table_id)
        with self.database.begin() as connection:
            row = {"table_id": self.table_id, "closed": 0}
            connection.execute(insert_or_ignore(connection, fast_path), row)
            yield connection, bool(connection.execute(own_row.with_for_update()).scalar_one())

    def _close(self, connection: Connection) -> None:
        own_row = update(fast_path).where(fast_path.c.table_id == self.table_id)
        connection.execute(own_row.values(closed=1))

    def _selected(self, connection: Connection, *conditions: Any) -> list[Writer]:
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
            changing = {name: getattr(instance, name) for name in ("role", "mode", "installation")}
            renewed = update(instances).where(here).values(alive_at=beaten.alive_at, **changing)
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
        self.database.bring_back(instances, instances.c.job == self.job)
        with self.database.begin(reads=True) as connection:
            return self._selected(connection)

    @repeatable
    def living(self, silent_s: float) -> list[Instance]:
        self.database.bring_back(instances, instances.c.job == self.job)
        with self.database.begin(reads=True) as connection:
            return self._selected(connection, instances.c.alive_at > seconds(connection) - silent_s)

    @once_only
    def forget_silent(self, older_than_s: float) -> int:
        self.database.bring_back(instances, instances.c.job == self.job)
        with self.database.begin() as connection:
            long_ago = instances.c.alive_at < seconds(connection) - older_than_s
            return self._forget(
                connection, select(instances.c.id).where(instances.c.job == self.job, long_ago)
            )

    @repeatable
    def now_s(self) -> float:
        with self.database.begin(reads=True) as connection:
            return seconds(connection)

    def _add(self, connection: Connection, entered: Instance) -> None:
        # It is there already where the answer to its commit was lost.
        values = {"job": self.job, **asdict(entered)}
        for table in (instances, processes):
            row = {column.name: values[column.name] for column in table.columns}
            connection.execute(insert_or_ignore(connection, table), row)

    def _forget(self, connection: Connection, which: Select[tuple[str]]) -> int:
        """How many there were."""
        ids = connection.execute(which).scalars().all()
        connection.execute(delete(confirmed).where(confirmed.c.instance.in_(ids)))
        connection.execute(delete(processes).where(processes.c.id.in_(ids)))
        return connection.execute(delete(instances).where(instances.c.id.in_(ids))).rowcount

    def _selected(self, connection: Connection, *conditions: Any) -> list[Instance]:
        columns = [column for column in instances.columns if column is not instances.c.job]
        query = (
            select(*columns, processes.c.sees, processes.c.born)
            .join(processes, processes.c.id == instances.c.id)
            .where(instances.c.job == self.job, *conditions)
        )
        ordered = query.order_by(instances.c.since, instances.c.id)
        return [Instance(**row._mapping) for row in connection.execute(ordered)]


# ── Mapping revisions: which one is the newest, and by which one each writer works ──

_NONE = ""
_UNKNOWN = "-"
"""No meaning is this."""


class SqlRevisions:
    """model.instances.Revisions of one job. `own`: by which the asker works. `enter` and `register` take turns, by a
    lock on the job's row."""

    def __init__(self, database: Database, job: str, own: Revision) -> None:
        self.database = database
        self.job = job
        self.own = own

    def standing(self) -> Standing:
        return self.newest_and_standing()[1]

    @repeatable
    def newest_and_standing(self) -> tuple[Newest | None, Standing]:
        """Of one moment: a writer may register a newer revision at any time."""
        with self.database.begin() as connection:
            newest = self._newest(connection)
            return newest, self._standing(connection, newest)

    def refuse_old(self) -> None:
        """Asked before capture is: to an old mapping new triggers seem stale, and an install would be the wrong advice.

        Raises: OldRevisionError.
        """
        if self.standing() == "old":
            raise OldRevisionError(OLD)

    @once_only
    def register(self, *, go_back: bool = False) -> Standing:
        """Makes it the newest; what it was before. `go_back`: also where it is an old one.

        Raises: OldRevisionError where it is an old one.
        """
        with self._alone() as connection:
            before = self._standing(connection, self._newest(connection))
            if before in ("new", "old"):
                refuse_third(connection, self.job, self.own)
            if before == "old" and not go_back:
                raise OldRevisionError(OLD)
            if before != "newest":
                self._register(connection, is_first=before == "first")
            else:
                self._keep_answers(connection)
                keep_text(connection, self.job, self.own.mapping, self.own.text, NEVER)
        return before

    # ── writers ──

    @repeatable
    def enter(self, writer_: Writer) -> None:
        with self._alone() as connection:
            standing = self._standing(connection, self._newest(connection))
            if standing == "first":
                self._register(connection, is_first=True)
            elif standing != "newest":
                raise OldRevisionError(OLD)
            forgotten = writer_revision.c.writer.not_in(select(writer.c.id))
            connection.execute(delete(writer_revision).where(forgotten))
            newest = self._newest(connection)
            digest = self.own.digest if newest is None else newest.revision.digest
            row = {"writer": writer_.id, "job": self.job, "digest": digest}
            connection.execute(insert_or_replace(connection, writer_revision), row)

    @repeatable
    def leave(self, writer_: Writer) -> None:
        with self.database.begin() as connection:
            connection.execute(delete(writer_revision).where(writer_revision.c.writer == writer_.id))

    @repeatable
    def is_old(self) -> bool:
        newest = newest_of(self.database, self.job)
        return newest is not None and not newest.revision.is_same(self.own)

    @repeatable
    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        newest = newest_of(self.database, self.job)
        digests = digests_of(self.database, self.job)
        if newest is None:
            return []
        return [
            entry
            for entry in writers
            if digests.get(entry.id, newest.revision.digest) != newest.revision.digest
        ]

    # ── the newest ──

    def _standing(self, connection: Connection, newest: Newest | None) -> Standing:
        if newest is None:
            return "first"
        if newest.revision.is_same(self.own):
            return "newest"
        table = known_revision
        same = (table.c.digest == self.own.digest) | (table.c.meaning == (self.own.meaning or _UNKNOWN))
        known = select(table.c.digest).where(table.c.job == self.job, same)
        return "old" if connection.execute(known).first() else "new"

    def _newest(self, connection: Connection) -> Newest | None:
        return _newest(connection, self.job)

    def _register(self, connection: Connection, *, is_first: bool) -> None:
        runs = select(func.coalesce(func.max(run.c.id), 0)).where(run.c.job == self.job)
        values = {
            "digest": self.own.digest,
            "mapping": self.own.mapping,
            "meaning": self.own.meaning or None,
            "since": 0.0 if is_first else seconds(connection),
            "runs_before": 0 if is_first else int(connection.execute(runs).scalar_one()),
            "marked": _marked_text(self.own.marked),
        }
        here = newest_revision.c.job == self.job
        connection.execute(update(newest_revision).where(here).values(**values))
        row = {"job": self.job, "digest": self.own.digest, "meaning": self.own.meaning or None}
        connection.execute(insert_or_ignore(connection, known_revision), row)
        keep_text(connection, self.job, self.own.mapping, self.own.text, None)
        self._keep_answers(connection)

    def _keep_answers(self, connection: Connection) -> None:
        """An answer that is the same stays as old as it is; others are as old as the revision, with which items changed."""
        before, newest = _answers(connection, self.job), self._newest(connection)
        since = 0.0 if newest is None else newest.since
        for pattern, digest in sorted(self.own.answers.items()):
            if pattern not in before or before[pattern].digest != digest:
                row = {"job": self.job, "pattern": pattern, "digest": digest, "since": since}
                connection.execute(insert_or_replace(connection, answer), row)
        gone = [name for name in before if name not in self.own.answers]
        connection.execute(delete(answer).where(answer.c.job == self.job, answer.c.pattern.in_(gone)))

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        """A transaction during which no other writer enters or registers."""
        own_row = select(newest_revision.c.digest).where(newest_revision.c.job == self.job)
        with self.database.begin() as connection:
            row = {"job": self.job, "digest": _NONE, "mapping": _NONE, "since": 0.0, "runs_before": 0}
            connection.execute(insert_or_ignore(connection, newest_revision), row)
            connection.execute(own_row.with_for_update()).scalar_one()
            yield connection


OLD = (
    "the job has gone on to another mapping (or to other columns, or to other direct entities) than this one, and what"
    " is written by this one would undo it; take the newer mapping file and start again, or go back on purpose with"
    " `migrator recover JOB older-mapping`"
)


def newest_of(database: Database, job: str) -> Newest | None:
    """The revision that the job's writers work by; None where none is registered."""

    def read() -> Newest | None:
        with database.begin(reads=True) as connection:
            return _newest(connection, job)

    return database.tried(read, twice=True)


def answers_of(database: Database, job: str) -> dict[str, Answered]:
    """By pattern, what its answer is made of by the newest revision."""

    def read() -> dict[str, Answered]:
        with database.begin(reads=True) as connection:
            return _answers(connection, job)

    return database.tried(read, twice=True)


def digests_of(database: Database, job: str) -> dict[str, str]:
    """By the ids of the job's writers, the revisions that they work by."""
    table = writer_revision
    query = select(table.c.writer, table.c.digest).where(table.c.job == job)

    def read() -> dict[str, str]:
        with database.begin(reads=True) as connection:
            return {row.writer: row.digest for row in connection.execute(query)}

    return database.tried(read, twice=True)


def _answers(connection: Connection, job: str) -> dict[str, Answered]:
    rows = connection.execute(select(answer).where(answer.c.job == job))
    return {row.pattern: Answered(row.digest, float(row.since)) for row in rows}


def _newest(connection: Connection, job: str) -> Newest | None:
    row = connection.execute(select(newest_revision).where(newest_revision.c.job == job)).first()
    if row is None or row.digest == _NONE:
        return None
    revision = Revision(row.digest, row.mapping, row.meaning or "", marked=_marked(row.marked))
    return Newest(revision, float(row.since), int(row.runs_before))


def _marked_text(marked: Mapping[str, MarkedColumns] | None) -> str | None:
    if marked is None:
        return None
    return json.dumps({table: [columns.held, columns.watched] for table, columns in sorted(marked.items())})


def _marked(text: str | None) -> dict[str, MarkedColumns] | None:
    if text is None:
        return None
    return {
        table: MarkedColumns(tuple(held), None if watched is None else tuple(watched))
        for table, (held, watched) in json.loads(text).items()
    }
