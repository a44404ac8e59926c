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
    _asking: Lock = field(default_factory=Lock)

    def __call__(self) -> float:
        """Seconds: the age of the oldest mark that waits for a relay.

        0 where the source cannot be asked (a service's user may leave marks and not read them), and where marks failed
        before: one that can never be worked says nothing of the others.
        """
        # Who finds another one asking goes by what is known: nobody waits here, also not the child of a fork.
        if self.clock() - self._asked_at >= KNOWN_FOR_S and self._asking.acquire(blocking=False):
            try:
                self._lag_s, self._asked_at = self._asked(), self.clock()
            finally:
                self._asking.release()
        since = max(0.0, self.clock() - self._asked_at) if self._lag_s else 0.0
        return self._lag_s + min(since, KNOWN_FOR_S)

    def _asked(self) -> float:
        try:
            state = self.marks()
        except MigratorError:
            return 0.0
        return 0.0 if state.failed else state.oldest_age_s
