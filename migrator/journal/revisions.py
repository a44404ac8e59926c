"""Mapping revisions of a job: which one is the newest, and by which one each writer works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, delete, func, select, update

from migrator.journal.database import (
    Database,
    insert_or_ignore,
    insert_or_replace,
    once_only,
    repeatable,
    seconds,
)
from migrator.journal.schema import known_revision, run, writer, writer_revision
from migrator.journal.schema import revision as newest_revision
from migrator.model.errors import OldRevisionError
from migrator.model.instances import Newest, Revision, Standing
from migrator.model.live import Writer

_NONE = ""


class SqlRevisions:
    """model.instances.Revisions of one job. `own`: by which the asker works. `enter` and `register` take turns, by a
    lock on the job's row."""

    def __init__(self, database: Database, job: str, own: Revision) -> None:
        self.database = database
        self.job = job
        self.own = own

    @repeatable
    def standing(self) -> Standing:
        with self.database.begin() as connection:
            return self._standing(connection, self._newest(connection))

    @once_only
    def register(self, *, go_back: bool = False) -> Standing:
        """Makes it the newest; what it was before. `go_back`: also where it is an old one.

        Raises: OldRevisionError where it is an old one.
        """
        with self._alone() as connection:
            before = self._standing(connection, self._newest(connection))
            if before == "old" and not go_back:
                raise OldRevisionError(OLD)
            if before != "newest":
                self._register(connection, is_first=before == "first")
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
            gone = writer_revision.c.writer.not_in(select(writer.c.id))
            connection.execute(delete(writer_revision).where(gone))
            row = {"writer": writer_.id, "job": self.job, "digest": self.own.digest}
            connection.execute(insert_or_replace(connection, writer_revision), row)

    @repeatable
    def leave(self, writer_: Writer) -> None:
        with self.database.begin() as connection:
            connection.execute(delete(writer_revision).where(writer_revision.c.writer == writer_.id))

    @repeatable
    def is_old(self) -> bool:
        found = newest_of(self.database, self.job)
        return found is not None and found.revision.digest != self.own.digest

    @repeatable
    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        found = newest_of(self.database, self.job)
        known = digests_of(self.database, self.job)
        if found is None:
            return []
        return [one for one in writers if known.get(one.id, found.revision.digest) != found.revision.digest]

    # ── the newest ──

    def _standing(self, connection: Connection, newest: Newest | None) -> Standing:
        if newest is None:
            return "first"
        if newest.revision.digest == self.own.digest:
            return "newest"
        table = known_revision
        here = (table.c.job == self.job, table.c.digest == self.own.digest)
        return "old" if connection.execute(select(table.c.digest).where(*here)).first() else "new"

    def _newest(self, connection: Connection) -> Newest | None:
        return _newest(connection, self.job)

    def _register(self, connection: Connection, *, is_first: bool) -> None:
        runs = select(func.coalesce(func.max(run.c.id), 0)).where(run.c.job == self.job)
        values = {
            "digest": self.own.digest,
            "mapping": self.own.mapping,
            "since": 0.0 if is_first else seconds(connection),
            "runs_before": 0 if is_first else int(connection.execute(runs).scalar_one()),
        }
        here = newest_revision.c.job == self.job
        connection.execute(update(newest_revision).where(here).values(**values))
        known = {"job": self.job, "digest": self.own.digest}
        connection.execute(insert_or_ignore(connection, known_revision), known)

    @contextmanager
    def _alone(self) -> Iterator[Connection]:
        """A transaction beside which nobody enters or registers."""
        mine = select(newest_revision.c.digest).where(newest_revision.c.job == self.job)
        with self.database.begin() as connection:
            row = {"job": self.job, "digest": _NONE, "mapping": _NONE, "since": 0.0, "runs_before": 0}
            connection.execute(insert_or_ignore(connection, newest_revision), row)
            connection.execute(mine.with_for_update()).scalar_one()
            yield connection


OLD = (
    "the job has gone on to another mapping (or to other columns, or to other direct entities) than this one, and what"
    " is written by this one would undo it; take the newer mapping file and start again, or go back on purpose with"
    " `migrator capture install JOB --go-back`, then `migrator backfill JOB`"
)


def newest_of(database: Database, job: str) -> Newest | None:
    """The revision that the job's writers work by; None where none is registered."""

    def read() -> Newest | None:
        with database.begin() as connection:
            return _newest(connection, job)

    return database.tried(read, twice=True)


def digests_of(database: Database, job: str) -> dict[str, str]:
    """By the ids of the job's writers, the revisions that they work by."""
    table = writer_revision
    query = select(table.c.writer, table.c.digest).where(table.c.job == job)

    def read() -> dict[str, str]:
        with database.begin() as connection:
            return {row.writer: row.digest for row in connection.execute(query)}

    return database.tried(read, twice=True)


def _newest(connection: Connection, job: str) -> Newest | None:
    row = connection.execute(select(newest_revision).where(newest_revision.c.job == job)).first()
    if row is None or row.digest == _NONE:
        return None
    return Newest(Revision(row.digest, row.mapping), float(row.since), int(row.runs_before))
