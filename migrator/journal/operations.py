"""Processes at work with how far they are, their last failures, and what was asked of them: pause and write units."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from migrator.journal.database import Database, bring_back_heard, insert_or_replace, repeatable, seconds
from migrator.journal.lease import holder_here, is_holder_alive
from migrator.journal.schema import failure as failures
from migrator.journal.schema import process as processes
from migrator.journal.schema import progress as minutes
from migrator.journal.schema import share as shares
from migrator.journal.schema import throttle as throttles
from migrator.mapping.model.instances import (
    AS_SET,
    Advance,
    Failure,
    Operations,
    ProcessState,
    Share,
    Throttle,
    WorkMinute,
)

MINUTES_KEPT_S = 35 * 86_400.0
"""A relay that always runs has some 50,000 minutes in this time."""
FORGOTTEN_S = 86_400.0
"""A process that was killed leaves its row; after a day nobody asks for it any more."""


class SqlProcesses:
    """The processes of one job, and what an operator reads and sets. Every method is one transaction.

    Raises, from every method: StoppedError, SettingsError if the journal cannot be reached.
    """

    def __init__(self, database: Database, job: str) -> None:
        self.database = database
        self.job = job

    # ── a process ──

    def beat(self, state: ProcessState, advance: Advance) -> tuple[ProcessState, Throttle]:
        """Store the state; return it with its id and times, and its throttle. `advance` is kept by the minute."""
        return self._beat(state if state.id else replace(state, id=secrets.token_hex(8)), advance)

    @repeatable
    def _beat(self, state: ProcessState, advance: Advance) -> tuple[ProcessState, Throttle]:
        with self.database.begin() as connection:
            now = seconds(connection)
            if not state.since:
                state = replace(state, since=now)
                old = (processes.c.job == self.job, processes.c.alive_at < now - FORGOTTEN_S)
                connection.execute(delete(processes).where(*old))
                forgotten = (minutes.c.job == self.job, minutes.c.begun_at < now - MINUTES_KEPT_S)
                connection.execute(delete(minutes).where(*forgotten))
            state = replace(state, alive_at=now)
            connection.execute(insert_or_replace(connection, processes), {"job": self.job, **asdict(state)})
            self._keep_minute(connection, state, advance)
            return state, self._throttle(connection)

    def _keep_minute(self, connection: Connection, state: ProcessState, advance: Advance) -> None:
        row = {
            "job": self.job,
            "process": state.id,
            "begun_at": int(seconds(connection)) // 60 * 60,
            "items": advance.items,
            "write_units": advance.write_units,
            "lag_s": advance.lag_s,
        }
        connection.execute(insert_or_replace(connection, minutes), row)

    def leave(self, state: ProcessState, advance: Advance) -> None:
        """Once: a process that ends waits for no journal that is away."""
        with self.database.begin() as connection:
            self._keep_minute(connection, state, advance)
            connection.execute(delete(processes).where(processes.c.id == state.id))

    def failed(self, state: ProcessState, reason: str) -> None:
        """Once, as `leave`."""
        with self.database.begin() as connection:
            row = {
                "job": self.job,
                "kind": state.kind,
                "host": state.host,
                "pid": state.pid,
                "at": seconds(connection),
                "reason": reason,
            }
            connection.execute(insert_or_replace(connection, failures), row)

    # ── an operator ──

    @repeatable
    def minutes(self, since: float) -> list[WorkMinute]:
        """What was done, from the first whole minute before `since` on, oldest first."""
        with self.database.begin() as connection:
            columns = [column for column in minutes.columns if column is not minutes.c.job]
            here = (minutes.c.job == self.job, minutes.c.begun_at >= since - 60)
            query = select(*columns).where(*here).order_by(minutes.c.begun_at, minutes.c.process)
            return [WorkMinute(**row._mapping) for row in connection.execute(query)]

    @repeatable
    def read(self) -> Operations:
        self.database.bring_back(processes, processes.c.job == self.job)
        with self.database.begin() as connection:
            columns = [column for column in processes.columns if column is not processes.c.job]
            query = select(*columns).where(processes.c.job == self.job).order_by(processes.c.since)
            known = [ProcessState(**row._mapping) for row in connection.execute(query)]
            of_job = select(failures).where(failures.c.job == self.job).order_by(failures.c.at.desc())
            failed = [
                Failure(row.kind, row.host, row.pid, row.at, row.reason) for row in connection.execute(of_job)
            ]
            return Operations(known, failed, self._throttle(connection), seconds(connection))

    @repeatable
    def throttle(self) -> Throttle:
        with self.database.begin() as connection:
            return self._throttle(connection)

    @repeatable
    def ask(self, /, who: str, reason: str, **asked: Any) -> Throttle:
        """Changes what is asked: `paused`, `max_write_units`, or both; what is not named stays."""
        with self.database.begin() as connection:
            throttle = replace(
                self._throttle(connection), who=who, reason=reason, since=seconds(connection), **asked
            )
            row = {"job": self.job, **asdict(throttle), "paused": int(throttle.paused)}
            connection.execute(insert_or_replace(connection, throttles), row)
            return throttle

    def _throttle(self, connection: Connection) -> Throttle:
        row = connection.execute(select(throttles).where(throttles.c.job == self.job)).first()
        if row is None:
            return AS_SET
        return Throttle(bool(row.paused), row.max_write_units, row.who, row.since, row.reason)


# ── Parts of budgets ──


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
        bring_back_heard(connection, shares, now, shares.c.job == self.job)
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
