"""Work in parallel: pages by processes and threads, and the walk over a table's segments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from threading import Event
from types import TracebackType
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import ItemStore, ScanPage
from migrator.mapping.model.journal import Page, Run, SegmentState, Tally
from migrator.mapping.model.table import Item, ItemKey
from migrator.runtime.errors import Interrupted, MigratorError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.system import Ticker

# ── Parallel work with a limited number of pieces under way ──

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Counted = TypeVar("Counted")


def in_parallel(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int, stop: Event
) -> Iterator[Result]:
    """Yield results in the order of completion, with at most `workers` pieces running.

    The first failure, or `stop`, ends it after the running pieces. Raises: that failure; Interrupted.
    """
    waiting = iter(pieces)
    with ThreadPoolExecutor(workers) as executor:
        running: set[Future[Result]] = {executor.submit(work, piece) for piece in islice(waiting, workers)}
        while running:
            done, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
            if not stop.is_set():
                running |= {executor.submit(work, piece) for piece in islice(waiting, len(done))}
    if stop.is_set():
        raise Interrupted("stopped; the checkpoint is kept, and the same command resumes")


# ── Pages of a run, which the processes at work on it claim ──

LEASE_S = 60.0
"""After so long without a sign of its process, a page is claimed by another one."""
_BEATS = 4
_GOODBYE_S = 5.0
_log = get_logger("pages")


Worked: TypeAlias = tuple[Page, Tally, int]
"""A page, its result, and its duration in ms."""
PageCall: TypeAlias = Callable[[Page], Worked]
"""Works on one page and checkpoints it; called from many threads."""


class RunPages(Protocol):
    """Works on the pages of a run, in this process or in a cluster. A context manager."""

    def __enter__(self) -> RunPages: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def each(
        self, name: str, work: PageCall, at_once: int, ahead: int, rest: Callable[[], None]
    ) -> Iterator[Worked]:
        """Yield results of the open pages this process claims.

        `at_once`: pages in progress per process.
        `ahead`: pages claimed at once by a process.
        `rest`: called while it waits for others.
        Raises: the first failure; Interrupted after `stop`.
        """

    def rounds(self, rest: Callable[[], None]) -> Iterator[None]:
        """Yield until no other process holds a page; a round takes the pages the last one left."""


OpenPages: TypeAlias = Callable[[SqlJournal, Run, str, Event], RunPages]
"""Opens the pages of a run, under the unique name of the process, until the event is set."""


class PageClaims:
    """RunPages of this process. A thread renews its claims; they are released at the end."""

    def __init__(self, journal: SqlJournal, run: Run, who: str, stop: Event) -> None:
        self.journal = journal
        self.run = run
        self.who = who
        self.stop = stop
        self._ticker = Ticker(
            "pages", self._renew, noting(_log, "pages_not_renewed"), lambda: LEASE_S / _BEATS
        )

    def __enter__(self) -> PageClaims:
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        # What ended the work must not be hidden by a journal that is away; the claims run out by themselves.
        with suppress(MigratorError):
            self.journal.release_pages(self.run, self.who)

    def each(
        self, name: str, work: PageCall, at_once: int, ahead: int, rest: Callable[[], None]
    ) -> Iterator[Worked]:
        return in_parallel(work, self.pages(name, ahead), at_once, self.stop)

    def pages(self, entity: str, ahead: int) -> Iterator[Page]:
        """Claim and yield the entity's open pages by number, then earlier ones whose claims have expired."""
        after, found = 0, False
        while True:
            pages = self.journal.claim_pages(self.run, entity, self.who, ahead, LEASE_S, after)
            if not pages and not found:
                return
            yield from pages
            after, found = (pages[-1].number, True) if pages else (0, False)

    def claimed(self, name: str, first: int, last: int) -> list[Page]:
        n = last - first + 1
        return self.journal.claim_pages(self.run, name, self.who, n, LEASE_S, first - 1, last)

    def rounds(self, rest: Callable[[], None]) -> Iterator[None]:
        while True:
            others_before = self.others_work()
            yield
            if not (others_before or self.others_work()):
                return
            rest()

    def others_work(self) -> bool:
        """Whether other processes hold pages. Claims of a killed process expire."""
        return bool(self.journal.claimed_by_others(self.run, self.who))

    def _renew(self) -> None:
        self.journal.renew_pages(self.run, self.who, LEASE_S)


# ── A walk over the whole table, several segments in parallel: used by verify, undo, strip and forget ──


class TableWalk(Struct, frozen=True):
    """Scans `workers` of the `segments` at once. `stopped`: the message where `stop` ends the walk between two pages."""

    store: ItemStore
    segments: int
    workers: int
    stop: Event
    stopped: str

    def each(self, work: Callable[[int], Result]) -> Iterator[Result]:
        """Yield the results of `work` for each segment's number, as they complete. Raises: as in_parallel."""
        yield from in_parallel(work, range(self.segments), self.workers, self.stop)

    def pages(self, number: int, start: ItemKey | None = None) -> Iterator[ScanPage[Item]]:
        """Yield the pages of one segment after `start`. Raises: Interrupted after `stop`, before the next page."""
        for page in self.store.scan(number, self.segments, start):
            if self.stop.is_set():
                raise Interrupted(self.stopped)
            yield page

    def total(self, work: Callable[[list[Item]], Counter[Counted]]) -> Counter[Counted]:
        def segment(number: int) -> Counter[Counted]:
            return sum((work(page.items) for page in self.pages(number)), Counter())

        return sum(self.each(segment), Counter())

    def resumed(
        self, journal: SqlJournal, run: Run, work: Callable[[list[Item]], Counter[str]]
    ) -> Counter[str]:
        """Sum for a resumable run, which continues after each segment's last recorded page."""

        def segment(number: int) -> Counter[str]:
            state = journal.segment(run, number)
            counted = Counter(state.tally)
            for page in () if state.done else self.pages(number, state.start):
                counted += work(page.items)
                # After the work: a crash between them repeats a page, with nothing left to do.
                done = SegmentState(page.next_start, page.next_start is None, dict(counted))
                journal.save_segment(run, number, done, [])
            return counted

        return sum(self.each(segment), Counter())
