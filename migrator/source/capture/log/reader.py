"""Copies changes from the source's log into our marks, in commit order; the log is confirmed after our commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol, TypeAlias

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import SLOT_MEND, KeptMark, Mark, MarksState, SlotLag
from migrator.runtime.errors import LostRecordsError, SourceError
from migrator.runtime.logs import get_logger
from migrator.runtime.values import replace
from migrator.source.capture.install import SqlActivity
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.ddl import Ddl
from migrator.source.sql.transactions import Writing

# ── The log of an engine ──


class Position(Protocol):
    """`a >= b`: everything before b is before a."""

    def __ge__(self, other: Any, /) -> bool: ...

    def __gt__(self, other: Any, /) -> bool: ...


def log_table(ddl: Ddl) -> str:
    return f"{ddl.ticket.removesuffix('ticket')}log"


class LogPlace(Struct, frozen=True):
    """The row with the position in the log.

    `slot`: the object for which the server keeps its log, '' for none.
    `system`: identity of the server.
    `position`: everything before it is among our marks.
    `passed_at`: commit time at that position, seconds since 1970.
    `tables`: as from tables_text().
    """

    slot: str
    system: str
    position: Any
    passed_at: float
    tables: str


class Changed(Struct, frozen=True):
    """`transaction`: as in Log.keep; None: it left no marks."""

    marks: Sequence[KeptMark] = ()
    transaction: Hashable = None


class Passed(Struct, frozen=True):
    """Everything before `position` was received.

    `at`: commit time there.
    `is_asked`: a process waits until it is stored.
    """

    position: Any
    at: float
    is_asked: bool = False


Received: TypeAlias = Changed | Passed


class LogInUseError(SourceError):
    """Another reader has the log."""


class LogStream(Protocol):
    """A log after a position. For one thread at a time."""

    @property
    def waits(self) -> bool: ...

    def begin(self, place: LogPlace) -> None: ...

    def receive(self, wait_s: float) -> Received | None:
        """Return None if no message came in time. Raises: SourceError if the stream ended."""

    def confirm(self, position: Any) -> None: ...

    def ask(self) -> None:
        """Make the next `receive` poll at once, or soon return the position."""

    def close(self) -> None: ...


class Log(Protocol):
    """The log of a source's server. Methods get a connection within a transaction."""

    def place(self, connection: Connection, ddl: Ddl) -> LogPlace | None:
        """Return None if the log is not captured."""

    def loss(self, connection: Connection, place: LogPlace) -> str: ...

    def lag(self, connection: Connection, place: LogPlace, now_s: float) -> SlotLag: ...

    def is_read(self, connection: Connection, place: LogPlace) -> bool: ...

    def ask(self, connection: Connection, ddl: Ddl) -> Position:
        """A position after every change committed by now; a reader then stores up to it."""

    def open(self, place: LogPlace) -> LogStream:
        """Open an exclusive stream. Raises: LogInUseError; SourceError."""

    def sees(self, connection: Connection, transactions: set[Any]) -> bool:
        """Whether readings that begin now see the transactions: a commit is in the log before others see it."""

    def keep(self, connection: Connection, ddl: Ddl, stream: Any, place: LogPlace, passed: Passed) -> bool:
        """Store the position; False if the row is missing or belongs to another reader or other tables."""

    def trial(self, ddl: Ddl) -> str:
        """A statement that needs the rights of `keep` and changes nothing."""


MARKS_AT_ONCE = 2_000
TURN_S = 1.0
IDLE_S = 10.0
"""How often the position advances while no captured table changes, so that the server may remove its log."""
LOOK_S = 1.0
"""How often a reader checks whether it should still read, and another one whether it may."""
_UNSEEN_S = 0.02
_log = get_logger("log_capture")


class _ChangedError(Exception):
    """The row differs from the reader's state: another slot, other tables, or it is missing."""


@dataclass
class _Opened:
    """A stream and its marks. `marks`: not stored yet; complete up to `passed`."""

    stream: LogStream
    place: LogPlace
    passed: Passed
    marks: list[KeptMark] = field(default_factory=list)
    unseen: set[Any] = field(default_factory=set)
    """Transactions of the marks."""
    is_asked: bool = False
    stored_at: float = float("-inf")
    looked_at: float = float("-inf")

    def has_passed(self, until: Position | None) -> bool:
        return until is None or bool(self.passed.position >= until)


