"""Writing within a service: strict mode (items before the commit), flush (items right after it), and their refusals."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from migrator.mapping.model.edges import RootFinder
from migrator.mapping.model.instances import Lifetimes, Revisions, Standing
from migrator.mapping.model.live import (
    Change,
    Mark,
    Root,
    WriterKind,
    Writers,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import (
    AwayError,
    MigratorError,
    OldRevisionError,
    SettingsError,
    StoppedError,
    amount,
)
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import ending_at
from migrator.stages.live.relay import Relay
from migrator.stages.live.writers import SharedLeases, fence_off, outlive

Mode: TypeAlias = Literal["outbox", "strict"]
WRITER_KINDS: dict[Mode, WriterKind] = {"outbox": "relay", "strict": "strict"}
"""Kinds of writers in services that write items."""

_log = get_logger("dual_write")

# ── Requirements of a service for its start and its continued work ──


def refuse_new_revision(standing: Standing) -> None:
    """Raises: SettingsError if no relay has used this service's mapping yet, or read the same columns."""
    if standing == "new":
        what = "dual write: this service's mapping (or a column that it reads) is not the one that the relay works by"
        raise SettingsError(
            f"{what}; give both the same job and mapping file, and restart the relay before the services"
        )


def refuse_partial_marks(unmarked: Sequence[str] | None) -> None:
    """`unmarked`: columns that the job's newest mapping marks and this service does not; None: unknown.

    Raises: SettingsError if the relay could miss a change or a key of this service's writes.
    """
    if unmarked is None or unmarked:
        which = f" ({', '.join(unmarked)})" if unmarked else ""
        what = "dual write: the job now uses another mapping, with more columns in each change than this service captures"
        raise SettingsError(f"{what}{which}; start it again with the job's new mapping file")


def refuse_marks_alone(mode: Mode, *, flush: bool) -> None:
    """Raises: SettingsError if the old side is DynamoDB tables and the service is to write no items."""
    if mode != "strict" and not flush:
        what = "dual_write: streams capture the changes of old tables; mode 'outbox' needs no dual_write"
        raise SettingsError(
            f"{what}; mode='strict' makes the items of each write before its call returns, flush=True tries to"
        )


def refuse_strict(mode: Mode, *, is_file: bool, max_connections: int | None, sessions: int) -> None:
    """Raises: SettingsError if strict mode does not fit the source.

    `is_file`: the source is SQLite.
    `sessions`: maximum of concurrent commits.
    """
    if mode != "strict":
        return
    if is_file:
        what = "strict mode is not for SQLite: it has one writer, and a pre-mark cannot commit during an open transaction"
        raise SettingsError(f"dual write: {what}; use outbox mode")
    if max_connections is not None and max_connections <= sessions:
        need = (
            f"strict mode needs one more connection for each of up to {amount(sessions, 'session')} at once"
        )
        what = f"{need} and one of its own, and source.max_connections is {max_connections}"
        raise SettingsError(f"dual write: {what}; raise it, or use outbox mode")


def begin_when_alone(
    writers: Writers, revisions: Revisions, lifetimes: Lifetimes, wait: Callable[[float], None]
) -> None:
    """Return when the service may write: no fast run and no writer of another mapping is active.

    An older mapping's writer does not wait for the latter, since it writes nothing.
    """
    fence_off(writers, lifetimes, wait)
    if not revisions.is_old():
        outlive(writers, revisions, lifetimes, wait)


REST_S = 10.0
"""So long nothing is tried after a failure: a table that does not answer would cost each commit its longest wait."""


@dataclass
class Rest:
    """A pause after a failure, or after the journal reported a newer mapping: it is not read at each commit."""

    clock: Callable[[], float] = time.monotonic
    _ends_at: float = float("-inf")
    _said: bool = False

    @property
    def is_on(self) -> bool:
        return self.clock() < self._ends_at

    def begin(self) -> None:
        self._ends_at = self.clock() + REST_S

    def leave_to_the_relay(self, error: OldRevisionError) -> None:
        """Log once that another mapping is the newest: this service leaves marks and writes no items."""
        self.begin()
        if not self._said:
            self._said = True
            _log.warning("left_to_the_relay", reason=str(error))


# ── Strict mode: a service's items are written before its transaction commits, or the transaction fails ──

RelayOf = Callable[[RootFinder, Callable[[], None]], Relay]
"""A relay that reads with the finder, and asks the check before every write."""


class Strict(Struct, frozen=True):
    """Strict mode of docs/protocol.md; DESIGN §6, "Fail closed".

    `pre_mark`: marks of changes that are about to be committed, kept outside of their transaction.
    `check`: raises when this writer must stop sending.
    `longest_s`: limit from a transaction's first change to its last item write.
    """

    pre_mark: Callable[[Sequence[Change], float], list[Mark]]
    relay_of: RelayOf
    lifetimes: Lifetimes
    clock: Callable[[], float]
    check: Callable[[], None]
    longest_s: float

    def write_first(self, changes: Sequence[Change], rows: RootFinder, begun_at: float) -> None:
        """Write the items of the changed roots, as `rows` shows them inside the transaction.

        The changes are pre-marked first: whether or not the transaction commits, a relay reads the rows again
        once none of these writes can take effect.
        Raises: StoppedError, or the error of an edge that gave up: the caller must roll back.
        """
        left_s = begun_at + self.longest_s - self.clock()
        what = f"dual write: the transaction has lasted longer than {self.longest_s:g} s"
        why = f"{what}; roll it back, and raise longest_transaction_s where it may"

        def check() -> None:
            """Raises if the pre-marks may be ripe already."""
            self.check()
            if self.clock() >= begun_at + self.longest_s:
                raise StoppedError(why)

        check()
        with ending_at(time.monotonic() + left_s, why):
            marks = self.pre_mark(changes, left_s + 2 * self.lifetimes.request_s)
            relay = self.relay_of(rows, check)
            relay.refresh(reached(relay, marks))


