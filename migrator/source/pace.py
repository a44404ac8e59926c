"""How fast rows are read: a bucket of tokens that all workers of a run draw from."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from migrator.retry import nap

_NO_DEBT_ROWS = 1e-6
"""Rounding leaves so much; to wait for it could ask for sleeps too short for any clock, without end."""


class Pace:
    """At most `rows_per_s` on the average, whoever asks; None is no limit. Safe to use from many threads.

    A page's rows are known only when it is read: they are drawn afterwards, and whoever comes next waits until the
    bucket, which never holds more than one second's rows, is out of debt.
    """

    def __init__(
        self,
        rows_per_s: float | None = None,
        stop: Callable[[], bool] = lambda: False,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rows_per_s = rows_per_s
        self._stop = stop
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._tokens = 0.0
        self._filled_at = clock()

    def wait(self) -> None:
        """Returns when the next page may be read.

        Raises: Interrupted when the run is asked to stop.
        """
        if self._rows_per_s is None:
            return
        while (debt_s := self._debt_s(self._rows_per_s)) > 0:
            nap(debt_s, self._stop, self._sleep)

    def took(self, rows: int) -> None:
        """Draws the rows that were read."""
        if self._rows_per_s is not None:
            with self._lock:
                self._tokens -= rows

    def _debt_s(self, rows_per_s: float) -> float:
        """How long the bucket needs to be out of debt."""
        with self._lock:
            now = self._clock()
            filled = self._tokens + (now - self._filled_at) * rows_per_s
            self._tokens, self._filled_at = min(filled, rows_per_s), now
            return -self._tokens / rows_per_s if self._tokens < -_NO_DEBT_ROWS else 0.0
