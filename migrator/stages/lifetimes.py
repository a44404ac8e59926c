"""How long things may last, and what follows from it: fast runs that must have ended, tombstones that nobody needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrator.errors import OldRevisionError, StoppedError
from migrator.model import TOMBSTONE, Item, TableDesign
from migrator.ports.live import ConditionalStore, Writer, Writers
from migrator.ports.revisions import Revisions
from migrator.stages.refresh import TOMBSTONE_DAYS

_LOOK_S = 1.0
_BEATS_A_SILENCE = 6


@dataclass(frozen=True)
class Lifetimes:
    """`request_s`: what one request may last, from its signature to its effect. `silent_s`: a writer that has not
    renewed its heartbeat for so long sends nothing more."""

    request_s: float = 60.0
    silent_s: float = 30.0

    @property
    def beat_s(self) -> float:
        """How often a heartbeat is renewed, so that some may fail."""
        return self.silent_s / _BEATS_A_SILENCE

    @property
    def doubted_s(self) -> float:
        """After so long without a heartbeat a writer has failed twice to renew it, or is not there any more."""
        return 3 * self.beat_s

    @property
    def gone_s(self) -> float:
        """After so long without a heartbeat, nothing of a writer can take effect any more."""
        return self.silent_s + self.request_s

    @property
    def late_s(self) -> float:
        """After so long without a heartbeat, nothing that was signed before a process was frozen is taken any more.

        With the default of 600 s: AWS takes a signature for five minutes, by a clock that may be five minutes ahead.
        """
        return max(self.gone_s, self.ripe_s)

    @property
    def ripe_s(self) -> float:
        """The age at which a tombstone may go, if nobody is older."""
        return 10 * self.request_s


@dataclass
class Presence:
    """One writer's place in the journal. `check` stands before each request: who lost his place sends nothing."""

    writers: Writers
    revisions: Revisions
    writer: Writer
    lifetimes: Lifetimes
    clock: Callable[[], float]
    seen_at: float = 0.0
    is_old: bool = False

    def __post_init__(self) -> None:
        self.seen_at = self.clock()

    def beat(self, *, begins: bool = False) -> None:
        """Renews the heartbeat, unless another revision is the newest: who waits for this writer need not wait for ever.

        `begins`: what is read from now on is newer than now.
        """
        now = self.clock()
        self.is_old = self.is_old or self.revisions.is_old()
        if self.is_old:
            return
        self.writer = self.writers.beat(self.writer, begins=begins)
        # The time before the call: the heartbeat may be as old as that.
        self.seen_at = now

    def now_s(self) -> float:
        """The journal's time, as of the last heartbeat and what passed since; rather too late than too early."""
        return self.writer.alive_at + self.clock() - self.seen_at

    def check(self) -> None:
        """Raises: OldRevisionError when a newer revision was registered; StoppedError when the writer was fenced, or has
        been silent for too long."""
        if self.is_old:
            raise OldRevisionError(
                "while this writer was at work the job has gone on to another mapping (or to other columns): what it"
                " holds is not written, its marks wait; start it again with the job's new mapping file"
            )
        if self.writer.fenced:
            raise StoppedError(
                "this run was told to stop (a relay has started), or was taken for dead; run the same command again"
            )
        if self.clock() - self.seen_at >= self.lifetimes.silent_s:
            raise StoppedError(
                "the journal could not be told that this run is alive; run the same command again"
            )


def fence_off(writers: Writers, lifetimes: Lifetimes, wait: Callable[[float], None]) -> None:
    """Comes back when no fast run is writing, and none can begin: from then on every write has its condition."""
    writers.fence()
    while any(one.kind == "fast" for one in writers.living(lifetimes.gone_s)):
        wait(_LOOK_S)


def outlive(
    writers: Writers, revisions: Revisions, lifetimes: Lifetimes, wait: Callable[[float], None]
) -> None:
    """Comes back when nobody writes by another revision than the newest: whatever is written after that stays."""
    while revisions.old(writers.living(lifetimes.gone_s)):
        wait(_LOOK_S)


@dataclass(frozen=True)
class Purge:
    """Removes tombstones that nobody's put can come under any more (rule 6).

    `check` is called before each removal and raises when nothing more must be removed.
    """

    store: ConditionalStore
    writers: Writers
    design: TableDesign
    lifetimes: Lifetimes
    check: Callable[[], None]
    dry_run: bool = False

    def run(self, pages: Iterable[list[Item]], now_s: float) -> Iterator[int]:
        """How many tombstones went, page by page of a scan that begins with the first one."""
        begun = [one.since for one in self.writers.living(self.lifetimes.late_s)]
        # A tombstone holds whole seconds: one of the second in which a writer began may be younger than he is.
        before_s = math.floor(min([now_s - self.lifetimes.ripe_s, *begun]))
        for page in pages:
            ripe = [item for item in page if _is_ripe(item, self.design, before_s)]
            yield len(ripe) if self.dry_run or not ripe else self._remove(ripe)

    def _remove(self, ripe: Sequence[Item]) -> int:
        self.check()
        return self.store.remove_dead(ripe)


def _is_ripe(item: Item, design: TableDesign, before_s: float) -> bool:
    expiry = item.get(design.ttl or "")
    if item.get(design.type_attribute) != TOMBSTONE or not isinstance(expiry, int):
        return False
    # It holds whole seconds: one of the second in which a writer began may be younger than he is.
    return expiry - TOMBSTONE_DAYS * 86_400 + 1 <= before_s
