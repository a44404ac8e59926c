"""The identity of a journal, and of the table and source of its jobs, compared when they are opened."""

from __future__ import annotations

import secrets

from sqlalchemy import Connection, exists, func, or_, select, update

from migrator.journal.database import Database, insert_or_ignore, repeatable
from migrator.journal.schema import identity, job_name, phase, revision, run, seen_table
from migrator.model.edges import NameKind

_ONE = 1
"""There is one row."""


class SqlIdentity:
    """model.edges.Identity of one job."""

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    @repeatable
    def journal_id(self) -> str:
        with self.database.begin() as connection:
            query = select(identity.c.id).where(identity.c.number == _ONE)
            if (known := connection.execute(query).scalar()) is None:
                row = {"number": _ONE, "id": secrets.token_hex(16)}
                connection.execute(insert_or_ignore(connection, identity), row)
                known = connection.execute(query).scalar_one()
        return str(known)

    @repeatable
    def seen(self, table_id: str) -> int | None:
        here = (seen_table.c.job == self.job, seen_table.c.table_id == table_id)
        with self.database.begin() as connection:
            found = connection.execute(select(seen_table.c.ticket).where(*here)).scalar()
        return None if found is None else int(found)

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
        """Whether capture or a writer of the job was ever told of here. A comparison or a reader alone is no sign."""
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
            if not (known := self._names(connection, kind)):
                self._add(connection, kind, 0, name)
                known = self._names(connection, kind)
        return known

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
        known = frozenset(connection.execute(select(job_name.c.name).where(*here)).scalars())
        if kind == "source":
            return known
        # All that older versions kept of it: the names of tables that were written with tickets.
        seen = select(seen_table.c.name).where(seen_table.c.job == self.job)
        return known | set(connection.execute(seen).scalars())

    def _add(self, connection: Connection, kind: NameKind, number: int, name: str) -> None:
        row = {"job": self.job, "kind": kind, "number": number, "name": name}
        connection.execute(insert_or_ignore(connection, job_name), row)
