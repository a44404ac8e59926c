"""How far items are behind rows, asked once a second at most."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from migrator.errors import MigratorError
from migrator.ports.live import MarksState

KNOWN_FOR_S = 1.0


@dataclass
class RelayLag:
    """`marks`: what waits in the source. `clock`: seconds that only grow. Safe to share between threads."""

    marks: Callable[[], MarksState]
    clock: Callable[[], float] = time.monotonic
    _lag_s: float = 0.0
    _asked_at: float = float("-inf")
    _lock: Lock = field(default_factory=Lock)

    def __call__(self) -> float:
        """Seconds: the age of the oldest mark that waits for a relay.

        0 where the source cannot be asked (a service's user may leave marks and not read them), and where marks failed
        before: one that can never be worked says nothing of the others.
        """
        with self._lock:
            if self.clock() - self._asked_at >= KNOWN_FOR_S:
                self._lag_s = self._asked()
                self._asked_at = self.clock()
            return self._lag_s

    def _asked(self) -> float:
        try:
            state = self.marks()
        except MigratorError:
            return 0.0
        return 0.0 if state.failed else state.oldest_age_s
