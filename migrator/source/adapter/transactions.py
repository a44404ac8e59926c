"""State of a service's transactions: what each has changed, from the first change to the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection

from migrator.mapping.model.live import Change
from migrator.runtime.errors import UnmarkedError
from migrator.source.adapter.changes import Changed
from migrator.source.adapter.driver import Driver


@dataclass
class TransactionState:
    """What one transaction changed. `begun_at`: when its first change began, in the clock's seconds.

    `changed`: changes kept for writing items at the commit; empty where none are written. `failed_in`: how many savepoints
    were open when the mark of a change could not be left; None where every change has its mark.
    """

    begun_at: float
    changed: list[Changed] = field(default_factory=list)
    failed_in: int | None = None


class Watcher(Protocol):
    """Callbacks for what a service does, which stop it by raising. `reads`: whether changed rows must be read."""

    @property
    def reads(self) -> bool: ...

    def begins(self, driver: Driver) -> None:
        """Called before a statement that changes a watched table."""

    def leaves_marks(self, changed: Changed) -> bool:
        """Whether the adapter leaves the mark; False where a trigger does."""

    @property
    def leaves_any(self) -> bool:
        """Whether the adapter leaves the marks of at least one table."""

    def commits(self, connection: Connection, work: TransactionState) -> None:
        """Called before the commit of a transaction that wrote; `work` holds its changes where they are kept."""

    def prepares(self, work: TransactionState) -> None:
        """Called before the first phase of a two-phase commit."""


class TransactionStates:
    """The state of each connection's open transaction. Its methods are listeners of SQLAlchemy's events."""

    def __init__(self, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._watcher = watcher
        self._clock = clock
        self._works: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._committed: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._savepoints: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    def begin(self, connection: Connection) -> TransactionState:
        """The transaction's state, which may exist already."""
        return self._works.setdefault(connection, TransactionState(self._clock()))

    def add(self, connection: Connection, changed: Sequence[Changed]) -> None:
        self.begin(connection).changed += changed

    def fail(self, connection: Connection) -> None:
        """Records that a change has no mark, so that the transaction must not be committed."""
        self.begin(connection).failed_in = self._savepoints.get(connection, 0)

    def committed(self, connection: Connection) -> list[Changed]:
        """The changes of the connection's last transaction, returned once; empty where it did not commit."""
        work = self._committed.pop(connection, None)
        return [] if work is None else work.changed

    # ── events ──

    def commits(self, connection: Connection, *_: object) -> None:
        work = self._works.pop(connection, None)
        self._savepoints.pop(connection, None)
        if work is None:
            return
        try:
            _refuse_failed(work)
            self._watcher.commits(connection, work)
        except BaseException:
            _roll_back(connection)
            raise
        if work.changed:
            self._committed[connection] = work

    def commits_twophase(self, connection: Connection, _: object, is_prepared: bool) -> None:
        """A prepared transaction was checked before, and its commit was promised."""
        if not is_prepared:
            self.commits(connection)
            return
        work = self._works.pop(connection, None)
        self._savepoints.pop(connection, None)
        if work is not None and work.changed:
            self._committed[connection] = work

    def prepares(self, connection: Connection, _: object) -> None:
        if (work := self._works.get(connection)) is None:
            return
        try:
            _refuse_failed(work)
            self._watcher.prepares(work)
        except BaseException:
            self.ended(connection)
            _roll_back(connection)
            raise

    def saves(self, connection: Connection, _: object) -> None:
        self._savepoints[connection] = self._savepoints.get(connection, 0) + 1

    def goes_back(self, connection: Connection, *_: object) -> None:
        """A rollback to the last savepoint: what failed after it is undone."""
        work = self._works.get(connection)
        if work is not None and work.failed_in is not None and work.failed_in > self._left(connection):
            work.failed_in = None

    def goes_on(self, connection: Connection, *_: object) -> None:
        """The last savepoint is released: what failed after it now counts for the level around it."""
        left, work = self._left(connection), self._works.get(connection)
        if work is not None and work.failed_in is not None:
            work.failed_in = min(work.failed_in, left)

    def _left(self, connection: Connection) -> int:
        """How many savepoints stay open after the last one ends."""
        left = max(0, self._savepoints.get(connection, 0) - 1)
        self._savepoints[connection] = left
        return left

    def ended(self, connection: Connection, *_: object) -> None:
        self._works.pop(connection, None)
        self._committed.pop(connection, None)
        self._savepoints.pop(connection, None)


def _refuse_failed(work: TransactionState) -> None:
    """Raises: UnmarkedError where a change of the transaction has no mark."""
    if work.failed_in is not None:
        what = "dual write: a change of this transaction could not be marked, so nothing of it is committed"
        raise UnmarkedError(f"{what}; it is rolled back, run it again")


def _roll_back(connection: Connection) -> None:
    """Rolls back in the database: SQLAlchemy takes a transaction whose commit failed as ended, and leaves it open there."""
    with suppress(Exception):
        connection.dialect.do_rollback(connection.connection)


def changes(changed: Sequence[Changed]) -> list[Change]:
    return [Change(change.table.name, change.before, change.after) for change in changed]