@dataclass
class LogReader:
    """The reader of the source's log in this process, for one thread at a time."""

    writing: Writing
    log: Log
    clock: Callable[[], float] = time.monotonic
    is_on: bool = False
    """Whether the log was captured at the last check."""
    _opened: _Opened | None = None
    _try_at: float = float("-inf")

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def place(self) -> LogPlace | None:
        return self.writing.look("looking at the log's place", self.log.place)

    def ask(self) -> Position:
        return self.writing.write("asking the log's reader", self.log.ask)

    def turn(self, until: Position | None = None) -> bool:
        """Copy for about TURN_S, or `until` that position. False if another reader has the log, or none should
        read.

        Raises: LostRecordsError if the log misses changes; SourceError.
        """
        opened = self._opened or self._open()
        if opened is None:
            return False
        try:
            self._read(opened, until)
        except _ChangedError:
            self.close()
        except SourceError as error:
            # Messages that were read but not stored come again.
            self.close()
            self._refuse_lost()
            _log.warning("log_stream_ended", reason=str(error))
        except BaseException:
            self.close()
            raise
        return True

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.stream.close()

    # ── the stream ──

    def _open(self) -> _Opened | None:
        if self.clock() < self._try_at:
            return None
        self._try_at = self.clock() + LOOK_S
        place = self._refuse_lost()
        self.is_on = place is not None
        if place is None or self._is_read(place):
            return None
        try:
            stream = self.log.open(place)
        except LogInUseError:
            return None
        except SourceError:
            self._refuse_lost()
            raise
        try:
            # Only now: the former reader can store nothing further.
            known = self._refuse_lost()
            if known is None or known.slot != place.slot:
                stream.close()
                return None
            stream.begin(known)
        except BaseException:
            stream.close()
            raise
        self._opened = _Opened(stream, known, Passed(known.position, 0.0))
        _log.info("log_stream_opened", slot=place.slot)
        return self._opened

    def _is_read(self, place: LogPlace) -> bool:
        """A process that may not open a replication connection can wait for it."""
        return self.writing.look(
            "looking for the log's reader", lambda connection, _: self.log.is_read(connection, place)
        )

    def _refuse_lost(self) -> LogPlace | None:
        def work(connection: Connection, ddl: Ddl) -> tuple[LogPlace | None, str]:
            place = self.log.place(connection, ddl)
            return place, "" if place is None else self.log.loss(connection, place)

        place, lost = self.writing.look("looking at the log's place", work)
        if lost:
            raise LostRecordsError(f"{self.writing.place}: {lost}, so changes may be missing; {SLOT_MEND}")
        return place

    def _read(self, opened: _Opened, until: Position | None) -> None:
        end = self.clock() + TURN_S
        if opened.unseen and not self._store(opened):
            time.sleep(_UNSEEN_S)
            return
        if until is not None:
            opened.stream.ask()
        while self.clock() < end:
            received = opened.stream.receive(0.0 if opened.has_passed(until) else 0.05)
            if received is None:
                if opened.has_passed(until) or opened.stream.waits:
                    break
                continue
            if isinstance(received, Passed):
                opened.passed = received
                opened.is_asked |= received.is_asked
            else:
                opened.marks += received.marks
                if received.transaction is not None:
                    opened.unseen.add(received.transaction)
            is_full = len(opened.marks) >= MARKS_AT_ONCE or opened.is_asked
            if is_full and not self._store(opened):
                return
        has_moved = opened.passed.position > opened.place.position
        is_due = has_moved and self.clock() - opened.stored_at >= IDLE_S
        if opened.marks or is_due or opened.stream.waits:
            self._store(opened)
        if self.clock() - opened.looked_at >= LOOK_S:
            self._look(opened)

    # ── storing ──

    def _store(self, opened: _Opened) -> bool:
        """Store marks and position in one transaction, then confirm: a crash between the two repeats marks.

        False if a transaction is not visible yet: a read of its rows would still return the old ones.
        """
        marks, passed = opened.marks, opened.passed

        def work(connection: Connection, ddl: Ddl) -> bool | None:
            # In this order: everything visible now is visible to each reading that one of our marks causes.
            if opened.unseen and not self.log.sees(connection, opened.unseen):
                return None
            is_same = self.log.keep(connection, ddl, opened.stream, opened.place, passed)
            if is_same and marks:
                connection.execute(sa.text(_INSERT.format(mark=ddl.mark)), _rows(marks))
            return is_same

        is_stored = self.writing.write("copying the log", work)
        if is_stored is None:
            return False
        if not is_stored:
            raise _ChangedError
        opened.marks, opened.is_asked = [], False
        opened.unseen.clear()
        opened.stored_at = self.clock()
        opened.stream.confirm(passed.position)
        return True

    def _look(self, opened: _Opened) -> None:
        """Check the place, also while the log continues: a server may silently omit tables that are no longer
        published.
        """
        opened.looked_at = self.clock()
        place = self._refuse_lost()
        if place is None or (place.slot, place.tables) != (opened.place.slot, opened.place.tables):
            raise _ChangedError


