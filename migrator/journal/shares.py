"""Shares of a run's budgets: how many processes are at work on it, and which part of each budget is one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from migrator.journal.database import Database, insert_or_replace, repeatable, seconds
from migrator.journal.lease import holder_here, is_holder_alive
from migrator.journal.schema import share as shares
from migrator.mapping.model.instances import Share

WINDOW_S = 10.0
"""Budgets hold over any so many seconds, so what a process that has ended spent counts for so long."""
_FORGOTTEN_S = 86_400.0


class SqlShares:
    """The shares of one job. What all of them take together is never more than the budgets, over any ten seconds.

    `scope`: the run, or the kind of processes, whose budgets they are.
    `silent_s`: after so long without a sign a process sends nothing any more.
    """

    def __init__(self, database: Database, job: str, scope: str, silent_s: float) -> None:
        self.database = database
        self.job = job
        self.scope = scope
        self.silent_s = silent_s

    @repeatable
    def enter(self, entering: Sequence[Share]) -> None:
        """Keeps them; also those of processes that begin a moment later."""
        with self.database.begin() as connection:
            now = seconds(connection)
            connection.execute(delete(shares).where(shares.c.alive_at < now - _FORGOTTEN_S))
            rows = [self._row(one) | {"alive_at": now, "since": 0.0, "left_at": None} for one in entering]
            connection.execute(insert_or_replace(connection, shares), rows)

    @repeatable
    def beat(self, own: Share) -> int:
        """Record its demand; return by how many parts the budgets are divided from now on, 0 if it has no part yet."""
        with self.database.begin() as connection:
            rows = self._counted(connection, own.id)
            now, others = seconds(connection), [row for row in rows if row.id != own.id]
            number, row = len(others) + 1, next((row for row in rows if row.id == own.id), None)
            parts = own.parts
            if 0 < own.parts < number or (
                own.parts != number and all(_leaves_room(one, number, now) for one in others)
            ):
                parts = number
            # More is kept before it is taken, less when it is: others must never count on what this process may take.
            kept = min(filter(None, (own.parts, parts)), default=0)
            before = 0 if row is None else row.parts
            since = now if 0 < before < kept else 0.0 if row is None or kept != before else row.since
            values = self._row(own) | {"parts": kept, "since": since, "alive_at": now, "left_at": None}
            connection.execute(insert_or_replace(connection, shares), values)
            return parts

    @repeatable
    def leave(self, own: str) -> None:
        with self.database.begin() as connection:
            connection.execute(
                update(shares).where(shares.c.id == own).values(left_at=seconds(connection), connections=0)
            )

    @repeatable
    def connections_taken(self) -> int:
        with self.database.begin() as connection:
            return sum(row.connections for row in self._counted(connection, ""))

    @repeatable
    def at_work(self) -> int:
        """Processes that have not left and are not known to be dead."""
        with self.database.begin() as connection:
            return sum(row.left_at is None for row in self._counted(connection, ""))

    def _row(self, own: Share) -> dict[str, Any]:
        return {"job": self.job, "scope": self.scope, "holder": holder_here(), **asdict(own)}

    def _counted(self, connection: Connection, own: str) -> list[Row[Any]]:
        """Processes that spend, or spent within the window; no other one is looked at before the transaction has ended."""
        here = (shares.c.job == self.job, shares.c.scope == self.scope)
        query = select(shares).where(*here).order_by(shares.c.id)
        connection.execute(query.with_for_update()).all()
        now = seconds(connection)
        # Read once more: what was inserted while this transaction waited for its turn is seen now.
        rows = connection.execute(query).all()
        dead = [
            row for row in rows if row.left_at is None and row.id != own and not is_holder_alive(row.holder)
        ]
        for row in dead:
            connection.execute(update(shares).where(shares.c.id == row.id).values(left_at=now, connections=0))
        return [
            row
            for row in rows
            if (row.alive_at if row.left_at is None else row.left_at)
            > now - (WINDOW_S if row.left_at is not None else self.silent_s + WINDOW_S)
        ]


def _leaves_room(other: Row[Any], number: int, now: float) -> bool:
    """Whether it takes no more than one of so many parts, and has not taken more within the window."""
    return not other.parts or (other.parts >= number and other.since <= now - WINDOW_S)
