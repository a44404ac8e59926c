"""What was compared, in memory; it passes the contract of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock

from migrator.model.errors import MigratorError
from migrator.model.evidence import SAMPLES_KEPT, WINDOWS_KEPT_S, Sample, Window


class FakeEvidence:
    """model.evidence.Evidence by a clock of the test's own. `away`: what every method raises, if anything."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.away: MigratorError | None = None
        self._windows: dict[tuple[int, str, str], Window] = {}
        self._samples: list[Sample] = []
        self._lock = RLock()

    def keep(self, windows: Sequence[Window], samples: Sequence[Sample]) -> None:
        self._ask()
        with self._lock:
            self._drop(self.clock() - WINDOWS_KEPT_S)
            self._windows |= {(one.begun_at, one.pattern, one.writer): one for one in windows}
            self._samples += samples
            for kind in {(one.pattern, one.key) for one in samples}:
                same = [one for one in self.samples() if (one.pattern, one.key) == kind]
                old = {id(one) for one in same[SAMPLES_KEPT:]}
                self._samples = [one for one in self._samples if id(one) not in old]

    def windows(self, since: float, pattern: str | None = None) -> list[Window]:
        self._ask()
        with self._lock:
            found = [one for _, one in sorted(self._windows.items(), key=lambda item: item[0])]
        return [one for one in found if one.begun_at >= since and pattern in (None, one.pattern)]

    def samples(self, pattern: str | None = None) -> list[Sample]:
        self._ask()
        with self._lock:
            # Of one moment, the last that was kept stands first.
            found = sorted(self._samples, key=lambda one: one.at)
        return [one for one in found[::-1] if pattern in (None, one.pattern)]

    def now_s(self) -> float:
        self._ask()
        return self.clock()

    def _drop(self, before: float) -> None:
        self._windows = {place: one for place, one in self._windows.items() if one.begun_at >= before}

    def _ask(self) -> None:
        if self.away is not None:
            raise self.away
