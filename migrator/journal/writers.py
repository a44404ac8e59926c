"""Writers, service instances, and mapping revisions that they use: registered, renewed, removed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, delete, func, select, update

from migrator.journal.database import (
    Database,
    InDatabase,
    OfJob,
    insert_or_ignore,
    once_only,
    reading,
    repeatable,
    seconds,
)
from migrator.journal.phases import CONFIRMED
from migrator.journal.records import KeptRecords
from migrator.journal.schema import run
from migrator.journal.schema import writer as writers
from migrator.mapping.difference.steps import under_way
from migrator.mapping.model.instances import (
    Answered,
    ChangeStep,
    Instance,
    Newest,
    Revision,
    RevisionChange,
    ServiceRegistry,
    Standing,
)
from migrator.mapping.model.live import Writer, WriterKind
from migrator.runtime.errors import OldRevisionError, SettingsError
from migrator.runtime.values import replace

# ── Writers of a table's items, by the clock of the journal's database ──

FORGOTTEN_S = 86_400.0
"""A killed writer leaves its row; after a day without a heartbeat nothing of it can take effect."""
_STARTED = secrets.randbits(32)
"""With its pid, identifies this process; a fork makes two."""
_CLOSED = KeptRecords[bool]("fast_path", bool)
"""Whether a table's fast path is closed."""


class SqlWriters(InDatabase):
    """`enter` and `fence` exclude each other by a lock on the table's record."""

    def __init__(self, database: Database, table_id: str) -> None:
        super().__init__(database)
        self.table_id = table_id

    def enter(self, kind: WriterKind) -> Writer:
        return self._enter(kind, f"{(_STARTED ^ os.getpid()):08x}{secrets.token_hex(4)}")

    @repeatable
    def _enter(self, connection: Connection, kind: WriterKind, name: str) -> Writer:
        is_closed = _CLOSED.lock(connection, self.table_id)
        granted: WriterKind = "conditional" if kind == "fast" and is_closed else kind
        if granted not in ("fast", "undo"):
            _CLOSED.put(connection, self.table_id, True)
        now = seconds(connection)
        forgotten = (writers.c.table_id == self.table_id, writers.c.alive_at < now - FORGOTTEN_S)
        connection.execute(delete(writers).where(*forgotten))
        row = {"id": name, "kind": granted, "since": now, "alive_at": now, "fenced": 0}
        # It exists if the answer to its commit was lost; it may have been fenced since.
        connection.execute(insert_or_ignore(connection, writers), {"table_id": self.table_id, **row})
        return _writer(connection.execute(select(writers).where(writers.c.id == name)).one())

    @repeatable
    def beat(self, connection: Connection, writer: Writer, *, begins: bool = False) -> Writer:
        """Record a heartbeat. A writer missing from the journal was taken for dead: it counts as fenced."""
        here = writers.c.id == writer.id
        now = seconds(connection)
        values = {"alive_at": now} | ({"since": now} if begins else {})
        connection.execute(update(writers).where(here).values(**values))
        row = connection.execute(select(writers).where(here)).first()
        return replace(writer, fenced=True) if row is None else _writer(row)

    @repeatable
    def leave(self, connection: Connection, writer: Writer) -> None:
        connection.execute(delete(writers).where(writers.c.id == writer.id))

    @repeatable
    def fence(self, connection: Connection) -> list[Writer]:
        fast = (writers.c.table_id == self.table_id, writers.c.kind == "fast")
        _CLOSED.lock(connection, self.table_id)
        _CLOSED.put(connection, self.table_id, True)
        connection.execute(update(writers).where(*fast).values(fenced=1))
        return self._selected(connection, *fast)

    def living(self, silent_s: float) -> list[Writer]:
        self.database.bring_back(writers, writers.c.table_id == self.table_id)
        return self._living(silent_s)

    @reading
    def _living(self, connection: Connection, silent_s: float) -> list[Writer]:
        lately = writers.c.alive_at > seconds(connection) - silent_s
        return self._selected(connection, writers.c.table_id == self.table_id, lately)

    @reading
    def now_s(self, connection: Connection) -> float:
        return seconds(connection)

    def _selected(self, connection: Connection, *conditions: Any) -> list[Writer]:
        query = select(writers).where(*conditions).order_by(writers.c.since, writers.c.id)
        return [_writer(row) for row in connection.execute(query)]


def _writer(row: Row[Any]) -> Writer:
    return Writer(row.id, row.kind, row.since, row.alive_at, bool(row.fenced))


# ── Which services run, by the journal database's own clock ──

INSTANCES = KeptRecords[Instance]("instance", Instance)


