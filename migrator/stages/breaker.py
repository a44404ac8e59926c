"""What keeps shadows from becoming a load: so many in a second, and none for a while after many errors."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

ONE_S = 0.002
"""Seconds of the processor that one may take; what takes longer counts as several."""


class Budget:
    """So many in a second, and no more than a second's worth at once. Safe to share between threads."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self.per_s = per_s
        self.clock = clock
        self._most = max(1.0, per_s)
        self._left = self._most
        self._at = clock()
        self._lock = Lock()

    def take(self) -> bool:
        """Whether there is one left, which then is taken."""
        with self._lock:
            now = self.clock()
            self._left = min(self._most, self._left + max(0.0, now - self._at) * self.per_s)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def spend(self, processor_s: float) -> None:
        """What one that was taken took of the processor: callers of the same process wait for the interpreter meanwhile."""
        with self._lock:
            self._left -= max(0.0, processor_s / ONE_S - 1)


class Breaker:
    """Opens after so many errors in a row, for a pause; then one trial decides. Safe to share between threads."""

    def __init__(self, after: int, pause_s: float, clock: Callable[[], float]) -> None:
        self.after = after
        self.pause_s = pause_s
        self.clock = clock
        self._failed = 0
        self._open_until = float("-inf")
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        """Whether none may run now."""
        with self._lock:
            return self._failed >= self.after and self.clock() < self._open_until

    def begins(self) -> None:
        """One runs. While there were too many errors it is the trial, and no other one runs beside it."""
        with self._lock:
            if self._failed >= self.after:
                self._open_until = self.clock() + self.pause_s

    def succeeded(self) -> None:
        with self._lock:
            self._failed = 0

    def failed(self) -> None:
        with self._lock:
            self._failed += 1
            if self._failed >= self.after:
                self._open_until = self.clock() + self.pause_s
