"""Processes at work with how far they are, their last failures, and what was asked of them: pause and write units."""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, delete, select

from migrator.journal.database import Database, insert_or_replace, repeatable, seconds
from migrator.journal.schema import failure as failures
from migrator.journal.schema import process as processes
from migrator.journal.schema import progress as minutes
from migrator.journal.schema import throttle as throttles
from migrator.mapping.model.instances import (
    AS_SET,
    Advance,
    Failure,
    Operations,
    ProcessState,
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
