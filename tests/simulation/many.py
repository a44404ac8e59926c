"""Runs as many schedules as asked: python -m tests.simulation.many 200000 [first seed] [one | two | log] [processes]."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat

from tests.simulation.actors import run
from tests.simulation.log import LOG
from tests.simulation.revisions import run_on
from tests.simulation.world import World

MANY = int(os.environ.get("MIGRATOR_TEST_SCHEDULES", "3000"))
"""Schedules of a soak."""
_CHUNK = 500
RUNS: dict[str, Callable[[int], World]] = {"one": run, "two": run_on, "log": partial(run, parts=LOG)}
"""By how many mappings there are; `log`: one, and the database's log is captured in place of triggers."""


def diverging(first: int, count: int, mappings: str = "one") -> list[tuple[int, str]]:
    """Seeds whose schedules do not end with the items that the rows make, each with a difference."""
    seeds = []
    # A schedule leaves nothing that counting references does not free; looking for garbage would take a tenth.
    gc.disable()
    for seed in range(first, first + count):
        try:
            differences = RUNS[mappings](seed).differences()
        except Exception as error:  # whatever it is, its seed is what is wanted
            differences = [f"{type(error).__name__}: {error}"]
        seeds += [(seed, difference) for difference in differences[:1]]
    gc.enable()
    gc.collect()
    return seeds


def many(
    count: int, first: int = 0, mappings: str = "one", workers: int | None = None
) -> list[tuple[int, str]]:
    """The same of `count` schedules, on all cores or as many as asked."""
    chunks = range(first, first + count, _CHUNK)
    sizes = [min(_CHUNK, first + count - start) for start in chunks]
    # What waits beside them, such as storms, is served first.
    with ProcessPoolExecutor(workers or os.cpu_count(), initializer=os.nice, initargs=(10,)) as pool:
        return [seed for seeds in pool.map(diverging, chunks, sizes, repeat(mappings)) for seed in seeds]


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set would be another one in each process, and a seed more than one schedule.
        command = [sys.executable, "-m", "tests.simulation.many", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    given, defaults = sys.argv[1:], ("1", "0", "one", "0")
    count, first, mappings, workers = (*given, *defaults[len(given) :])
    started = time.monotonic()
    seeds = many(int(count), int(first), mappings, int(workers))
    took_s = time.monotonic() - started
    print(f"{int(count):,} schedules from seed {first} in {took_s:.0f} s: {len(seeds)} diverged")
    for seed, what in seeds[:10]:
        print(f"seed {seed}: {what}; again with: python -m tests.simulation.many 1 {seed} {mappings}")
    return 1 if seeds else 0


if __name__ == "__main__":
    raise SystemExit(main())
