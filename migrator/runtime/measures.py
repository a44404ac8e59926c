"""A process's own measurements for its metrics: labelled histograms and counters."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

CHANGE_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Bucket bounds for the time until a change's items were stored."""
ANSWER_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket bounds for the time of one answer: of a pattern's side, or of the journal."""
INFINITE = "+Inf"

Labels = tuple[str, ...]


@dataclass
class Histogram:
    """Seconds counted by upper bounds. Thread-safe."""

    bounds: Sequence[float]
    sum_s: float = 0.0
    _counts: list[int] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float) -> None:
        place = bisect_left(self.bounds, seconds)
        with self._lock:
            self._counts[place] += 1
            self.sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus requires; the last bound is infinite."""
        with self._lock:
            counts = list(self._counts)
        names = [*(repr(float(bound)) for bound in self.bounds), INFINITE]
        return [(name, float(sum(counts[: number + 1]))) for number, name in enumerate(names)]


class Histograms:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._by_labels: dict[Labels, Histogram] = {}

    def observe(self, labels: Labels, seconds: float) -> None:
        if (histogram := self._by_labels.get(labels)) is None:
            # setdefault is atomic in the interpreter: of two threads that come first, both count in one histogram.
            histogram = self._by_labels.setdefault(labels, Histogram(self._bounds))
        histogram.observe(seconds)

    def items(self) -> list[tuple[Labels, Histogram]]:
        return list(self._by_labels.items())


class Counts:
    """Labelled numbers that only grow. Thread-safe."""

    def __init__(self) -> None:
        self._numbers: Counter[Labels] = Counter()
        self._lock = Lock()

    def add(self, labels: Labels, number: float = 1) -> None:
        with self._lock:
            self._numbers[labels] += number  # type: ignore[assignment]  # units have halves

    def __getitem__(self, labels: Labels) -> float:
        return self._numbers[labels]

    def items(self) -> list[tuple[Labels, float]]:
        with self._lock:
            return list(self._numbers.items())


@dataclass
class Answers:
    """Calls, their time, and failures. `answered_at`: the last success."""

    took: Histogram = field(default_factory=lambda: Histogram(ANSWER_S))
    failures: int = 0
    answered_at: float = float("-inf")

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except Exception:
            self.failures += 1
            raise
        self.answered_at = time.monotonic()
        self.took.observe(self.answered_at - began)
