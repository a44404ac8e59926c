"""Processes at work: how far they are, their parts of budgets, their last failures, and what was asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection

from migrator.journal.database import Database, repeatable, seconds
from migrator.journal.lease import Holder
from migrator.journal.records import Records
from migrator.mapping.model.instances import (
    AS_SET,
    Advance,
    Beat,
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
WINDOW_S = 10.0
"""Budgets hold over any so many seconds, so what a process that has ended spent counts for so long."""
_FORGOTTEN_S = 86_400.0
"""The row of a killed process is deleted after a day."""


_NO_SHARE = Share("", "")
"""Of a process that spends nothing of a budget."""


class _KnownProcess(Struct, frozen=True):
    """A process at its last heartbeat.

    `state`: None for one that `status` does not list. `since`: it takes one part of so many since then. `has_left`: it had
    ended at `alive_at`.
    """

    holder: Holder
    alive_at: float
    state: ProcessState | None = None
    share: Share = _NO_SHARE
    since: float = 0.0
    has_left: bool = False

    def left(self, now: float) -> _KnownProcess:
        return replace(self, share=replace(self.share, connections=0), alive_at=now, has_left=True)

    def leaves_room(self, parts: int, now: float) -> bool:
        """Whether it takes no more than one of so many parts, and has not taken more within the window."""
        return not self.share.parts or (self.share.parts >= parts and self.since <= now - WINDOW_S)


PROCESSES = Records[_KnownProcess]("process", _KnownProcess)
_MINUTES = Records[WorkMinute]("progress", WorkMinute, time="begun_at")
"""What each process had done at its last heartbeat of each minute, for the report's curves."""
_FAILURES = Records[Failure]("failure", Failure)
_THROTTLES = Records[Throttle]("throttle", Throttle)


class SqlProcesses:
    """The processes of one job, and what an operator reads and sets. Every method is one transaction. What the processes
    of one scope take together is never more than its budgets, over any ten seconds.

    `silent_s`: after so long without a heartbeat a process sends nothing.

    Raises, from every method: StoppedError, SettingsError if the journal cannot be reached.
    """

    def __init__(self, database: Database, job: str, silent_s: float) -> None:
        self.database = database
        self.job = job
        self.silent_s = silent_s

    # ── a process ──

    @repeatable
    def reserve(self, connection: Connection, shares: Sequence[Share]) -> None:
        """Store the shares of processes that begin a moment later."""
        PROCESSES.forget(connection, self.job, seconds(connection) - _FORGOTTEN_S)
        for share in sorted(shares, key=lambda share: share.id):
            self._put(connection, share.id, None, share, 0.0)

    @repeatable
    def beat(
        self,
        connection: Connection,
        id: str,
        state: ProcessState | None,
        share: Share | None,
        advance: Advance,
    ) -> Beat:
        """Store state and share; return them with their times and part, and the throttle. `advance` is kept by the
        minute, if there is a state."""
        # The share first: its lock comes before all others.
        kept, since, parts = (_NO_SHARE, 0.0, 0) if share is None else self._divided(connection, share)
        if state is not None:
            now = seconds(connection)
            if not state.since:
                PROCESSES.forget(connection, self.job, now - _FORGOTTEN_S)
                _MINUTES.forget(connection, self.job, now - MINUTES_KEPT_S)
            state = replace(state, id=id, since=state.since or now, alive_at=now)
            self._keep_minute(connection, id, advance)
        self._put(connection, id, state, kept, since)
        return Beat(state, parts, self._throttle(connection))

    def _divided(self, connection: Connection, own: Share) -> tuple[Share, float, int]:
        """The share to store, since when it is taken, and by how many parts its process divides the budgets."""
        counted, now = self._counted(connection, own.scope, own.id), seconds(connection)
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
        return replace(own, parts=kept), since, parts

    def _put(
        self, connection: Connection, id: str, state: ProcessState | None, share: Share, since: float
    ) -> None:
        process = _KnownProcess(Holder.here(), seconds(connection), state, share, since)
        PROCESSES.put(connection, self.job, process, id)

    def _keep_minute(self, connection: Connection, id: str, advance: Advance) -> None:
        minute = int(seconds(connection)) // 60 * 60
        done = WorkMinute(id, minute, advance.items, advance.write_units, advance.lag_s)
        _MINUTES.put(connection, self.job, done, f"{id} {minute}")

    def leave(self, id: str, advance: Advance | None) -> None:
        """Once: a process that ends waits for no journal that is away. What it spent counts for the window."""
        with self.database.begin() as connection:
            if advance is not None:
                self._keep_minute(connection, id, advance)
            self._left(connection, id, is_listed=False)

    @repeatable
    def ended(self, connection: Connection, id: str) -> None:
        """Another process has seen that it ended."""
        self._left(connection, id, is_listed=True)

    def _left(self, connection: Connection, id: str, *, is_listed: bool) -> None:
        PROCESSES.lock(connection, self.job)
        if (process := PROCESSES.get(connection, self.job, id)) is not None:
            left = process.left(seconds(connection))
            PROCESSES.put(connection, self.job, left if is_listed else replace(left, state=None), id)

    def failed(self, state: ProcessState, reason: str) -> None:
        """Once, as `leave`."""
        with self.database.begin() as connection:
            failure = Failure(state.kind, state.host, state.pid, seconds(connection), reason)
            _FAILURES.put(connection, self.job, failure, state.kind)

    # ── processes that spend of one scope's budgets ──

    @repeatable
    def connections_taken(self, connection: Connection, scope: str) -> int:
        return sum(process.share.connections for process in self._counted(connection, scope).values())

    @repeatable
    def at_work(self, connection: Connection, scope: str) -> int:
        """Processes that have not left and are not known to be dead."""
        return sum(not process.has_left for process in self._counted(connection, scope).values())

    def _counted(self, connection: Connection, scope: str, own: str = "") -> dict[str, _KnownProcess]:
        """Processes that spend, or spent within the window, by id. No other process counts before the transaction ends."""
        PROCESSES.lock(connection, self.job)
        PROCESSES.bring_back(connection, self.job)
        now, counted = seconds(connection), dict[str, _KnownProcess]()
        for id, process in PROCESSES.all(connection, self.job).items():
            lasts_s = WINDOW_S if process.has_left else self.silent_s + WINDOW_S
            if process.share.scope != scope or process.alive_at <= now - lasts_s:
                continue
            counted[id] = process
            if id != own and not process.has_left and not process.holder.is_alive:
                counted[id] = process.left(now)
                PROCESSES.put(connection, self.job, counted[id], id)
        return counted

    # ── an operator ──

    @repeatable
    def minutes(self, connection: Connection, since: float) -> list[WorkMinute]:
        """What was done, from the first whole minute before `since` on, oldest first."""
        kept = _MINUTES.all(connection, self.job, since - 60).values()
        return sorted(kept, key=lambda minute: (minute.begun_at, minute.process))

    def read(self) -> Operations:
        PROCESSES.bring_back_first(self.database, self.job)
        return self._read()

    @repeatable
    def _read(self, connection: Connection) -> Operations:
        known = PROCESSES.all(connection, self.job).values()
        failures = _FAILURES.all(connection, self.job).values()
        return Operations(
            sorted(filter(None, map(_heard, known)), key=lambda state: state.since),
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


def _heard(process: _KnownProcess) -> ProcessState | None:
    """The state, no later than the row: a heartbeat of a clock that was ahead is brought back there."""
    if (state := process.state) is None:
        return None
    since, alive_at = min(state.since, process.alive_at), min(state.alive_at, process.alive_at)
    return replace(state, since=since, alive_at=alive_at)
