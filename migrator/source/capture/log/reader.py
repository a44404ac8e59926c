"""Copies changes from the source's log into our marks, in commit order; the log gets its confirmation after our commit."""

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

# ── A log as its engine has it ──


class Position(Protocol):
    """A place in the log. `a >= b`: whether all that is before b is before a."""

    def __ge__(self, other: Any, /) -> bool: ...

    def __gt__(self, other: Any, /) -> bool: ...


def log_table(ddl: Ddl) -> str:
    """The name of our table that says how far the log is copied."""
    return f"{ddl.ticket.removesuffix('ticket')}log"


class LogPlace(Struct, frozen=True):
    """The row that says how far the log is copied. `slot`: what the server keeps its log for, '' if for nothing. `system`:
    which server. `position`: all before it is among our marks; `passed_at`: when what stands there was committed, seconds
    since 1970; `tables`: as tables_text() gives them."""

    slot: str
    system: str
    position: Any
    passed_at: float
    tables: str


class Changed(Struct, frozen=True):
    """Marks of a transaction that was committed. `transaction`: as Log.keep knows it; None: it left none."""

    marks: Sequence[KeptMark] = ()
    transaction: Hashable = None


class Passed(Struct, frozen=True):
    """All before `position` was received. `at`: when what stands there was committed. `is_asked`: a process waits for what
    was received to be stored."""

    position: Any
    at: float
    is_asked: bool = False


Received: TypeAlias = Changed | Passed


class LogInUseError(SourceError):
    """Another reader has the log."""


class LogStream(Protocol):
    """What is in the log behind a place. Use by one thread at a time."""

    @property
    def waits(self) -> bool:
        """Whether nothing comes until what came is confirmed."""

    def begin(self, place: LogPlace) -> None:
        """Raises: SourceError."""

    def receive(self, wait_s: float) -> Received | None:
        """What comes next; None if nothing came in time. Raises: SourceError where the stream ended."""

    def confirm(self, position: Any) -> None:
        """All up to the position is stored."""

    def ask(self) -> None:
        """The next `receive` looks at once, or gives soon how far the log was received."""

    def close(self) -> None: ...


class Log(Protocol):
    """The log of a source's server. Its methods get a connection within a transaction."""

    def place(self, connection: Connection, ddl: Ddl) -> LogPlace | None:
        """None where the log is not captured."""

    def loss(self, connection: Connection, place: LogPlace) -> str:
        """Why changes may be missing in what the log still gives; '' where none is."""

    def lag(self, connection: Connection, place: LogPlace, now_s: float) -> SlotLag: ...

    def is_read(self, connection: Connection, place: LogPlace) -> bool:
        """Whether a reader has the log."""

    def ask(self, connection: Connection, ddl: Ddl) -> Position:
        """A position that every change committed by now comes before; a reader stores what it has up to there."""

    def open(self, place: LogPlace) -> LogStream:
        """A stream that no other reader has. Raises: LogInUseError; SourceError."""

    def sees(self, connection: Connection, transactions: set[Any]) -> bool:
        """Whether the transactions are visible to readings that begin now: a log has a commit before others see it."""

    def keep(self, connection: Connection, ddl: Ddl, stream: Any, place: LogPlace, passed: Passed) -> bool:
        """Writes the position into the row; False if the row is another reader's, or of other tables, or gone."""

    def trial(self, ddl: Ddl) -> str:
        """A statement that needs the rights of `keep`, and changes nothing."""


MARKS_AT_ONCE = 2_000
TURN_S = 1.0
IDLE_S = 10.0
"""How often the position goes on while nothing that we capture changes: the server may remove its log then."""
LOOK_S = 1.0
"""How often a reader looks whether it is still to read, and another one whether it may."""
_UNSEEN_S = 0.02
_log = get_logger("log_capture")


class _ChangedError(Exception):
    """The row says something else than the reader goes by: another slot, other tables, or it is gone."""


@dataclass
class _Opened:
    """A stream, and what was read of it. `marks`: not stored yet; `passed`: up to where they are all there is."""

    stream: LogStream
    place: LogPlace
    passed: Passed
    marks: list[KeptMark] = field(default_factory=list)
    unseen: set[Any] = field(default_factory=set)
    """Transactions that the marks are of."""
    is_asked: bool = False
    stored_at: float = float("-inf")
    looked_at: float = float("-inf")

    def has_passed(self, until: Position | None) -> bool:
        return until is None or bool(self.passed.position >= until)


