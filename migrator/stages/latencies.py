"""Latencies of many answers, kept in bounded memory."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Sequence
from threading import Lock

from hdrh.codec import HdrCookieException, HdrLengthException
from hdrh.histogram import HdrHistogram

from migrator.replay_results import Latency
from migrator.report_results import Curve

_LONGEST_US = 3_600_000_000
_DIGITS = 3
CURVE = (0.0, 10.0, 25.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9)
"""Percentiles of a curve."""
_UNREADABLE = (HdrCookieException, HdrLengthException, binascii.Error, zlib.error, ValueError)


class Latencies:
    """An HDR histogram of microseconds up to an hour, exact to three digits. Safe to record to from many threads."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _LONGEST_US, _DIGITS)
        self._lock = Lock()

    def record(self, took_ms: float) -> None:
        """Counts one answer; one that took longer than an hour counts as an hour."""
        with self._lock:
            self._histogram.record_value(min(max(1, round(took_ms * 1000)), _LONGEST_US))

    def text(self) -> str:
        """The whole histogram as text that `merged` reads; a few hundred characters."""
        with self._lock:
            return str(self._histogram.encode(), "ascii")

    def summary(self) -> Latency | None:
        """None where nothing was recorded."""
        with self._lock:
            count = self._histogram.get_total_count()
            if not count:
                return None
            p50, p90, p99 = (self._histogram.get_value_at_percentile(share) for share in (50, 90, 99))
            return Latency(count, p50 / 1000, p90 / 1000, p99 / 1000, self._histogram.get_max_value() / 1000)


def merged_curve(texts: Sequence[str]) -> Curve | None:
    """Histograms that `Latencies.text` wrote, as one curve; None where they hold nothing. One that nobody can read any
    more is left out."""
    merged = HdrHistogram(1, _LONGEST_US, _DIGITS)
    for text in texts:
        try:
            merged.add(HdrHistogram.decode(text.encode()))
        except _UNREADABLE:
            continue
    answers = merged.get_total_count()
    if not answers:
        return None
    points = tuple((share, merged.get_value_at_percentile(share) / 1000) for share in CURVE)
    return Curve(answers, points, merged.get_max_value() / 1000)
