"""State of a service's transactions: what each has changed, from the first change to the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from sqlalchemy.engine import Connection

from migrator.model.errors import UnmarkedError
from migrator.model.live import Change
from migrator.source.adapter.changes import Changed
from migrator.source.adapter.driver import Driver


@dataclass
class TransactionState:
    """What one transaction changed. `begun_at`: when its first change began, in the clock's seconds.

    `changed`: what whoever writes items needs to know; empty where nobody does. `failed_in`: how many savepoints were
    open when the mark of a change could not be left; None where every change has its mark.
    """

    begun_at: float
    changed: list[Changed] = field(default_factory=list)
    failed_in: int | None = None


class Watcher(Protocol):
    """Who is told what a service does, and may stop it by raising. `reads`: whether what changes is to be known."""

    @property
    def reads(self) -> bool: ...

    def begins(self, driver: Driver) -> None:
        """Before a statement that changes a watched table."""

    def leaves_marks(self, changed: Changed) -> bool:
        """Whether the adapter is to leave the mark; False where a trigger does."""

    @property
    def leaves_any(self) -> bool:
        """Whether the marks of any table are the adapter's to leave."""

    def commits(self, connection: Connection, work: TransactionState) -> None:
        """Before the commit of a transaction that wrote; its work holds what changed where anybody wants to know."""

    def prepares(self, work: TransactionState) -> None:
        """Before the first phase of a commit of two."""


class TransactionStates:
    """By connection, the work of its open transaction. Its methods are listeners of SQLAlchemy's events."""

    def __init__(self, watcher: Watcher, clock: Callable[[], float]) -> None:
        self._watcher = watcher
        self._clock = clock
        self._works: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._committed: WeakKeyDictionary[Connection, TransactionState] = WeakKeyDictionary()
        self._savepoints: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()

    def begin(self, connection: Connection) -> TransactionState:
        """The transaction's work, which may have begun before."""
        return self._works.setdefault(connection, TransactionState(self._clock()))

    def add(self, connection: Connection, changed: Sequence[Changed]) -> None:
        self.begin(connection).changed += changed

    def fail(self, connection: Connection) -> None:
        """A change is done and has no mark: the transaction must not be committed."""
        self.begin(connection).failed_in = self._savepoints.get(connection, 0)

    def committed(self, connection: Connection) -> list[Changed]:
        """What the connection's last transaction changed, told once; nothing where it did not commit."""
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
        """What is prepared was looked at then, and its commit was promised."""
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
        """To the last savepoint: what failed after it is undone."""
        work = self._works.get(connection)
        if work is not None and work.failed_in is not None and work.failed_in > self._left(connection):
            work.failed_in = None

    def goes_on(self, connection: Connection, *_: object) -> None:
        """The last savepoint is given up: what failed after it did so in what is around it."""
        left, work = self._left(connection), self._works.get(connection)
        if work is not None and work.failed_in is not None:
            work.failed_in = min(work.failed_in, left)

    def _left(self, connection: Connection) -> int:
        """How many savepoints are open without the last one."""
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
    """SQLAlchemy takes a transaction for ended whose commit failed, and would leave it open in the database."""
    with suppress(Exception):
        connection.dialect.do_rollback(connection.connection)


def changes(changed: Sequence[Changed]) -> list[Change]:
    return [Change(one.table.name, one.before, one.after) for one in changed]
