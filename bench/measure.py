"""How benches measure: alternating ways in one run, medians, peak memory in a separate process; and tables of it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 3))


@dataclass(frozen=True)
class Took:
    """Microseconds per item: CPU of this process alone, and time."""

    cpu_us: float
    us: float


def took(work: Callable[[], int]) -> Took:
    """`work`: returns its number of items."""
    began, clock = time.process_time(), time.perf_counter()
    items = work()
    return Took((time.process_time() - began) / items * 1e6, (time.perf_counter() - clock) / items * 1e6)


@dataclass(frozen=True)
class InTurn:
    """Each way once per round, so that ratios are of the same minute of the machine."""

    rounds: list[dict[str, Took]]

    @classmethod
    def of(cls, ways: Mapping[str, Callable[[], int]], rounds: int = ROUNDS) -> InTurn:
        return cls([{name: took(work) for name, work in ways.items()} for _ in range(rounds)])

    def cpu_us(self, way: str) -> float:
        return statistics.median(each[way].cpu_us for each in self.rounds)

    def a_second(self, way: str) -> float:
        return 1e6 / statistics.median(each[way].us for each in self.rounds)

    def ratio(self, way: str, other: str) -> float:
        """The other's CPU as a multiple of this one's, median of the rounds."""
        return statistics.median(each[way].cpu_us / each[other].cpu_us for each in self.rounds)


@dataclass(frozen=True)
class Alone:
    """A way in a separate process. `cpu_us` and `us`: per item, without the process's start; `peak_mb`: with it."""

    items: int
    cpu_us: float
    us: float
    peak_mb: float


def alone(way: str, shape: str, url: str, endpoint: str) -> Alone:
    command = [sys.executable, "-m", "bench.ways", way, shape, url, endpoint]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    found = json.loads(said.splitlines()[-1])  # what stands before it is a log
    items = found["items"]
    return Alone(items, found["cpu_s"] / items * 1e6, found["took_s"] / items * 1e6, found["peak_mb"])


# ── Tables as docs/speed.md has them ──


@dataclass
class Tables:
    """Rows of named cells by title, in order."""

    rows: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def add(self, title: str, **cells: str) -> None:
        """Add a row; `_` in a cell's name is a blank in its column's."""
        self.rows.setdefault(title, []).append({name.replace("_", " "): text for name, text in cells.items()})

    def lines(self) -> list[str]:
        """Markdown, after a line on the machine and its other load."""
        if not self.rows:
            return []
        found = [f"{time.strftime('%d %B %Y')}, Python {platform.python_version()}, {_load()}"]
        for title, rows in self.rows.items():
            columns = list(rows[0])
            found += ["", f"**{title}**", "", _line(columns), _line(["---"] * len(columns))]
            found += [_line([row.get(column, "") for column in columns]) for row in rows]
        return found


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _load() -> str:
    loads = " / ".join(f"{load:.1f}" for load in os.getloadavg())
    return f"{os.cpu_count()} cores, load {loads} in the last 1 / 5 / 15 minutes"
