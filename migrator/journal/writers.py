"""Writers, service instances and mapping revisions that the journal knows: registered, renewed, removed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from migrator.journal.changes import NEVER, keep_text, refuse_third
from migrator.journal.database import Database, insert_or_ignore, once_only, repeatable, seconds
from migrator.journal.phases import CONFIRMED
from migrator.journal.records import Records
from migrator.journal.schema import run
from migrator.journal.schema import writer as writers
from migrator.mapping.model.instances import Answered, Instance, Newest, Revision, Standing
from migrator.mapping.model.live import Writer, WriterKind
from migrator.runtime.errors import OldRevisionError

# ── Writers of a table's items, by the journal database's own clock ──

FORGOTTEN_S = 86_400.0
"""A writer that was killed leaves its row; nothing of one that was silent for a day can take effect any more."""
_STARTED = secrets.randbits(32)
"""Tells this process from others, with its number: one that forks is two from then on."""
_CLOSED = Records[bool]("fast_path", bool)
"""Whether a table's fast path is closed."""


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
        with self.database.begin() as connection:
            yield connection, bool(_CLOSED.lock(connection, self.table_id))

    def _close(self, connection: Connection) -> None:
        _CLOSED.put(connection, self.table_id, True)

    def _selected(self, connection: Connection, *conditions: Any) -> list[Writer]:
        query = select(writers).where(*conditions).order_by(writers.c.since, writers.c.id)
        return [_writer(row) for row in connection.execute(query)]


def _writer(row: Row[Any]) -> Writer:
    return Writer(row.id, row.kind, row.since, row.alive_at, bool(row.fenced))


# ── Which services run, by the journal database's own clock ──

INSTANCES = Records[Instance]("instance", Instance)


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
            INSTANCES.put(connection, self.job, entered, name)
        return entered

    @repeatable
    def beat(self, instance: Instance) -> Instance:
        with self.database.begin() as connection:
            beaten = replace(instance, alive_at=seconds(connection))
            INSTANCES.put(connection, self.job, beaten, instance.id)
        return beaten

    @repeatable
    def leave(self, instance: Instance) -> None:
        with self.database.begin() as connection:
            self._forget(connection, [instance.id])

    @repeatable
    def known(self) -> list[Instance]:
        INSTANCES.bring_back_first(self.database, self.job)
        with self.database.begin(reads=True) as connection:
            known = INSTANCES.all(connection, self.job).values()
        return sorted(known, key=lambda instance: (instance.since, instance.id))

    @repeatable
    def living(self, silent_s: float) -> list[Instance]:
        known, now = self.known(), self.now_s()
        return [instance for instance in known if instance.alive_at > now - silent_s]

    @once_only
    def forget_silent(self, older_than_s: float) -> int:
        INSTANCES.bring_back_first(self.database, self.job)
        with self.database.begin() as connection:
            long_ago = seconds(connection) - older_than_s
            known = INSTANCES.all(connection, self.job)
            silent = [name for name, instance in known.items() if instance.alive_at < long_ago]
            self._forget(connection, silent)
        return len(silent)

    @repeatable
    def now_s(self) -> float:
        with self.database.begin(reads=True) as connection:
            return seconds(connection)

    def _forget(self, connection: Connection, ids: Collection[str]) -> None:
        CONFIRMED.delete(connection, self.job, *ids)
        INSTANCES.delete(connection, self.job, *ids)


# ── Mapping revisions: which one is the newest, and by which one each writer works ──


@dataclass(frozen=True, slots=True)
class _Registered:
    """`known`: meanings of all revisions that were ever the newest, by digest. `answers`: by pattern; what was compared
    before an answer's `since` says nothing of it."""

    newest: Newest
    known: Mapping[str, str]
    answers: Mapping[str, Answered]


