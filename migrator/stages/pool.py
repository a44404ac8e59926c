"""Work done side by side with a bounded number of pieces under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import Event
from typing import TypeVar

from migrator.errors import Interrupted

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
