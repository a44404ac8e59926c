"""Registered writers: heartbeats, shared writer leases, lifetimes of requests and tombstones, and purge."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock

from msgspec import Struct

from migrator.mapping.model.instances import Lifetimes, Revisions
from migrator.mapping.model.live import ConditionalStore, Writer, WriterKind, Writers
from migrator.mapping.model.table import TOMBSTONE, Item, TableDesign
from migrator.runtime.errors import MigratorError, OldRevisionError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.system import Forked, Ticker, tell_of_forks
from migrator.stages.live.refresh import TOMBSTONE_DAYS, RestoredError

# ──
# How long things may last, and what follows from it: fast runs that must have ended, tombstones that
# are no longer needed.

_LOOK_S = 1.0


@dataclass
class WriterLease:
    """One writer's registration in the journal. `check` runs before each request.

    `seen_at`: by `clock`, before the call that registered or last renewed it.
    """

    writers: Writers
    revisions: Revisions
    writer: Writer
    lifetimes: Lifetimes
    clock: Callable[[], float]
    seen_at: float
    is_old: bool = False

    def beat(self, *, begins: bool = False) -> None:
        """Renew the heartbeat, unless another revision is the newest, whose writers must not wait forever.

        `begins`: all later reads are newer than now.
        """
        now = self.clock()
        self.is_old = self.is_old or self.revisions.is_old()
        if self.is_old:
            return
        self.writer = self.writers.beat(self.writer, begins=begins)
        self.seen_at = now

    def now_s(self) -> float:
        """The journal's time, extrapolated from the last heartbeat; never too early."""
        return self.writer.alive_at + self.clock() - self.seen_at

    def check(self) -> None:
        """Raises: OldRevisionError if a newer revision is registered; StoppedError if fenced, or silent too long."""
        if self.is_old:
            raise OldRevisionError(
                "while this writer was running, the job switched to another mapping (or to other columns): what it"
                " holds is not written, its changes stay pending; start it again with the job's new mapping file"
            )
        if self.writer.fenced:
            raise StoppedError(
                "this run was told to stop (a relay has started), or was taken for dead; run the same command again"
            )
        if self.clock() - self.seen_at >= self.lifetimes.silent_s:
            raise StoppedError(
                "the journal could not be told that this run is alive; run the same command again"
            )


def both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def check() -> None:
        first()
        second()

    return check


def fence_off(writers: Writers, lifetimes: Lifetimes, wait: Callable[[float], None]) -> None:
    """Return when no fast run writes or can begin: from then on every write is conditional."""
    writers.fence()
    while any(writer.kind == "fast" for writer in writers.living(lifetimes.gone_s)):
        wait(_LOOK_S)


def outlive(
    writers: Writers, revisions: Revisions, lifetimes: Lifetimes, wait: Callable[[float], None]
) -> None:
    """Return when no writer has an older revision: later writes then stay."""
    while revisions.old(writers.living(lifetimes.gone_s)):
        wait(_LOOK_S)


class Purge(Struct, frozen=True):
    """Removes tombstones that late puts no longer need (rule 6). `check`: called before each removal."""

    store: ConditionalStore
    writers: Writers
    design: TableDesign
    lifetimes: Lifetimes
    check: Callable[[], None]
    dry_run: bool = False

    def run(self, pages: Iterable[list[Item]], now_s: float) -> Iterator[int]:
        """Yield the tombstones removed per page. The scan must begin with the first page."""
        begun = [writer.since for writer in self.writers.living(self.lifetimes.late_s)]
        # A tombstone holds whole seconds: one of the second in which a writer began may be younger than that writer.
        before_s = math.floor(min([now_s - self.lifetimes.ripe_s, *begun]))
        for page in pages:
            ripe = [item for item in page if _is_ripe(item, self.design, before_s)]
            if ripe and not self.dry_run:
                self.check()
                yield self.store.remove_tombstones(ripe)
            else:
                yield len(ripe)


def _is_ripe(item: Item, design: TableDesign, before_s: float) -> bool:
    expiry = item.get(design.ttl or "")
    if item.get(design.type_attribute) != TOMBSTONE or not isinstance(expiry, int):
        return False
    if design.ticket_attribute not in item:
        return False  # changed by hand
    # It holds whole seconds: one of the second in which a writer began may be younger than that writer.
    return expiry - TOMBSTONE_DAYS * 86_400 + 1 <= before_s


# ── Heartbeats of this process's writers, sent by one thread while they work ──

_log = get_logger("writers")


