"""The run lease of a job: one live run at a time, taken over when its process is dead."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from sqlalchemy import delete, select, update

from migrator.journal.database import insert_or_ignore
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import lease
from migrator.model.durations import moment
from migrator.model.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Ticker, birth, is_alive, namespace

LIFE_S = 30.0
HEARTBEAT_S = 5.0
_log = get_logger("lease")


class RunLease:
    """Use as a context manager. Renewed by a thread; `check` tells a run that has lost it to stop."""

    def __init__(
        self,
        journal: SqlJournal,
        job: str,
        *,
        life_s: float = LIFE_S,
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.journal = journal
        self.job = job
        self.life_s = life_s
        self.heartbeat_s = heartbeat_s
        self.clock = clock
        self.holder = json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "born": birth(os.getpid()),
                "namespace": namespace(),
                "lease": os.urandom(4).hex(),
            }
        )
        self._valid_until = 0.0
        self._ticker = Ticker("lease", self._renew, _not_renewed, lambda: self.heartbeat_s)

    def __enter__(self) -> RunLease:
        while not self.journal.database.tried(self._acquire, twice=True):
            pass  # the holder let go between our two looks
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.stop(self.life_s)
        own_lease = delete(lease).where(lease.c.job == self.job, lease.c.holder == self.holder)
        # A lease that is not given back runs out by itself, and must not hide what ended the run.
        with suppress(MigratorError), self.journal.database.begin() as connection:
            connection.execute(own_lease)

    def check(self) -> None:
        """Raises StoppedError when the lease could not be renewed in time: another run may be at work."""
        if self.clock() >= self._valid_until:
            raise StoppedError(f"the lease of job {self.job} could not be renewed; the same command goes on")

    def _acquire(self) -> bool:
        """Whether the lease is ours; False when the lease's row has gone meanwhile.

        Raises: SettingsError when a live run holds it.
        """
        now = self.clock()
        row = {
            "job": self.job,
            "holder": self.holder,
            "since": moment(time.time()),
            "expires_at": now + self.life_s,
        }
        with self.journal.database.begin() as connection:
            connection.execute(insert_or_ignore(connection, lease), row)
            current = connection.execute(
                select(lease).where(lease.c.job == self.job).with_for_update()
            ).first()
            if current is None:
                return False
            if current.holder != self.holder:
                if current.expires_at > now and _alive(current.holder):
                    raise SettingsError(_busy(self.job, current.holder, current.since))
                takeover = update(lease).where(lease.c.job == self.job, lease.c.holder == current.holder)
                connection.execute(takeover.values(**row))
        self._valid_until = now + self.life_s
        return True

    def _renew(self) -> None:
        now = self.clock()
        renewed = (
            update(lease)
            .where(lease.c.job == self.job, lease.c.holder == self.holder)
            .values(expires_at=now + self.life_s)
        )
        try:
            with self.journal.database.begin() as connection:
                renewed_rows = connection.execute(renewed).rowcount
        except MigratorError:
            return  # the journal may come back before the lease ends; check() stops the run when it does not
        if renewed_rows == 0:
            self._valid_until = 0.0
            self._ticker.end()
            return
        self._valid_until = now + self.life_s


def _not_renewed(error: Exception) -> None:
    """The lease runs out if it goes on like this, and check() stops the run."""
    _log.warning("lease_not_renewed", reason=type(error).__name__)


def _alive(holder: str) -> bool:
    """False only when the holder is known to be dead: a process of this host and container that is gone."""
    process: dict[str, Any] = json.loads(holder)
    if (process["host"], process["namespace"]) != (socket.gethostname(), namespace()):
        return True
    return is_alive(process["pid"], process["born"])


def _busy(job: str, holder: str, since: str) -> str:
    process = json.loads(holder)
    where = f"host {process['host']}, process {process['pid']}, since {since}"
    return f"another run of job {job} is at work ({where}); wait for it, or stop it"
