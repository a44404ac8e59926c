"""Where the journal of a job is, and its identity: that of the journal, and of the job's table and source, compared
when they are opened."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, exists, func, or_, select, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from migrator.journal.database import Database, insert_or_ignore, repeatable
from migrator.journal.schema import identity, job_name, phase, revision, run, seen_table
from migrator.mapping.model.edges import NameKind
from migrator.runtime.system import FOLDER

_ONLY_ROW = 1
"""There is one row."""


class SqlIdentity:
    """model.edges.Identity of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    @repeatable
    def journal_id(self) -> str:
        with self.database.begin() as connection:
            query = select(identity.c.id).where(identity.c.number == _ONLY_ROW)
            if (journal_id := connection.execute(query).scalar()) is None:
                row = {"number": _ONLY_ROW, "id": secrets.token_hex(16)}
                connection.execute(insert_or_ignore(connection, identity), row)
                journal_id = connection.execute(query).scalar_one()
        return str(journal_id)

    @repeatable
    def seen(self, table_id: str) -> int | None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        with self.database.begin() as connection:
            ticket = connection.execute(select(seen_table.c.ticket).where(*here)).scalar()
        return None if ticket is None else int(ticket)

    @repeatable
    def see(self, table_id: str, table: str, ticket: int) -> None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        row = {"job": self.job, "table_id": table_id, "name": table, "ticket": ticket}
        with self.database.begin() as connection:
            connection.execute(insert_or_ignore(connection, seen_table), row)
            higher = update(seen_table).where(*here, seen_table.c.ticket < ticket)
            connection.execute(higher.values(ticket=ticket))

    @repeatable
    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        row = {"job": self.job, "table_id": table_id, "name": table, "ticket": ticket}
        with self.database.begin() as connection:
            connection.execute(insert_or_ignore(connection, seen_table), row)
            connection.execute(update(seen_table).where(*here).values(ticket=ticket))

    @repeatable
    def tables_named(self, table: str) -> frozenset[str]:
        query = select(seen_table.c.table_id).where(seen_table.c.job == self.job, seen_table.c.name == table)
        with self.database.begin() as connection:
            return frozenset(connection.execute(query).scalars())

    # ── the job ──

    @repeatable
    def knows_job(self) -> bool:
        """Whether capture or a writer of the job was ever recorded here. A comparison or a reader alone is no sign."""
        writing = run.c.kind.in_(["backfill", "relay", "direct"])
        signs = (
            exists().where(run.c.job == self.job, writing),
            exists().where(revision.c.job == self.job, revision.c.digest != ""),
            exists().where(phase.c.job == self.job),
            exists().where(seen_table.c.job == self.job),
        )
        with self.database.begin() as connection:
            return bool(connection.execute(select(or_(*signs))).scalar())

    @repeatable
    def names(self, kind: NameKind) -> frozenset[str]:
        """What the job's table, or source, is called here."""
        with self.database.begin() as connection:
            return self._names(connection, kind)

    @repeatable
    def first_name(self, kind: NameKind, name: str) -> frozenset[str]:
        """The same, where it is called that from now on if it was not called anything before."""
        with self.database.begin() as connection:
            if not (names := self._names(connection, kind)):
                self._add(connection, kind, 0, name)
                names = self._names(connection, kind)
        return names

    @repeatable
    def add_name(self, kind: NameKind, name: str) -> None:
        """It is called that, too, from now on."""
        here = (job_name.c.job == self.job, job_name.c.kind == kind)
        with self.database.begin() as connection:
            if name not in self._names(connection, kind):
                last = connection.execute(select(func.max(job_name.c.number)).where(*here)).scalar()
                self._add(connection, kind, 0 if last is None else last + 1, name)

    def _names(self, connection: Connection, kind: NameKind) -> frozenset[str]:
        here = (job_name.c.job == self.job, job_name.c.kind == kind)
        names = frozenset(connection.execute(select(job_name.c.name).where(*here)).scalars())
        if kind == "source":
            return names
        # Tables that were written with tickets have their names there.
        seen = select(seen_table.c.name).where(seen_table.c.job == self.job)
        return names | set(connection.execute(seen).scalars())

    def _add(self, connection: Connection, kind: NameKind, number: int, name: str) -> None:
        row = {"job": self.job, "kind": kind, "number": number, "name": name}
        connection.execute(insert_or_ignore(connection, job_name), row)


# ── Where it is: in the job file's folder, from whichever directory a command is run ──


@dataclass(frozen=True)
class JournalLocation:
    """`url`: of the journal; files by their whole path, so that it stays the same when a process changes its directory."""

    url: str | URL

    @property
    def file(self) -> str:
        """The journal's file; '' of one on a server."""
        return str(self.url.database) if isinstance(self.url, URL) else ""


def location_of(written: str | None, name: str, folder: Path, home: str | None) -> JournalLocation:
    """Where the journal of job `name` is. `written`: its `journal:`, `folder`: the job file's, `home`: $MIGRATOR_HOME."""
    if written is None and home:
        return _file(Path(home) / f"{name}.db")
    path = Path(FOLDER) / f"{name}.db" if written is None else _sqlite_path(written)
    return JournalLocation(written or "") if path is None else _file(folder / path)


def _file(path: Path) -> JournalLocation:
    return JournalLocation(URL.create("sqlite", database=os.path.abspath(path)))


def _sqlite_path(written: str) -> Path | None:
    """The file of an SQLite URL; None of any other, also of one that cannot be read, which is refused where it is opened."""
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
