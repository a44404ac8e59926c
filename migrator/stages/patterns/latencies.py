"""Latency histograms: counted in bounded memory, written as text, and merged."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from threading import Lock

from migrator.mapping.model.report import Curve

_LONGEST_US = 3_600_000_000
_DIGITS = 3
CURVE = (0.0, 10.0, 25.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9)
"""Percentiles of a curve."""


class Latencies:
    """Histogram of answer times to three significant digits, up to an hour; about 7,000 numbers at most.
    Thread-safe."""

    def __init__(self) -> None:
        self._answers: Counter[int] = Counter()
        self._lock = Lock()

    def record(self, took_ms: float) -> None:
        """Count one answer. Over an hour counts as an hour."""
        shown_us = _rounded(min(max(1, round(took_ms * 1000)), _LONGEST_US))
        with self._lock:
            self._answers[shown_us] += 1

    def add(self, text: str) -> None:
        counts = json.loads(zlib.decompress(b64decode(text, validate=True)))
        self._answers.update({int(shown_us): count for shown_us, count in counts.items()})

    def text(self) -> str:
        """All counts as text for `add`: some hundred characters, a few thousand if answers differ much."""
        with self._lock:
            counts_json = json.dumps(self._answers, separators=(",", ":"))
        return b64encode(zlib.compress(counts_json.encode())).decode("ascii")

    @property
    def answers(self) -> int:
        return self._answers.total()

    @property
    def p99_ms(self) -> float:
        return self._percentiles([99.0])[0]

    def above(self, limit_ms: float) -> int:
        return sum(count for shown_us, count in self._answers.items() if shown_us > limit_ms * 1000)

    def curve(self) -> Curve | None:
        with self._lock:
            if not self._answers:
                return None
            *points, longest = self._percentiles([*CURVE, 100.0])
            return Curve(self.answers, tuple(zip(CURVE, points, strict=True)), longest)

    def _percentiles(self, shares: Sequence[float]) -> list[float]:
        """Milliseconds within which each share of the answers came; `shares` ascending."""
        times = sorted(self._answers)
        reached = list(accumulate(self._answers[shown_us] for shown_us in times))
        points, place = [], 0
        for share in shares:
            while place < len(times) - 1 and reached[place] < share / 100 * reached[-1]:
                place += 1
            points.append(times[place] / 1000 if times else 0.0)
        return points


def added(texts: Sequence[str]) -> Latencies:
    latencies = Latencies()
    for text in texts:
        latencies.add(text)
    return latencies


def _rounded(microseconds: int) -> int:
    step: int = 10 ** max(0, len(str(microseconds)) - _DIGITS)
    return round(microseconds / step) * step
