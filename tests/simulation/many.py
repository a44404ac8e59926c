"""Runs as many schedules as asked, on every core: python -m tests.simulation.many 200000 [first seed]."""

from __future__ import annotations

import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.actors import run

_CHUNK = 500


def diverging(first: int, count: int) -> list[tuple[int, str]]:
    """Seeds whose schedules do not end with the items that the rows make, each with a difference."""
    seeds = []
    # A schedule leaves nothing that counting references does not free; looking for garbage would take a tenth.
    gc.disable()
    for seed in range(first, first + count):
        try:
            differences = run(seed).differences()
        except Exception as error:  # whatever it is, its seed is what is wanted
            differences = [f"{type(error).__name__}: {error}"]
        seeds += [(seed, difference) for difference in differences[:1]]
    gc.enable()
    gc.collect()
    return seeds


def many(count: int, first: int = 0, workers: int | None = None) -> list[tuple[int, str]]:
    """The same of `count` schedules, on all cores."""
    chunks = range(first, first + count, _CHUNK)
    sizes = [min(_CHUNK, first + count - start) for start in chunks]
    # What waits beside them, such as the storms of make soak, is served first.
    with ProcessPoolExecutor(workers or os.cpu_count(), initializer=os.nice, initargs=(10,)) as pool:
        return [seed for seeds in pool.map(diverging, chunks, sizes) for seed in seeds]


def main() -> int:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    started = time.monotonic()
    seeds = many(count, first)
    print(
        f"{count:,} schedules from seed {first} in {time.monotonic() - started:.0f} s: {len(seeds)} diverged"
    )
    for seed, what in seeds[:10]:
        print(f"seed {seed}: {what}; again with: python -m tests.simulation.many 1 {seed}")
    return 1 if seeds else 0


if __name__ == "__main__":
    raise SystemExit(main())