class SqlInstances(OfJob):
    def enter(self, instance: Instance) -> Instance:
        return self._enter(instance, secrets.token_hex(8))

    @repeatable
    def _enter(self, connection: Connection, instance: Instance, name: str) -> Instance:
        now = seconds(connection)
        entered = replace(instance, id=name, since=now, alive_at=now)
        INSTANCES.put(connection, self.job, entered, name)
        return entered

    @repeatable
    def beat(self, connection: Connection, instance: Instance) -> Instance:
        beaten = replace(instance, alive_at=seconds(connection))
        INSTANCES.put(connection, self.job, beaten, instance.id)
        return beaten

    @repeatable
    def leave(self, connection: Connection, instance: Instance) -> None:
        self._forget(connection, [instance.id])

    def known(self) -> list[Instance]:
        return list(self.registry(0).known)

    def registry(self, gone_s: float) -> ServiceRegistry:
        INSTANCES.bring_back_first(self.database, self.job)
        return self._registry(gone_s)

    @reading
    def _registry(self, connection: Connection, gone_s: float) -> ServiceRegistry:
        known = INSTANCES.all(connection, self.job).values()
        oldest_first = sorted(known, key=lambda instance: (instance.since, instance.id))
        return ServiceRegistry(tuple(oldest_first), seconds(connection), gone_s)

    def forget_silent(self, older_than_s: float) -> int:
        INSTANCES.bring_back_first(self.database, self.job)
        return self._forget_silent(older_than_s)

    @once_only
    def _forget_silent(self, connection: Connection, older_than_s: float) -> int:
        long_ago = seconds(connection) - older_than_s
        known = INSTANCES.all(connection, self.job)
        silent = [name for name, instance in known.items() if instance.alive_at < long_ago]
        self._forget(connection, silent)
        return len(silent)

    def _forget(self, connection: Connection, ids: Collection[str]) -> None:
        CONFIRMED.delete(connection, self.job, *ids)
        INSTANCES.delete(connection, self.job, *ids)


# ── Changes of a job's mapping revision: texts of revisions, and the progress of a change ──


NEVER = 0.0
"""The time when a revision became the newest: not yet."""


class _RevisionText(Struct, frozen=True):
    """A revision's mapping, kept to compute items of a row. `since`: when it last became the newest."""

    text: str
    since: float


_TEXTS = KeptRecords[_RevisionText]("revision_text", _RevisionText)
_CHANGES = KeptRecords[tuple[RevisionChange, ...]]("revision_change", tuple[RevisionChange, ...])
"""A job's changes from one revision to another, in order."""


def keep_text(connection: Connection, job: str, mapping: str, text: str, since: float | None) -> None:
    """Store a revision's text. `since`: used if no time is stored yet; None for now, replacing the stored time."""
    if not text:
        return
    before = _TEXTS.lock(connection, job, mapping)
    if before is None or since is None or before.text != text:
        at = seconds(connection) if since is None else since if before is None else before.since
        _TEXTS.put(connection, job, _RevisionText(text, at), mapping)


def refuse_third(connection: Connection, job: str, own: Revision) -> None:
    """Raises: OldRevisionError if the job is changing to another revision than `own`, and `own` is not the newest."""
    change = (_CHANGES.get(connection, job) or (None,))[-1]
    if change is not None and not change.is_done and change.after != own.mapping:
        raise OldRevisionError(under_way(change, own.mapping))


class SqlChanges(OfJob):
    """The changes of one job, and the texts of its revisions."""

    def last(self) -> RevisionChange | None:
        changes = _CHANGES.read(self.database, self.job)
        return changes[-1] if changes else None

    @once_only
    def begin(self, connection: Connection, before: str, after: str, *, goes_back: bool) -> RevisionChange:
        """Begin a change. One that goes back from an unfinished change replaces it; if no writer used the
        abandoned revision, only its indexes have to be removed.

        Raises: SettingsError if another change is in progress.
        """
        changes = _CHANGES.lock(connection, self.job) or ()
        last = changes[-1] if changes else None
        if last is not None and not last.is_done and (last.after, last.before) != (before, after):
            raise SettingsError(under_way(last, after))
        step: ChangeStep = (
            "unasked" if goes_back and not _was_newest(connection, self.job, before) else "indexes"
        )
        change = RevisionChange(len(changes) + 1, before, after, goes_back, step)
        done = (replace(entry, step="") for entry in changes)
        _CHANGES.put(connection, self.job, (*done, change))
        return change

    @repeatable
    def advance(self, connection: Connection, change: RevisionChange, step: ChangeStep) -> None:
        changes = _CHANGES.lock(connection, self.job) or ()
        advanced = (
            replace(entry, step=step) if entry.number == change.number else entry for entry in changes
        )
        _CHANGES.put(connection, self.job, tuple(advanced))

    def is_left(self, mapping: str) -> bool:
        changes = _CHANGES.read(self.database, self.job) or ()
        return next((change.goes_back for change in reversed(changes) if change.before == mapping), False)

    @reading
    def was_newest(self, connection: Connection, mapping: str) -> bool:
        """Whether writers may have used it; True if unknown."""
        return _was_newest(connection, self.job, mapping)

    def text(self, mapping: str) -> str | None:
        kept = _TEXTS.read(self.database, self.job, mapping)
        return None if kept is None else kept.text

    def before(self, mapping: str) -> str | None:
        kept = _TEXTS.read_all(self.database, self.job)
        since = {name: text.since for name, text in kept.items() if name != mapping and text.since > NEVER}
        return max(since, key=lambda name: since[name], default=None)

    @repeatable
    def keep(self, connection: Connection, mapping: str, text: str) -> None:
        keep_text(connection, self.job, mapping, text, NEVER)