class WriterHeartbeats(Forked):
    """A context manager: every lease taken inside is renewed until its end.

    `unanswered`: requests of unknown outcome, which may still take effect.
    """

    def __init__(
        self,
        writers: Writers,
        revisions: Revisions,
        lifetimes: Lifetimes,
        clock: Callable[[], float],
        unanswered: Callable[[], int],
    ) -> None:
        self.writers = writers
        self.revisions = revisions
        self.lifetimes = lifetimes
        self.clock = clock
        self.unanswered = unanswered
        self._left: WriterLease | None = None
        self._reset()
        tell_of_forks(self)

    def _reset(self) -> None:
        self._here: list[WriterLease] = []
        self._lock = Lock()
        self._ticker = Ticker(
            "heartbeat", self._renew, noting(_log, "heartbeat_not_given"), lambda: self.lifetimes.beat_s
        )

    def __enter__(self) -> WriterHeartbeats:
        self._ticker.start()
        return self

    def after_fork(self, *, in_child: bool) -> None:
        """Leases and their heartbeats stay with the parent; a child registers its own."""
        if in_child:
            began = self._ticker.runs
            self._reset()
            if began:
                self._ticker.start()

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(self.lifetimes.silent_s)

    def now_s(self) -> float:
        """Time by the clock of the writers' registrations, so that tombstones have their true age.

        By this machine's clock if no writer ever registered: it is then compared with nothing.
        """
        with self._lock:
            newest = self._here[-1] if self._here else self._left
        return time.time() if newest is None else newest.now_s()

    def enter(self, kind: WriterKind) -> WriterLease:
        """Raises: StoppedError if an undo is deleting; SettingsError if an undo would start while writers
        run; OldRevisionError if this process's revision is not the newest."""
        before = self.clock()
        writer = self.writers.enter(kind)
        try:
            # Checked after taking a place: of two that enter at once, at least one sees the other.
            refuse_concurrent(writer, self.writers.living(self.lifetimes.gone_s), self.lifetimes)
            self.revisions.enter(writer)
        except MigratorError:
            self.writers.leave(writer)
            raise
        writer_lease = WriterLease(self.writers, self.revisions, writer, self.lifetimes, self.clock, before)
        with self._lock:
            self._here.append(writer_lease)
        return writer_lease

    def check(self) -> None:
        """Raises: StoppedError if any lease here must stop sending, since threads share the client."""
        with self._lock:
            here = list(self._here)
        for writer_lease in here:
            writer_lease.check()

    def leave(self, writer_lease: WriterLease, *, clean: bool) -> None:
        """`clean`: the work ended normally. Otherwise the lease stays until none of its requests can take effect."""
        with self._lock:
            if writer_lease in self._here:
                self._here.remove(writer_lease)
                self._left = writer_lease
        if clean and not self.unanswered():
            self.writers.leave(writer_lease.writer)
            self.revisions.leave(writer_lease.writer)

    def _renew(self) -> None:
        with self._lock:
            here = list(self._here)
        for writer_lease in here:
            # The journal may come back in time; check() stops the writer when it does not.
            with suppress(MigratorError):
                writer_lease.beat()


def refuse_concurrent(entered: Writer, living: Sequence[Writer], lifetimes: Lifetimes) -> None:
    """Raises if one command deletes items that another writes: SettingsError for the first, StoppedError for
    the second."""
    if entered.kind == "undo":
        if named := ", ".join(
            sorted(f"a {_NAMED[writer.kind]}" for writer in living if writer.kind != "undo")
        ):
            advice = f"stop them, and wait {lifetimes.gone_s:g} s for those that were killed"
            raise SettingsError(
                f"clean --all-items deletes, and these write to the same table: {named}; {advice}"
            )
    elif any(writer.kind == "undo" for writer in living):
        raise StoppedError(
            "clean --all-items is deleting items of this table; run the same command again when it has ended"
            f" (one that was killed counts for {lifetimes.gone_s:g} s)"
        )


_NAMED: Mapping[WriterKind, str] = {
    "fast": "backfill",
    "conditional": "backfill",
    "relay": "relay",
    "strict": "strict service",
    "undo": "undo",
}


# ── Places among the writers for work that never ends: turn after turn, by many threads of one service ──

TURN_S = 60.0


@dataclass
class LeaseSlot:
    writer_lease: WriterLease
    begun_at: float
    turns: int = 0
    is_clean: bool = True


@dataclass(eq=False)
class SharedLeases(Forked):
    """A lease is left when it is `TURN_S` old and its last turn has ended, for purge to go on.

    `guard`: raises if source, journal and table no longer belong together; called before each lease.
    """

    heartbeats: WriterHeartbeats
    kind: WriterKind
    clock: Callable[[], float]
    guard: Callable[[], None]
    _current: LeaseSlot | None = None
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._current, self._lock = None, Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        slot = self.enter()
        try:
            yield
        except BaseException as error:
            self.fail(slot, error)
            raise
        self.leave(slot)

    def enter(self) -> LeaseSlot:
        """Enter a writer until the turn is left; the turn's reads are newer than the slot's lease.

        Raises: the journal's error if it is unreachable, or StoppedError if sending must stop.
        """
        slot = self._entered_slot()
        try:
            slot.writer_lease.check()
        except BaseException:
            self.leave(slot, clean=False)
            raise
        return slot

    def leave(self, slot: LeaseSlot, *, clean: bool = True) -> None:
        """`clean`: the turn ended normally, without pending requests."""
        with self._lock:
            slot.turns -= 1
            slot.is_clean &= clean
            is_last = slot is not self._current and not slot.turns
        if is_last:
            self._leave(slot)

    def fail(self, slot: LeaseSlot, error: BaseException) -> None:
        """Leave a turn that ended with an error. If the source went back, the next turn calls `guard` first."""
        self.leave(slot, clean=False)
        if isinstance(error, RestoredError):
            self.close()

    def close(self) -> None:
        with self._lock:
            slot, self._current = self._current, None
        if slot is not None and not slot.turns:
            self._leave(slot)

    def _entered_slot(self) -> LeaseSlot:
        left: LeaseSlot | None = None
        with self._lock:
            old = self._current
            slot = old if old is not None and self._is_fresh(old) else self._new()
            self._current = slot
            slot.turns += 1
            # A slot that still has turns is left with the last of them.
            if old is not None and old is not slot and not old.turns:
                left = old
        if left is not None:
            try:
                self._leave(left)
            except BaseException:
                # The caller has no turn that it could leave.
                self.leave(slot, clean=False)
                raise
        return slot

    def _is_fresh(self, slot: LeaseSlot) -> bool:
        return self.clock() - slot.begun_at < TURN_S and not slot.writer_lease.writer.fenced

    def _new(self) -> LeaseSlot:
        self.guard()
        return LeaseSlot(self.heartbeats.enter(self.kind), self.clock())

    def _leave(self, slot: LeaseSlot) -> None:
        self.heartbeats.leave(slot.writer_lease, clean=slot.is_clean)
