"""The run lease of a job: one live run at a time, taken over when its process is dead.

When a lease ends is said by the journal's clock, as hosts' clocks may be minutes apart. A process asks its own clock only
how much time has passed, so that setting a host's clock ends no lease and keeps none.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from migrator.journal.database import seconds
from migrator.journal.identity import JournalLocation
from migrator.journal.records import Records
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.durations import moment
from migrator.mapping.model.journal import Run
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.retry import running_s
from migrator.runtime.system import Ticker, birth, is_alive, visible_processes
from migrator.runtime.values import replace

LIFE_S = 30.0
HEARTBEAT_S = 5.0
_log = get_logger("lease")


class Holder(Struct, frozen=True):
    """A process, as others may tell whether it lives. `sees`, `born`: as an Instance's. `nonce`: of one lease. `doing`: what
    others ask for by `is_doing`."""

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
        """False only if it is known to be dead: a process that could be seen from here, and is gone."""
        if (self.host, self.sees) != (socket.gethostname(), visible_processes()):
            return True
        return is_alive(self.pid, self.born)


class Held(Struct, frozen=True):
    """A job's lease: by whom, since when, and for how long after `alive_at`, when it was last renewed."""

    holder: Holder
    since: float
    life_s: float
    alive_at: float

    def lives(self, now: float) -> bool:
        return self.alive_at + self.life_s > now and self.holder.is_alive


LEASES = Records[Held]("lease", Held)


class RunLease:
    """Use as a context manager. Renewed by a thread; `check` tells a run that has lost it to stop. `clock`: seconds that
    only grow, for what has passed since the lease was renewed. `doing`: what others ask for by `is_doing`."""

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
        # A transaction of its own: the one that finds the lease held ends with an error.
        LEASES.bring_back_first(self.journal.database, self.job)
        self.journal.database.tried(self._acquire, twice=True)
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(self.life_s)
        # A lease that is not given back runs out by itself, and must not hide what ended the run.
        with suppress(MigratorError), self.journal.database.begin() as connection:
            held = LEASES.lock(connection, self.job)
            if held is not None and held.holder == self.holder:
                LEASES.delete(connection, self.job, "")

    def check(self) -> None:
        """Raises StoppedError when the lease could not be renewed in time: another run may be at work."""
        if self.clock() >= self._valid_until:
            raise StoppedError(f"the lease of job {self.job} could not be renewed; the same command goes on")

    def _acquire(self) -> None:
        """Raises: SettingsError when a live run holds it."""
        before = self.clock()
        with self.journal.database.begin() as connection:
            held, now = LEASES.lock(connection, self.job), seconds(connection)
            if held is not None and held.holder != self.holder and held.lives(now):
                raise SettingsError(_busy(self.job, held.holder, moment(held.since)))
            LEASES.put(connection, self.job, Held(self.holder, now, self.life_s, now))
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
            return  # the journal may come back before the lease ends; check() stops the run when it does not
        if not is_ours:
            self._valid_until = 0.0
            self._ticker.end()
            return
        # The time before the call: others count the lease's life from a moment after it, never before.
        self._valid_until = before + self.life_s


class JoinedLease:
    """The lease that another process holds of the run that this one joins. Use as a context manager, as RunLease; `check`
    tells that the holder has given it back or lost it."""

    def __init__(self, journal: SqlJournal, job: str, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.journal = journal
        self.job = job
        self.holder: Holder | None = None
        self._is_held = True
        self._ticker = Ticker("lease", self._look, noting(_log, "lease_not_renewed"), lambda: heartbeat_s)

    def __enter__(self) -> JoinedLease:
        """Raises: SettingsError where nothing is to be joined, or not yet, or another host holds a journal's file."""
        holder = self._held_by()
        if holder is None:
            raise SettingsError(
                f"no run of job {self.job} is at work; {_ONE_HOST}, and without --join it begins"
            )
        if self.journal.database.sqlite and holder.host != socket.gethostname():
            raise SettingsError(f"the run of job {self.job} is at work on another host; {_ONE_HOST}")
        if not any(run.state == "running" for run in self.journal.runs(self.job)):
            raise SettingsError(f"nothing of job {self.job} can be joined yet: {_NOT_YET}")
        self.holder = holder
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(LIFE_S)

    def check(self) -> None:
        """Raises: StoppedError when the run is not at work any more."""
        if not self._is_held:
            what = f"the process that began the run of job {self.job} has ended or was killed"
            raise StoppedError(f"{what}; given again, its command goes on, and this one after it")

    def _look(self) -> None:
        with suppress(MigratorError):
            self._is_held = self._held_by() == self.holder

    def _held_by(self) -> Holder | None:
        return _living_holder(self.journal, self.job)


def is_doing(journal: SqlJournal, job: str, doing: str) -> bool:
    """Whether a run that does this holds the job's lease now."""
    holder = _living_holder(journal, job)
    return holder is not None and holder.doing == doing


def runs_as_they_stand(journal: SqlJournal, job: str, *, relays_work: bool = True) -> list[Run]:
    """The job's runs, oldest first. A run whose process could not record its end is interrupted, not running: the job's
    lease is free. Relays hold none; `relays_work`: whether one is at work."""
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
    "the command that is at work on it counts rows, or asks about the cost; give this one again in a moment. Backfills and"
    " verifies are joined, no other commands"
)
_ONE_HOST = "a journal in a file serves one host: for several name one on a server (`journal:` in the job)"


def refuse_absent(location: JournalLocation, job: str) -> None:
    """Raises: SettingsError where the journal would be a new file: no run can be joined by it, and it must not be made."""
    if location.file and not os.path.exists(location.file):
        raise SettingsError(
            f"no run of job {job} is at work on this host: there is no journal {location.file}; {_ONE_HOST}"
        )


def _busy(job: str, holder: Holder, since: str) -> str:
    where = f"host {holder.host}, process {holder.pid}, since {since}"
    return f"another run of job {job} is at work ({where}); wait for it, or stop it"