class Session(Protocol):
    def get_isolation_level(self) -> str: ...


@dataclass(frozen=True)
class BeforeCommit:
    """`inside`: the source as the connection's transaction sees it.
    `aside`: runs blocking work, in a thread if an event loop must not wait.
    `longest_write_s`: how long it may hold the transaction's row locks.
    """

    strict: Strict
    shared_leases: SharedLeases
    inside: Callable[[Any], AbstractContextManager[RootFinder]]
    aside: Callable[[Callable[[], Any]], Any]
    left: Rest
    longest_write_s: float = 2.0
    rest: Rest = field(default_factory=Rest)

    def __call__(self, connection: Session, changes: Sequence[Change], begun_at: float) -> None:
        """Raises: as Strict.write_first; SettingsError if the transaction does not read what others committed.

        If another mapping is the newest, nothing is written: the marks commit with the change, and a relay of
        that mapping makes the items.
        """
        if self.left.is_on:
            return
        if self.rest.is_on:
            what = (
                f"dual write: DynamoDB did not answer a commit before this one, within the last {REST_S:g} s"
            )
            raise StoppedError(f"{what}; roll the transaction back, and try it later")
        level = connection.get_isolation_level()
        if level != "READ COMMITTED":
            what = f"dual write: strict mode reads what others committed, and this transaction is {level}"
            raise SettingsError(f'{what}; write create_engine(…, isolation_level="READ COMMITTED")')
        started = time.monotonic()
        try:
            self._write(connection, changes, begun_at)
        except OldRevisionError as error:
            self.left.leave_to_the_relay(error)
        except StoppedError as error:
            # A write that took all of its time holds the next one's row locks just as long.
            took_s = time.monotonic() - started
            if isinstance(error, AwayError) or took_s >= self.longest_write_s:
                self.rest.begin()
            raise

    def _write(self, connection: Session, changes: Sequence[Change], begun_at: float) -> None:
        late = f"dual write: the items were not written within {self.longest_write_s:g} s; roll the transaction back"
        # A new lease also sends requests to journal and table.
        with ending_at(time.monotonic() + self.longest_write_s, late):
            slot = self.aside(self.shared_leases.enter)
            try:
                with self.inside(connection) as rows:
                    self.strict.write_first(changes, rows, begun_at)
            except BaseException as error:
                self.aside(partial(self.shared_leases.fail, slot, error))
                raise
            self.aside(partial(self.shared_leases.leave, slot))


def reached(relay: Relay, marks: Sequence[Mark]) -> dict[Root, set[ItemKey]]:
    root_keys: dict[Root, set[ItemKey]] = defaultdict(set)
    for mark in marks:
        for root, keys in relay.reach(mark).items():
            root_keys[root] |= keys
    return root_keys


# ── Flush: a service makes the items of its own changes at once, so that it reads its own writes ──

LONGEST_S = 5.0
"""After that it is left to the relay."""
_LATE = f"it took longer than {LONGEST_S:g} s"


@dataclass(frozen=True)
class Flush:
    """Best effort: the marks stay, so a relay writes the rest.

    `shown`: marks of the changes, not stored; with images as from Marks.take.
    """

    shown: Callable[[Sequence[Change]], list[Mark]]
    relay: Callable[[], Relay]
    shared_leases: SharedLeases
    left: Rest
    rest: Rest = field(default_factory=Rest)

    def __call__(self, changes: Sequence[Change]) -> bool:
        """Return whether the commit's items are written. Never raises: the service has committed."""
        if self.left.is_on or self.rest.is_on:
            return False
        try:
            why = self._why_not(changes)
        except OldRevisionError as error:
            self.left.leave_to_the_relay(error)
            return False
        if why:
            self.rest.begin()
            _log.warning("flush_left_to_the_relay", reason=why, rests_s=REST_S)
        return not why

    def by(self, mode: Mode) -> Callable[[Sequence[Change]], object]:
        return self.or_raise if mode == "strict" else self

    def or_raise(self, changes: Sequence[Change]) -> None:
        """Like __call__, for an old side without transactions, which already has the change.

        Raises: StoppedError if the items are not written. Under another mapping, a relay makes them.
        """
        try:
            why = "" if self.left.is_on else self._why_not(changes)
        except OldRevisionError as error:
            self.left.leave_to_the_relay(error)
            return
        if why:
            what = "dual write: the old table has this change, and the new one does not have it yet"
            raise StoppedError(f"{what}: {why}; a relay brings it, and the same call may be sent again")

    def _why_not(self, changes: Sequence[Change]) -> str:
        try:
            with ending_at(time.monotonic() + LONGEST_S, _LATE), self.shared_leases.turn():
                relay = self.relay()
                relay.refresh(reached(relay, self.shown(changes)))
        except OldRevisionError:
            raise
        except MigratorError as error:
            return str(error) or type(error).__name__
        except Exception as error:
            # Any error is reported, not raised: the change is committed, and a caller that got an error would
            # repeat it.
            return type(error).__name__
        return ""
