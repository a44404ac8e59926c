"""Work in parallel: pages by threads, and the walk over a table's segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import TypeVar

from migrator.model.edges import ItemStore, ScanPage
from migrator.model.errors import Interrupted
from migrator.model.table import ItemKey

# ── Parallel work with a limited number of pieces under way ──

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Piece], Result], pieces: Iterable[Piece], workers: int, stop: Event
) -> Iterator[Result]:
    """Results in the order of completion; never more than `workers` pieces are under way.

    The first failure, or `stop`, ends it: what is under way finishes, nothing new begins.
    Raises: that failure; Interrupted after `stop`.
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
        raise Interrupted("stopped; the checkpoint is kept, and the same command goes on from there")


# ── A walk over the whole table, several segments in parallel: used by verify, undo, strip and forget ──


@dataclass(frozen=True)
class TableWalk:
    """Scans `workers` of the `segments` at once. `stopped`: the message where `stop` ends the walk between two pages."""

    store: ItemStore
    segments: int
    workers: int
    stop: Event
    stopped: str

    def each(self, work: Callable[[int], Result]) -> Iterator[Result]:
        """The results of `work` for the number of each segment, in the order of completion.

        Raises: the first failure, when what is under way has ended; Interrupted after `stop`.
        """
        yield from in_parallel(work, range(self.segments), self.workers, self.stop)

    def pages(self, number: int, start: ItemKey | None = None) -> Iterator[ScanPage]:
        """The pages of one segment, from behind `start`. Raises: Interrupted after `stop`, with a page that is not given."""
        for page in self.store.scan(number, self.segments, start):
            if self.stop.is_set():
                raise Interrupted(self.stopped)
            yield page