def _was_newest(connection: Connection, job: str, mapping: str) -> bool:
    kept = _TEXTS.get(connection, job, mapping)
    return kept is None or kept.since > NEVER


# ── Mapping revisions: which one is the newest, and by which one each writer works ──


REVISIONS = KeptRecords[Newest]("revision", Newest)
_WRITER_REVISIONS = KeptRecords[str]("writer_revision", str)


class SqlRevisions(OfJob):
    """`own`: the caller's revision. `enter` and `register` exclude each other by a lock on the job's record."""

    def __init__(self, database: Database, job: str, own: Revision) -> None:
        super().__init__(database, job)
        self.own = own

    def standing(self) -> Standing:
        return self.newest_and_standing()[1]

    def newest_and_standing(self) -> tuple[Newest | None, Standing]:
        """Both, read at one moment: a writer may register a newer revision at any time."""
        newest = newest_of(self.database, self.job)
        return newest, self._standing(newest)

    def refuse_old(self) -> None:
        """Called before capture is checked: an old mapping finds new triggers stale and would wrongly advise an
        install.

        Raises: OldRevisionError.
        """
        if self.standing() == "old":
            raise OldRevisionError(OLD)

    @once_only
    def register(self, connection: Connection, *, go_back: bool = False) -> Standing:
        """Make it the newest; returns its previous standing. `go_back`: also if it is an old one.

        Raises: OldRevisionError if it is an old one.
        """
        newest = REVISIONS.lock(connection, self.job)
        before = self._standing(newest)
        if before in ("new", "old"):
            refuse_third(connection, self.job, self.own)
        if before == "old" and not go_back:
            raise OldRevisionError(OLD)
        if newest is None or before != "newest":
            self._register(connection, newest)
        else:
            answers = self._answers(newest, newest.since)
            REVISIONS.put(connection, self.job, replace(newest, answers=answers))
            keep_text(connection, self.job, self.own.mapping, self.own.text, NEVER)
        return before

    # ── writers ──

    @repeatable
    def enter(self, connection: Connection, writer_: Writer) -> None:
        newest = REVISIONS.lock(connection, self.job)
        if newest is None:
            newest = self._register(connection, None)
        elif self._standing(newest) != "newest":
            raise OldRevisionError(OLD)
        there = set(connection.execute(select(writers.c.id)).scalars())
        forgotten = _WRITER_REVISIONS.all(connection, self.job).keys() - there
        _WRITER_REVISIONS.delete(connection, self.job, *forgotten)
        _WRITER_REVISIONS.put(connection, self.job, newest.revision.digest, writer_.id)

    @repeatable
    def leave(self, connection: Connection, writer_: Writer) -> None:
        _WRITER_REVISIONS.delete(connection, self.job, writer_.id)

    def is_old(self) -> bool:
        newest = newest_of(self.database, self.job)
        return newest is not None and not newest.revision.is_same(self.own)

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

    def _standing(self, newest: Newest | None) -> Standing:
        if newest is None:
            return "first"
        if newest.revision.is_same(self.own):
            return "newest"
        known = newest.known
        is_known = self.own.digest in known or (self.own.meaning and self.own.meaning in known.values())
        return "old" if is_known else "new"

    def _register(self, connection: Connection, before: Newest | None) -> Newest:
        since, runs_before = 0.0, 0
        if before is not None:
            runs = select(func.coalesce(func.max(run.c.id), 0)).where(run.c.job == self.job)
            since, runs_before = seconds(connection), int(connection.execute(runs).scalar_one())
        known = {self.own.digest: self.own.meaning} | ({} if before is None else dict(before.known))
        own = replace(self.own, answers={}, text="")
        newest = Newest(own, since, runs_before, self._answers(before, since), known)
        REVISIONS.put(connection, self.job, newest)
        keep_text(connection, self.job, self.own.mapping, self.own.text, None)
        return newest

    def _answers(self, before: Newest | None, since: float) -> dict[str, Answered]:
        """An unchanged answer keeps its time; others get the revision's, with which items changed."""
        kept = {} if before is None else before.answers
        own = self.own.answers
        same = {
            pattern: kept[pattern] for pattern in own.keys() & kept if kept[pattern].digest == own[pattern]
        }
        return {pattern: Answered(digest, since) for pattern, digest in own.items()} | same


OLD = (
    "the job now uses another mapping (or other columns, or other direct entities) than this one, and what"
    " is written by this one would undo it; take the newer mapping file and start again, or go back on purpose with"
    " `migrator recover JOB older-mapping`"
)


def newest_of(database: Database, job: str) -> Newest | None:
    return REVISIONS.read(database, job)


def digests_of(database: Database, job: str) -> dict[str, str]:
    return _WRITER_REVISIONS.read_all(database, job)