_INSERT = "INSERT INTO {mark} (table_name, image_before, image_after, changed_at) VALUES (:table, :before, :after, :at)"


def _rows(marks: Sequence[KeptMark]) -> list[dict[str, object]]:
    return [
        {"table": mark.table, "before": mark.before, "after": mark.after, "at": mark.changed_at}
        for mark in marks
    ]


# ── Marks of a source with a captured log: a reader copies the log before marks are taken ──

COPY_S = 0.5
"""Minimum frequency of copying while the log is captured and marks are pending: a slot keeps the server's log."""
UNCAPTURED_LOOK_S = 5.0
"""How often a process checks whether the source's log is captured by now."""
UNSEEN_S = 30.0
"""A log that was not copied for this long counts as a pending mark."""
EXACT_S = 10.0
"""How long an exact count waits for the reader; after that the log counts as a pending mark."""
_PAUSE_S = 0.1


class LogMarks(SqlMarks):
    """SqlMarks of a source with a log, which is copied before marks are taken, and to its end before they are
    counted.

    `wait`: a pause, which raises Interrupted if the command is to end.
    `is_over`: whether no relay needs to read.
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
        """Raises: LostRecordsError if the log misses changes."""
        self._drain_where_asked()
        # First: after a failure here, taken marks would wait for the end of their lease.
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
        """The state; a log that is behind counts as a mark with the age of its lag."""
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
        def work(connection: Connection, ddl: Ddl) -> SlotLag | None:
            place = self.reader.log.place(connection, ddl)
            if place is None:
                return None
            now = float(connection.exec_driver_sql(f"SELECT {ddl.now}").scalar_one())
            return self.reader.log.lag(connection, place, now)

        return self.writing.look("looking how far the log is copied", work)

    def drain(self) -> None:
        """Wait until any reader has copied everything committed by now.

        Raises: LostRecordsError; SourceError; Interrupted.
        """
        self._drains_within(float("inf"))

    def exact(self) -> LogMarks:
        """Marks whose counts include all earlier commits; a log that cannot be drained in time counts as a mark."""
        self._is_exact = True
        return self

    def probe(self) -> None:
        super().probe()
        if self.reader.place() is not None:
            self.writing.write(
                "trying to copy the log",
                lambda connection, ddl: connection.exec_driver_sql(self.reader.log.trial(ddl)),
            )

    def _drains_within(self, limit_s: float) -> bool:
        begun_at = self._clock()
        until = None if self.reader.place() is None else self.reader.ask()
        while until is not None and not self._has_passed(until):
            # Another thread may be copying, like another process.
            if not self._copy(until):
                self._wait(_PAUSE_S)
            if self._clock() - begun_at > limit_s:
                return False
        self._drained_at = begun_at
        return True

    def leave(self) -> None:
        with self._copying:
            self.reader.close()

    def close(self) -> None:
        self.leave()
        super().close()

    def _has_passed(self, until: Position) -> bool:
        place = self.reader.place()
        return place is None or bool(place.position >= until)

    def _drain_where_asked(self) -> None:
        if self._drained_at < self._drain_asked_at:
            self.drain()

    def _copy(self, until: Position | None = None) -> bool:
        """Return False if another thread is copying."""
        if not self._copying.acquire(blocking=False):
            return False
        try:
            is_reader = self.reader.turn(until)
            self._copy_at = self._clock() + (COPY_S if self.reader.is_on else UNCAPTURED_LOOK_S)
            return is_reader
        finally:
            self._copying.release()


class LogActivity(SqlActivity):
    """Copies the rest of the log before it counts marks."""

    def __init__(self, writing: Writing, marks: LogMarks) -> None:
        super().__init__(writing)
        self._marks = marks

    def waiting(self, tables: Sequence[str]) -> Mapping[str, int]:
        self._marks.drain()
        return super().waiting(tables)
