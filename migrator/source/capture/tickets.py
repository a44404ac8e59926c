"""The counter of tickets in the source: `ports.live.Tickets` by SQL."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import SourceError
from migrator.ports.capture import MarkedBy
from migrator.ports.live import TICKETS_AN_EPOCH
from migrator.source.capture.design import VERSION, Ddl
from migrator.source.capture.writing import Writing

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class Counter:
    """The one row of the ticket's table."""

    epoch: int
    number: int
    installation: str
    version: int
    job: str
    marked_by: MarkedBy

    @property
    def ticket(self) -> int:
        return self.epoch * TICKETS_AN_EPOCH + self.number


class SqlTickets:
    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def draw(self) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            # The row stays locked until the commit, so the SELECT sees this number and no other.
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number + 1 WHERE id = 1"))
            return self._counter(connection, ddl).ticket

        return self._writing.write("drawing a ticket", work)

    def highest(self) -> int:
        return self._writing.look("reading the last ticket", self._counter).ticket

    def installation(self) -> str:
        return self._writing.look("reading capture's installation", self._counter).installation

    def raise_epoch(self, above: int) -> int:
        def work(connection: Connection, ddl: Ddl) -> int:
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number WHERE id = 1"))
            found = self._counter(connection, ddl)
            epoch = max(found.epoch, above // TICKETS_AN_EPOCH) + 1
            raised = sa.text(f"UPDATE {ddl.ticket} SET epoch = :epoch, number = 0 WHERE id = 1")
            connection.execute(raised, {"epoch": epoch})
            return epoch

        return self._writing.write("raising the epoch", work)

    def probe(self) -> None:
        """Draws none, with all the rights that drawing takes. Raises: SourceError, which names what is refused."""

        def work(connection: Connection, ddl: Ddl) -> None:
            self._counter(connection, ddl)
            connection.execute(sa.text(f"UPDATE {ddl.ticket} SET number = number WHERE 1 = 0"))

        self._writing.write("trying our tickets", work)

    def close(self) -> None:
        self._writing.close()

    def _counter(self, connection: Connection, ddl: Ddl) -> Counter:
        found = counter(connection, ddl)
        if found is None or found.version != VERSION:
            has = "has lost its ticket row" if found is None else f"is of version {found.version}"
            what = f"{self._writing.place}: capture {has}, this migrator needs version {VERSION}"
            raise SourceError(f"{what}; run `migrator capture install` with this job")
        return found


def counter(connection: Connection, ddl: Ddl) -> Counter | None:
    statement = f"SELECT epoch, number, installation, version, job, marked_by FROM {ddl.ticket} WHERE id = 1"
    row = connection.execute(sa.text(statement)).first()
    return None if row is None else Counter(*row)
