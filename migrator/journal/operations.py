"""Running processes: progress, shares of budgets, last failures, and what operators have requested."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection

from migrator.journal.database import Database, OfJob, reading, repeatable, seconds
from migrator.journal.identity import JournalLocation, file_of
from migrator.journal.records import KeptRecords
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.durations import moment
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
from migrator.mapping.model.journal import Run
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.retry import running_s
from migrator.runtime.system import Ticker, birth, is_alive, visible_processes
from migrator.runtime.values import replace

# ── The run lease of a job: one live run at a time, taken over when its process is dead ──

LIFE_S = 30.0
HEARTBEAT_S = 5.0
_log = get_logger("lease")


class Holder(Struct, frozen=True):
    """A process that holds a lease.

    `sees`, `born`: as an Instance's.
    `nonce`: of one lease.
    `doing`: for `is_doing`.
    """

    host: str
    pid: int
    born: str
    sees: str
    nonce: str
    doing: str = ""

    @classmethod
    def here(cls, doing: str = "") -> Holder:
        pid = os.getpid()
        return cls(socket.gethostname(), pid, birth(pid), visible_processes(), os.urandom(4).hex(), doing)

    @property
    def is_alive(self) -> bool:
        """Whether the process may be alive: False only for one visible from here that has ended."""
        if (self.host, self.sees) != (socket.gethostname(), visible_processes()):
            return True
        return is_alive(self.pid, self.born)


class HeldLease(Struct, frozen=True):
    holder: Holder
    since: float
    life_s: float
    alive_at: float

    def lives(self, now: float) -> bool:
        return self.alive_at + self.life_s > now and self.holder.is_alive


LEASES = KeptRecords[HeldLease]("lease", HeldLease)


class RunLease:
    """A context manager; a thread renews the lease. `check` stops a run that has lost it. `clock`: monotonic
    seconds since the last renewal.
    """

    def __init__(
        self,
        journal: SqlJournal,
        job: str,
        *,
        life_s: float = LIFE_S,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = running_s,
        doing: str = "",
    ) -> None:
        self.journal = journal
        self.job = job
        self.life_s = life_s
        self.heartbeat_s = heartbeat_s
        self.clock = clock
        self.holder = Holder.here(doing)
        self._valid_until = 0.0
        self._ticker = Ticker(
            "lease", self._renew, noting(_log, "lease_not_renewed"), lambda: self.heartbeat_s
        )

    def __enter__(self) -> RunLease:
        # In its own transaction: the one that finds the lease held ends with an error.
        LEASES.bring_back_first(self.journal.database, self.job)
        self.journal.database.tried(self._acquire, twice=True)
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(self.life_s)
        # A lease that is not released expires, and must not hide the error that ended the run.
        with suppress(MigratorError), self.journal.database.begin() as connection:
            held = LEASES.lock(connection, self.job)
            if held is not None and held.holder == self.holder:
                LEASES.delete(connection, self.job, "")

    def check(self) -> None:
        """Raises: StoppedError if the lease could not be renewed in time: another run may have started."""
        if self.clock() >= self._valid_until:
            raise StoppedError(f"the lease of job {self.job} could not be renewed; the same command resumes")

    def _acquire(self) -> None:
        """Raises: SettingsError if a live run holds it."""
        before = self.clock()
        with self.journal.database.begin() as connection:
            held, now = LEASES.lock(connection, self.job), seconds(connection)
            if held is not None and held.holder != self.holder and held.lives(now):
                raise SettingsError(_busy(self.job, held.holder, moment(held.since)))
            LEASES.put(connection, self.job, HeldLease(self.holder, now, self.life_s, now))
        self._valid_until = before + self.life_s

    def _renew(self) -> None:
        before = self.clock()
        try:
            with self.journal.database.begin() as connection:
                held = LEASES.lock(connection, self.job)
                is_ours = held is not None and held.holder == self.holder
                if held is not None and is_ours:
                    LEASES.put(connection, self.job, replace(held, alive_at=seconds(connection)))
        except MigratorError:
            return  # the journal may come back before the lease ends; else check() stops the run
        if not is_ours:
            self._valid_until = 0.0
            self._ticker.end()
            return
        # The time before the call: other processes count the lease's life from a later moment.
        self._valid_until = before + self.life_s


class JoinedLease:
    """Another process's lease of a joined run. A context manager; `check` fails after the holder has released or
    lost it.
    """

    def __init__(self, journal: SqlJournal, job: str) -> None:
        self.journal = journal
        self.job = job
        self.holder: Holder | None = None
        self._is_held = True
        self._ticker = Ticker("lease", self._look, noting(_log, "lease_not_renewed"), lambda: HEARTBEAT_S)

    def __enter__(self) -> JoinedLease:
        """Raises: SettingsError if no run can be joined yet, or if another host holds a journal's file."""
        holder = self._held_by()
        if holder is None:
            raise SettingsError(
                f"no run of job {self.job} is running; {_ONE_HOST}, and without --join it begins"
            )
        if self.journal.database.sqlite and holder.host != socket.gethostname():
            raise SettingsError(f"the run of job {self.job} is running on another host; {_ONE_HOST}")
        if not any(run.state == "running" for run in self.journal.runs(self.job)):
            raise SettingsError(f"job {self.job}: no run to join yet: {_NOT_YET}")
        self.holder = holder
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(LIFE_S)

    def check(self) -> None:
        """Raises: StoppedError if the run has ended."""
        if not self._is_held:
            what = f"the process that began the run of job {self.job} has ended or was killed"
            raise StoppedError(f"{what}; run its command again, and then this one")

    def _look(self) -> None:
        with suppress(MigratorError):
            self._is_held = self._held_by() == self.holder

    def _held_by(self) -> Holder | None:
        return _living_holder(self.journal, self.job)