REVISIONS = Records[_Registered]("revision", _Registered)
_WRITER_REVISIONS = Records[str]("writer_revision", str)


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
            registered = REVISIONS.get(connection, self.job)
        return (None if registered is None else registered.newest), self._standing(registered)

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
        with self._alone() as (connection, registered):
            before = self._standing(registered)
            if before in ("new", "old"):
                refuse_third(connection, self.job, self.own)
            if before == "old" and not go_back:
                raise OldRevisionError(OLD)
            if registered is None or before != "newest":
                self._register(connection, registered)
            else:
                answers = self._answers(registered, registered.newest.since)
                REVISIONS.put(connection, self.job, replace(registered, answers=answers))
                keep_text(connection, self.job, self.own.mapping, self.own.text, NEVER)
        return before

    # ── writers ──

    @repeatable
    def enter(self, writer_: Writer) -> None:
        with self._alone() as (connection, registered):
            if registered is None:
                registered = self._register(connection, None)
            elif self._standing(registered) != "newest":
                raise OldRevisionError(OLD)
            there = set(connection.execute(select(writers.c.id)).scalars())
            forgotten = _WRITER_REVISIONS.all(connection, self.job).keys() - there
            _WRITER_REVISIONS.delete(connection, self.job, *forgotten)
            _WRITER_REVISIONS.put(connection, self.job, registered.newest.revision.digest, writer_.id)

    @repeatable
    def leave(self, writer_: Writer) -> None:
        with self.database.begin() as connection:
            _WRITER_REVISIONS.delete(connection, self.job, writer_.id)

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

    def _standing(self, registered: _Registered | None) -> Standing:
        if registered is None:
            return "first"
        if registered.newest.revision.is_same(self.own):
            return "newest"
        known = registered.known
        is_known = self.own.digest in known or (self.own.meaning and self.own.meaning in known.values())
        return "old" if is_known else "new"

    def _register(self, connection: Connection, before: _Registered | None) -> _Registered:
        """What is registered from now on; what came before runs and answers of a first revision is not known."""
        since, runs_before = 0.0, 0
        if before is not None:
            runs = select(func.coalesce(func.max(run.c.id), 0)).where(run.c.job == self.job)
            since, runs_before = seconds(connection), int(connection.execute(runs).scalar_one())
        newest = Newest(replace(self.own, answers={}, text=""), since, runs_before)
        known = {self.own.digest: self.own.meaning} | ({} if before is None else dict(before.known))
        registered = _Registered(newest, known, self._answers(before, since))
        REVISIONS.put(connection, self.job, registered)
        keep_text(connection, self.job, self.own.mapping, self.own.text, None)
        return registered

    def _answers(self, before: _Registered | None, since: float) -> dict[str, Answered]:
        """An answer that is the same stays as old as it is; others are as old as the revision, with which items changed."""
        kept = {} if before is None else before.answers
        return {
            pattern: answered
            if (answered := kept.get(pattern)) is not None and answered.digest == digest
            else Answered(digest, since)
            for pattern, digest in self.own.answers.items()
        }

    @contextmanager
    def _alone(self) -> Iterator[tuple[Connection, _Registered | None]]:
        """A transaction during which no other writer enters or registers, and what is registered."""
        with self.database.begin() as connection:
            yield connection, REVISIONS.lock(connection, self.job)


OLD = (
    "the job has gone on to another mapping (or to other columns, or to other direct entities) than this one, and what"
    " is written by this one would undo it; take the newer mapping file and start again, or go back on purpose with"
    " `migrator recover JOB older-mapping`"
)


def newest_of(database: Database, job: str) -> Newest | None:
    """The revision that the job's writers work by; None where none is registered."""
    registered = _registered(database, job)
    return None if registered is None else registered.newest


def answers_of(database: Database, job: str) -> Mapping[str, Answered]:
    """By pattern, what its answer is made of by the newest revision."""
    registered = _registered(database, job)
    return {} if registered is None else registered.answers


def _registered(database: Database, job: str) -> _Registered | None:
    def read() -> _Registered | None:
        with database.begin(reads=True) as connection:
            return REVISIONS.get(connection, job)

    return database.tried(read, twice=True)


def digests_of(database: Database, job: str) -> dict[str, str]:
    """By the ids of the job's writers, the revisions that they work by."""

    def read() -> dict[str, str]:
        with database.begin(reads=True) as connection:
            return _WRITER_REVISIONS.all(connection, job)

    return database.tried(read, twice=True)
