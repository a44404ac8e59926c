"""The location of a job's journal, and the identities of journal, job, table and source that are compared when they are
opened.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from sqlalchemy import Connection, exists, or_, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.journal.database import OfJob, repeatable
from migrator.journal.records import KeptRecords
from migrator.journal.schema import phase, run
from migrator.journal.writers import REVISIONS
from migrator.mapping.model.edges import NameKind
from migrator.runtime.system import FOLDER
from migrator.runtime.values import replace


class SeenTable(Struct, frozen=True):
    """A table's name, and the highest ticket seen in its control item."""

    name: str
    ticket: int


_IDENTITY = KeptRecords[str]("identity", str)
SEEN = KeptRecords[SeenTable]("seen_table", SeenTable)
JOB_NAMES = KeptRecords[tuple[str, ...]]("job_name", tuple[str, ...])
"""The names of a job's table and of its source. The journal was first used with the first name, the others were added on
purpose.
"""


class SqlIdentity(OfJob):
    @repeatable
    def journal_id(self, connection: Connection) -> str:
        if (journal_id := _IDENTITY.get(connection, "")) is None:
            journal_id = _IDENTITY.lock(connection, "") or secrets.token_hex(16)
            _IDENTITY.put(connection, "", journal_id)
        return journal_id

    def seen(self, table_id: str) -> int | None:
        seen = SEEN.read(self.database, self.job, table_id)
        return None if seen is None else seen.ticket

    @repeatable
    def see(self, connection: Connection, table_id: str, table: str, ticket: int) -> None:
        seen = SEEN.lock(connection, self.job, table_id) or SeenTable(table, ticket)
        SEEN.put(connection, self.job, replace(seen, ticket=max(seen.ticket, ticket)), table_id)

    @repeatable
    def repaired(self, connection: Connection, table_id: str, table: str, ticket: int) -> None:
        seen = SEEN.lock(connection, self.job, table_id) or SeenTable(table, ticket)
        SEEN.put(connection, self.job, replace(seen, ticket=ticket), table_id)

    def tables_named(self, table: str) -> frozenset[str]:
        seen = SEEN.read_all(self.database, self.job)
        return frozenset(table_id for table_id, entry in seen.items() if entry.name == table)

    # ── the job ──

    @repeatable
    def knows_job(self, connection: Connection) -> bool:
        """Whether capture or a writer of the job was ever recorded here. A verify run or a reader does not count."""
        writing = run.c.kind.in_(["backfill", "relay", "direct"])
        signs = (exists().where(run.c.job == self.job, writing), exists().where(phase.c.job == self.job))
        return bool(
            connection.execute(select(or_(*signs))).scalar()
            or REVISIONS.get(connection, self.job)
            or SEEN.all(connection, self.job)
        )

    @repeatable
    def names(self, connection: Connection, kind: NameKind) -> frozenset[str]:
        return self._names(connection, kind)

    @repeatable
    def first_name(self, connection: Connection, kind: NameKind, name: str) -> frozenset[str]:
        if not (names := self._names(connection, kind)):
            JOB_NAMES.add(connection, self.job, (name,), kind)
            names = self._names(connection, kind)
        return names

    @repeatable
    def add_name(self, connection: Connection, kind: NameKind, name: str) -> None:
        if name not in self._names(connection, kind):
            names = JOB_NAMES.lock(connection, self.job, kind) or ()
            JOB_NAMES.put(connection, self.job, (*names, name), kind)

    def _names(self, connection: Connection, kind: NameKind) -> frozenset[str]:
        names = frozenset(JOB_NAMES.get(connection, self.job, kind) or ())
        if kind == "source":
            return names
        # The names of tables that were written with tickets are there.
        return names | {seen.name for seen in SEEN.all(connection, self.job).values()}


# ── The location of the journal: relative to the job file's folder, not the working directory ──


JournalLocation: TypeAlias = str | URL
"""A journal's URL; of a file with an absolute path, so that a change of directory does not affect it."""


def location_of(written: str | None, name: str, folder: Path, home: str | None) -> JournalLocation:
    """`written`: the job's `journal:`. `folder`: the job file's. `home`: $MIGRATOR_HOME."""
    if written is None and home:
        return _file(Path(home) / f"{name}.db")
    path = Path(FOLDER) / f"{name}.db" if written is None else _sqlite_path(written)
    return (written or "") if path is None else _file(folder / path)


def file_of(location: JournalLocation) -> str:
    """The journal's file; '' for one on a server."""
    return str(location.database) if isinstance(location, URL) else ""


def _file(path: Path) -> URL:
    return URL.create("sqlite", database=os.path.abspath(path))


def _sqlite_path(written: str) -> Path | None:
    with suppress(ArgumentError, ValueError):
        url = make_url(written)
        if (
            url.get_backend_name() == "sqlite"
            and url.database
            and url.database[0] not in ":"
            and not url.query
        ):
            return Path(url.database)
    return None
