"""What was compared, in memory; it passes the contract of the real one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock

from migrator.mapping.model.evidence import SAMPLES_KEPT, WINDOWS_KEPT_S, Sample, Window
from migrator.runtime.errors import MigratorError


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
            self._windows |= {(sample.begun_at, sample.pattern, sample.writer): sample for sample in windows}
            self._samples += samples
            for kind in {(sample.pattern, sample.key) for sample in samples}:
                same = [sample for sample in self.samples() if (sample.pattern, sample.key) == kind]
                old = {id(sample) for sample in same[SAMPLES_KEPT:]}
                self._samples = [sample for sample in self._samples if id(sample) not in old]

    def windows(self, since: float, pattern: str | None = None) -> list[Window]:
        self._ask()
        with self._lock:
            windows = [window for _, window in sorted(self._windows.items(), key=lambda item: item[0])]
        return [
            window for window in windows if window.begun_at >= since and pattern in (None, window.pattern)
        ]

    def samples(self, pattern: str | None = None) -> list[Sample]:
        self._ask()
        with self._lock:
            # Of samples of one moment, the last that was kept stands first.
            samples = sorted(self._samples, key=lambda sample: sample.at)
        return [sample for sample in samples[::-1] if pattern in (None, sample.pattern)]

    def now_s(self) -> float:
        self._ask()
        return self.clock()

    def _drop(self, before: float) -> None:
        self._windows = {key: window for key, window in self._windows.items() if window.begun_at >= before}

    def _ask(self) -> None:
        if self.away is not None:
            raise self.away
