"""Processes at work with how far they are, their last failures, and what was asked of them: pause and write units."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection

from migrator.journal.database import Database, repeatable, seconds
from migrator.journal.lease import holder_here, is_holder_alive
from migrator.journal.records import Records
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
from migrator.runtime.values import replace

MINUTES_KEPT_S = 35 * 86_400.0
"""A relay that always runs has some 50,000 minutes in this time."""
FORGOTTEN_S = 86_400.0
"""A process that was killed leaves its row; after a day nobody asks for it any more."""
_PROCESSES = Records[ProcessState]("process", ProcessState)
_MINUTES = Records[WorkMinute]("progress", WorkMinute, time="begun_at")
"""What each process had done at its last heartbeat of each minute, for the report's curves."""
_FAILURES = Records[Failure]("failure", Failure)
_THROTTLES = Records[Throttle]("throttle", Throttle)


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
    def _beat(
        self, connection: Connection, state: ProcessState, advance: Advance
    ) -> tuple[ProcessState, Throttle]:
        now = seconds(connection)
        if not state.since:
            state = replace(state, since=now)
            _PROCESSES.forget(connection, self.job, now - FORGOTTEN_S)
            _MINUTES.forget(connection, self.job, now - MINUTES_KEPT_S)
        state = replace(state, alive_at=now)
        _PROCESSES.put(connection, self.job, state, state.id)
        self._keep_minute(connection, state, advance)
        return state, self._throttle(connection)

    def _keep_minute(self, connection: Connection, state: ProcessState, advance: Advance) -> None:
        minute = int(seconds(connection)) // 60 * 60
        done = WorkMinute(state.id, minute, advance.items, advance.write_units, advance.lag_s)
        _MINUTES.put(connection, self.job, done, f"{state.id} {minute}")

    def leave(self, state: ProcessState, advance: Advance) -> None:
        """Once: a process that ends waits for no journal that is away."""
        with self.database.begin() as connection:
            self._keep_minute(connection, state, advance)
            _PROCESSES.delete(connection, self.job, state.id)

    def failed(self, state: ProcessState, reason: str) -> None:
        """Once, as `leave`."""
        with self.database.begin() as connection:
            failure = Failure(state.kind, state.host, state.pid, seconds(connection), reason)
            _FAILURES.put(connection, self.job, failure, state.kind)

    # ── an operator ──

    @repeatable
    def minutes(self, connection: Connection, since: float) -> list[WorkMinute]:
        """What was done, from the first whole minute before `since` on, oldest first."""
        kept = _MINUTES.all(connection, self.job, since - 60).values()
        return sorted(kept, key=lambda minute: (minute.begun_at, minute.process))

    def read(self) -> Operations:
        _PROCESSES.bring_back_first(self.database, self.job)
        return self._read()

    @repeatable
    def _read(self, connection: Connection) -> Operations:
        known = _PROCESSES.all(connection, self.job).values()
        failures = _FAILURES.all(connection, self.job).values()
        return Operations(
            sorted(known, key=lambda state: state.since),
            sorted(failures, key=lambda failure: failure.at, reverse=True),
            self._throttle(connection),
            seconds(connection),
        )

    def throttle(self) -> Throttle:
        return _THROTTLES.read(self.database, self.job) or AS_SET

    @repeatable
    def ask(self, connection: Connection, /, who: str, reason: str, **asked: Any) -> Throttle:
        """Changes what is asked: `paused`, `max_write_units`, or both; what is not named stays."""
        before = _THROTTLES.lock(connection, self.job) or AS_SET
        throttle = replace(before, who=who, reason=reason, since=seconds(connection), **asked)
        _THROTTLES.put(connection, self.job, throttle)
        return throttle

    def _throttle(self, connection: Connection) -> Throttle:
        return _THROTTLES.get(connection, self.job) or AS_SET


# ── Parts of budgets ──


WINDOW_S = 10.0
"""Budgets hold over any so many seconds, so what a process that has ended spent counts for so long."""


class _KeptShare(Struct, frozen=True):
    """`since`: it takes one part of so many since then. `has_left`: it ended when it was heard of last."""

    share: Share
    scope: str
    holder: str
    alive_at: float
    since: float = 0.0
    has_left: bool = False

    def left(self, now: float) -> _KeptShare:
        return replace(self, share=replace(self.share, connections=0), alive_at=now, has_left=True)

    def leaves_room(self, parts: int, now: float) -> bool:
        """Whether it takes no more than one of so many parts, and has not taken more within the window."""
        return not self.share.parts or (self.share.parts >= parts and self.since <= now - WINDOW_S)


SHARES = Records[_KeptShare]("share", _KeptShare)


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
    def enter(self, connection: Connection, entering: Sequence[Share]) -> None:
        """Keeps them; also those of processes that begin a moment later."""
        now = seconds(connection)
        SHARES.forget(connection, self.job, now - FORGOTTEN_S)
        for share in sorted(entering, key=lambda share: share.id):
            SHARES.put(connection, self.job, self._kept(share, now), share.id)

    @repeatable
    def beat(self, connection: Connection, own: Share) -> int:
        """Record its demand; return by how many parts the budgets are divided from now on, 0 if it has no part yet."""
        counted, now = self._counted(connection, own.id), seconds(connection)
        before = counted.pop(own.id, None)
        number, parts = len(counted) + 1, own.parts
        if 0 < own.parts < number or (
            own.parts != number and all(other.leaves_room(number, now) for other in counted.values())
        ):
            parts = number
        # More is kept before it is taken, less when it is: others must never count on what this process may take.
        kept = min(filter(None, (own.parts, parts)), default=0)
        taken = 0 if before is None else before.share.parts
        since = now if 0 < taken < kept else 0.0 if before is None or kept != taken else before.since
        beaten = replace(self._kept(replace(own, parts=kept), now), since=since)
        SHARES.put(connection, self.job, beaten, own.id)
        return parts

    @repeatable
    def leave(self, connection: Connection, own: str) -> None:
        SHARES.lock(connection, self.job)
        if (kept := SHARES.get(connection, self.job, own)) is not None:
            SHARES.put(connection, self.job, kept.left(seconds(connection)), own)

    @repeatable
    def connections_taken(self, connection: Connection) -> int:
        return sum(kept.share.connections for kept in self._counted(connection, "").values())

    @repeatable
    def at_work(self, connection: Connection) -> int:
        """Processes that have not left and are not known to be dead."""
        return sum(not kept.has_left for kept in self._counted(connection, "").values())

    def _kept(self, share: Share, now: float) -> _KeptShare:
        return _KeptShare(share, self.scope, holder_here(), now)

    def _counted(self, connection: Connection, own: str) -> dict[str, _KeptShare]:
        """Processes that spend, or spent within the window, by id. No other process counts before the transaction ends."""
        SHARES.lock(connection, self.job)
        SHARES.bring_back(connection, self.job)
        now, counted = seconds(connection), dict[str, _KeptShare]()
        for id, kept in SHARES.all(connection, self.job).items():
            lasts_s = WINDOW_S if kept.has_left else self.silent_s + WINDOW_S
            if kept.scope != self.scope or kept.alive_at <= now - lasts_s:
                continue
            counted[id] = kept
            if id != own and not kept.has_left and not is_holder_alive(kept.holder):
                counted[id] = kept.left(now)
                SHARES.put(connection, self.job, counted[id], id)
        return counted
