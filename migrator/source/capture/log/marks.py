"""Marks of a source whose log is captured: what triggers would leave there, a reader copies before marks are taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import Mark, MarksState, SlotLag
from migrator.runtime.values import replace
from migrator.source.capture.install import SqlActivity
from migrator.source.capture.log.place import LOG, Place, place_of_log, slot_lag
from migrator.source.capture.log.reader import LogReader
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.transactions import Writing

COPY_S = 0.5
"""The log is copied this often at least while it is captured and marks wait: a slot keeps the server's log."""
LOOK_S = 5.0
"""How often a process whose source's log is not captured looks whether it is by now."""
UNSEEN_S = 30.0
"""A log that was not copied for so long counts as a mark that waits."""
EXACT_S = 10.0
"""So long an exact count waits for the reader; then the log counts as a mark that waits."""
_PAUSE_S = 0.1


class LogMarks(SqlMarks):
    """SqlMarks of PostgreSQL. Where the log is captured it is copied before marks are taken, and to its end before anything
    counts on there being none; where triggers leave the marks it is SqlMarks.

    `wait`: a pause, which raises Interrupted where the command is to end. `is_over`: whether no relay needs to read.
    """

    def __init__(
        self,
        writing: Writing,
        reader: LogReader,
        wait: Callable[[float], None] = time.sleep,
        is_over: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writing, clock=clock)
        self.reader = reader
        self._wait = wait
        self._is_over = is_over
        self._copying = Lock()
        self._is_exact = False
        self._copy_at = float("-inf")
        self._is_short = True
        self._drain_asked_at = float("-inf")
        self._drained_at = float("-inf")

    def take(self, count: int, lease_s: float) -> list[Mark]:
        """Raises: LostRecordsError where the slot misses changes, and as SqlMarks' does."""
        self._drain_where_asked()
        # First: were it to fail afterwards, marks that were taken would wait for the end of their lease.
        now = self._clock()
        if now >= self._copy_at or (self._is_short and self.reader.is_open):
            self._copy()
        taken = super().take(count, lease_s)
        self._is_short = len(taken) < count
        return taken

    def from_the_first(self) -> None:
        self._drain_asked_at = self._clock()
        super().from_the_first()

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        if not after:
            self.drain()
        return super().look(after, count, free=free)

    def state(self) -> MarksState:
        """A log that is behind counts as a mark, as old as what it may hold."""
        self._drain_where_asked()
        is_behind = self._is_exact and not self._drains_within(EXACT_S)
        state, lag = super().state(), self.lag()
        is_behind |= lag is not None and (bool(lag.lost) or lag.seconds > UNSEEN_S)
        if lag is None:
            return state
        state = replace(state, slot=lag)
        if not is_behind or self._is_over():
            return state
        return replace(state, waiting=state.waiting + 1, oldest_age_s=max(state.oldest_age_s, lag.seconds))

    def lag(self) -> SlotLag | None:
        """How far the log is behind; None where it is not captured."""

        def work(connection: Connection, ddl: Ddl) -> SlotLag | None:
            place = place_of_log(connection)
            if place is None:
                return None
            now = float(connection.exec_driver_sql(f"SELECT {ddl.now}").scalar_one())
            return slot_lag(connection, place, now)

        return self.writing.look("looking at the replication slot", work)

    def drain(self) -> None:
        """Returns when all that was committed by now is among the marks, by any reader.

        Raises: LostRecordsError; SourceError; Interrupted.
        """
        self._drains_within(float("inf"))

    def exact(self) -> LogMarks:
        """Counts from now on are of all that was committed before; as many as that where it cannot be known in time."""
        self._is_exact = True
        return self

    def probe(self) -> None:
        super().probe()
        if self.reader.place() is not None:
            tried = sa.text(f"UPDATE {LOG} SET lsn = lsn WHERE 1 = 0")
            self.writing.write("trying to copy the log", lambda connection, _: connection.execute(tried))

    def _drains_within(self, limit_s: float) -> bool:
        begun_at = self._clock()
        until = 0 if self.reader.place() is None else self.reader.ask()
        while until and not self._has_passed(until):
            # Another thread that copies needs the time as well as another process.
            if not self._copy(until):
                self._wait(_PAUSE_S)
            if self._clock() - begun_at > limit_s:
                return False
        self._drained_at = begun_at
        return True

    def leave(self) -> None:
        """Another reader may have the slot."""
        with self._copying:
            self.reader.close()

    def close(self) -> None:
        self.leave()
        super().close()

    def _has_passed(self, until: int) -> bool:
        place: Place | None = self.reader.place()
        return place is None or place.lsn >= until

    def _drain_where_asked(self) -> None:
        if self._drained_at < self._drain_asked_at:
            self.drain()

    def _copy(self, until: int = 0) -> bool:
        """Whether this thread has copied: none does where another one is at it."""
        if not self._copying.acquire(blocking=False):
            return False
        try:
            is_reader = self.reader.turn(until)
            self._copy_at = self._clock() + (COPY_S if self.reader.is_on else LOOK_S)
            return is_reader
        finally:
            self._copying.release()


class LogActivity(SqlActivity):
    """SqlActivity of a source whose log may be captured: what is not copied yet is copied before it counts marks."""

    def __init__(self, writing: Writing, marks: LogMarks) -> None:
        super().__init__(writing)
        self._marks = marks

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        self._marks.drain()
        return super().waiting(tables)