@dataclass
class LogReader:
    """The reader of the source's log in this process, by one thread at a time."""

    writing: Writing
    log: Log
    clock: Callable[[], float] = time.monotonic
    is_on: bool = False
    """Whether the log was captured when it was looked at last."""
    _opened: _Opened | None = None
    _try_at: float = float("-inf")

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def place(self) -> LogPlace | None:
        """How far the log is copied; None where it is not captured."""
        return self.writing.look("looking at the log's place", self.log.place)

    def ask(self) -> Position:
        """As Log.ask."""
        return self.writing.write("asking the log's reader", self.log.ask)

    def turn(self, until: Position | None = None) -> bool:
        """Copies what there is, for about TURN_S; `until`: at least that position is waited for so long. False where another
        reader has the log, or none is to read.

        Raises: LostRecordsError where the log misses changes; SourceError.
        """
        opened = self._opened or self._open()
        if opened is None:
            return False
        try:
            self._read(opened, until)
        except _ChangedError:
            self.close()
        except SourceError as error:
            # What was read and not stored comes again.
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
            # Only now: whoever had the log before has stored all that it will.
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
        """Whether another reader has the log: who may not open a replication connection can wait for that one."""
        return self.writing.look(
            "looking for the log's reader", lambda connection, _: self.log.is_read(connection, place)
        )

    def _refuse_lost(self) -> LogPlace | None:
        """The place. Raises: LostRecordsError."""

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

    # ── what is kept ──

    def _store(self, opened: _Opened) -> bool:
        """Marks and position in one transaction, then the confirmation: a crash between the two repeats marks.

        False where a transaction of theirs is not visible yet: who reads its rows now finds them as they were before.
        """
        marks, passed = opened.marks, opened.passed

        def work(connection: Connection, ddl: Ddl) -> bool | None:
            # In this order: what is visible now every reading sees that a mark of ours leads to.
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
        """Also of a log that goes on: a server may leave out, without an error, what is no longer published."""
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


# ── Marks of a source whose log is captured: what triggers would leave there, a reader copies before marks are taken ──

COPY_S = 0.5
"""The log is copied this often at least while it is captured and marks wait: a slot keeps the server's log."""
UNCAPTURED_LOOK_S = 5.0
"""How often a process whose source's log is not captured looks whether it is by now."""
UNSEEN_S = 30.0
"""A log that was not copied for so long counts as a mark that waits."""
EXACT_S = 10.0
"""So long an exact count waits for the reader; then the log counts as a mark that waits."""
_PAUSE_S = 0.1


class LogMarks(SqlMarks):
    """SqlMarks of a source with a log. Where that is captured it is copied before marks are taken, and to its end before
    anything counts on there being none; where triggers leave the marks it is SqlMarks.

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
        """Raises: LostRecordsError where the log misses changes, and as SqlMarks' does."""
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
            place = self.reader.log.place(connection, ddl)
            if place is None:
                return None
            now = float(connection.exec_driver_sql(f"SELECT {ddl.now}").scalar_one())
            return self.reader.log.lag(connection, place, now)

        return self.writing.look("looking how far the log is copied", work)

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
            self.writing.write(
                "trying to copy the log",
                lambda connection, ddl: connection.exec_driver_sql(self.reader.log.trial(ddl)),
            )

    def _drains_within(self, limit_s: float) -> bool:
        begun_at = self._clock()
        until = None if self.reader.place() is None else self.reader.ask()
        while until is not None and not self._has_passed(until):
            # Another thread that copies needs the time as well as another process.
            if not self._copy(until):
                self._wait(_PAUSE_S)
            if self._clock() - begun_at > limit_s:
                return False
        self._drained_at = begun_at
        return True

    def leave(self) -> None:
        """Another reader may have the log."""
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
        """Whether this thread has copied: none does where another one is at it."""
        if not self._copying.acquire(blocking=False):
            return False
        try:
            is_reader = self.reader.turn(until)
            self._copy_at = self._clock() + (COPY_S if self.reader.is_on else UNCAPTURED_LOOK_S)
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