def is_doing(journal: SqlJournal, job: str, doing: str) -> bool:
    holder = _living_holder(journal, job)
    return holder is not None and holder.doing == doing


def runs_as_they_stand(journal: SqlJournal, job: str, *, relays_work: bool = True) -> list[Run]:
    """Runs, oldest first. While the lease is free, a run without a recorded end is interrupted. Relays hold no
    lease; `relays_work`: whether one is running.
    """
    runs = journal.runs(job)
    is_held = any(run.state == "running" for run in runs) and _living_holder(journal, job) is not None

    def works(run: Run) -> bool:
        return relays_work if run.identity.kind == "relay" else is_held

    return [
        replace(run, state="interrupted") if run.state == "running" and not works(run) else run
        for run in runs
    ]


def _living_holder(journal: SqlJournal, job: str) -> Holder | None:
    with journal.database.begin(reads=True) as connection:
        held, now = LEASES.get(connection, job), seconds(connection)
    return held.holder if held is not None and held.lives(now) else None


_NOT_YET = (
    "the running command counts rows, or asks about the cost; run this one again in a moment. Backfills and"
    " verifies are joined, no other commands"
)
_ONE_HOST = "a journal in a file serves one host: for several name one on a server (`journal:` in the job)"


def refuse_absent(location: JournalLocation, job: str) -> None:
    """Raises: SettingsError if the journal does not exist: it must not be created to join a run."""
    file = file_of(location)
    if file and not os.path.exists(file):
        raise SettingsError(f"no run of job {job} on this host: journal {file} not found; {_ONE_HOST}")


def _busy(job: str, holder: Holder, since: str) -> str:
    where = f"host {holder.host}, process {holder.pid}, since {since}"
    return f"another run of job {job} is running ({where}); wait for it, or stop it"


MINUTES_KEPT_S = 35 * 86_400.0
"""A relay that runs all the time has some 50,000 minutes in this time."""
WINDOW_S = 10.0
"""Budgets hold over any period of this length, so consumption of an ended process counts that long."""
_FORGOTTEN_S = 86_400.0
"""The record of a killed process is deleted after a day."""


_NO_SHARE = Share("", "")
"""Of a process that uses no budget."""


