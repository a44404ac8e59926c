"""The whole table, read segment by segment, several at once: what verify, undo, strip and forget walk over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from migrator.errors import Interrupted
from migrator.model import ItemKey
from migrator.ports import ItemStore, ScanPage
from migrator.stages.pool import in_parallel

Result = TypeVar("Result")


@dataclass(frozen=True)
class TableWalk:
    """`workers` of its `segments` are under way at once. `stopped`: what is said where `stop` ends it between two pages."""

    store: ItemStore
    segments: int
    workers: int
    stop: Event
    stopped: str

    def each(self, work: Callable[[int], Result]) -> Iterator[Result]:
        """What `work` gives for the number of each segment, in the order of completion.

        Raises: the first failure, when what is under way has ended; Interrupted after `stop`.
        """
        yield from in_parallel(work, range(self.segments), self.workers, self.stop)

    def pages(self, number: int, start: ItemKey | None = None) -> Iterator[ScanPage]:
        """The pages of one segment, from behind `start`. Raises: Interrupted after `stop`, with a page that is not given."""
        for page in self.store.scan(number, self.segments, start):
            if self.stop.is_set():
                raise Interrupted(self.stopped)
            yield page