class _KnownProcess(Struct, frozen=True):
    """A process at its last heartbeat.

    `state`: None if `status` does not list it.
    `since`: when it took its share.
    `has_left`: it ended at `alive_at`.
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
        return not self.share.parts or (self.share.parts >= parts and self.since <= now - WINDOW_S)


PROCESSES = KeptRecords[_KnownProcess]("process", _KnownProcess)
_MINUTES = KeptRecords[WorkMinute]("progress", WorkMinute, time="begun_at")
"""Each process's progress at its last heartbeat of each minute, for the report's charts."""
_FAILURES = KeptRecords[Failure]("failure", Failure)
_THROTTLES = KeptRecords[Throttle]("throttle", Throttle)


class SqlProcesses(OfJob):
    """The processes of one job. Every method is one transaction. Over any ten seconds, the processes of one
    scope together stay within its budgets.

    `silent_s`: timeout of heartbeats, after which a process stops sending.
    Raises, from every method: StoppedError, SettingsError if the journal cannot be reached.
    """

    def __init__(self, database: Database, job: str, silent_s: float) -> None:
        super().__init__(database, job)
        self.silent_s = silent_s

    # ── a process ──

    @repeatable
    def reserve(self, connection: Connection, shares: Sequence[Share]) -> None:
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
    ) -> tuple[ProcessState | None, int, Throttle]:
        """Store state and share; return the state with its times, the number of processes that share the budgets (0
        if this one has no part yet), and the throttle. Also stores `advance` per minute.
        """
        # The share first: its lock precedes all others.
        kept, since, parts = (_NO_SHARE, 0.0, 0) if share is None else self._divided(connection, share)
        if state is not None:
            now = seconds(connection)
            if not state.since:
                PROCESSES.forget(connection, self.job, now - _FORGOTTEN_S)
                _MINUTES.forget(connection, self.job, now - MINUTES_KEPT_S)
            state = replace(state, id=id, since=state.since or now, alive_at=now)
            self._keep_minute(connection, id, advance)
        self._put(connection, id, state, kept, since)
        return state, parts, self._throttle(connection)

    def _divided(self, connection: Connection, own: Share) -> tuple[Share, float, int]:
        counted, now = self._counted(connection, own.scope, own.id), seconds(connection)
        before = counted.pop(own.id, None)
        number, parts = len(counted) + 1, own.parts
        if 0 < own.parts < number or (
            own.parts != number and all(other.leaves_room(number, now) for other in counted.values())
        ):
            parts = number
        # Store a larger share before it is used, and a smaller one after: others must never count on this process's part.
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
        """Deregister. Tried once: a process that ends does not wait for an unreachable journal. Its consumption
        counts for the window.
        """
        with self.database.begin() as connection:
            if advance is not None:
                self._keep_minute(connection, id, advance)
            self._left(connection, id, is_listed=False)

    @repeatable
    def ended(self, connection: Connection, id: str) -> None:
        self._left(connection, id, is_listed=True)

    def _left(self, connection: Connection, id: str, *, is_listed: bool) -> None:
        PROCESSES.lock(connection, self.job)
        if (process := PROCESSES.get(connection, self.job, id)) is not None:
            left = process.left(seconds(connection))
            PROCESSES.put(connection, self.job, left if is_listed else replace(left, state=None), id)

    def failed(self, state: ProcessState, reason: str) -> None:
        """Record the failure. Tried once, like `leave`."""
        with self.database.begin() as connection:
            failure = Failure(state.kind, state.host, state.pid, seconds(connection), reason)
            _FAILURES.put(connection, self.job, failure, state.kind)

    # ── processes that spend of one scope's budgets ──

    @repeatable
    def connections_taken(self, connection: Connection, scope: str) -> int:
        return sum(process.share.connections for process in self._counted(connection, scope).values())

    @repeatable
    def at_work(self, connection: Connection, scope: str) -> int:
        return sum(not process.has_left for process in self._counted(connection, scope).values())

    def _counted(self, connection: Connection, scope: str, own: str = "") -> dict[str, _KnownProcess]:
        """Processes that use the budget, or did within the window. No other process is counted until the
        transaction ends.
        """
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

    @reading
    def minutes(self, connection: Connection, since: float) -> list[WorkMinute]:
        kept = _MINUTES.all(connection, self.job, since - 60).values()
        return sorted(kept, key=lambda minute: (minute.begun_at, minute.process))

    def read(self) -> Operations:
        PROCESSES.bring_back_first(self.database, self.job)
        return self._read()

    @reading
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
        before = _THROTTLES.lock(connection, self.job) or AS_SET
        throttle = replace(before, who=who, reason=reason, since=seconds(connection), **asked)
        _THROTTLES.put(connection, self.job, throttle)
        return throttle

    def _throttle(self, connection: Connection) -> Throttle:
        return _THROTTLES.get(connection, self.job) or AS_SET


def _heard(process: _KnownProcess) -> ProcessState | None:
    """Limit the state's time to the record's, in case the process's clock was ahead."""
    if (state := process.state) is None:
        return None
    since, alive_at = min(state.since, process.alive_at), min(state.alive_at, process.alive_at)
    return replace(state, since=since, alive_at=alive_at)
