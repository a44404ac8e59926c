"""Metrics of reads and comparisons in one process, counted by minute and written to the journal."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Literal

from msgspec import Struct

from migrator.mapping.model.evidence import SAMPLES_KEPT, DiffKey, Evidence, Sample, Side, Window
from migrator.runtime.errors import reason_of
from migrator.runtime.logs import get_logger
from migrator.runtime.measures import ANSWER_S, Counts, Histograms
from migrator.runtime.system import Ticker, tell_of_forks
from migrator.runtime.values import replace
from migrator.stages.patterns.latencies import Latencies

Verdict = Literal["same", "transient", "different"]
MINUTE_S = 60
WINDOWS_HELD = 5_000
"""Minutes of patterns that are kept while the journal is away: some megabytes; the oldest go first."""
EVENTS_HELD = 200_000
LOST = "lost"
"""The reason of dropped counts that could not be stored."""
FLUSH_S = 3.0
_LOG_S = 60.0
_GOODBYE_S = 5.0
_log = get_logger("reads")


class ReadEvent(Struct, frozen=True):
    pattern: str
    answered: Side | None = None
    took_ms: float = 0.0
    failed: Side | None = None
    dropped: str = ""
    verdict: Verdict | None = None
    kind: str = ""
    differences: Mapping[DiffKey, int] = {}
    samples: Sequence[Sample] = ()


class ReadMetrics:
    """A context manager. An event is appended to a deque: no lock, no wait, independent of the journal.

    `answers`: by pattern, the digest of its answer.
    `writer`: gives the instance's id; while it is '' no event is passed on.
    `clock`: seconds since 1970.
    """

    _acted_by: dict[str, int]

    def __init__(
        self,
        evidence: Evidence,
        blank: Window,
        answers: Mapping[str, str],
        writer: Callable[[], str],
        *,
        clock: Callable[[], float] = time.time,
        every_s: float = FLUSH_S,
        versions: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self.evidence = evidence
        self.blank = blank
        self.answers = answers
        self.writer = writer
        self.clock = clock
        self.every_s = every_s
        self.versions = versions
        self.lost = 0
        self._logged_at = float("-inf")
        self._held = False
        self._reset()

    # ── what happened ──

    def answered(self, pattern: str, side: Side, took_ms: float) -> None:
        self._tell(ReadEvent(pattern, answered=side, took_ms=took_ms))

    def failed(self, pattern: str, side: Side, sample: Sample | None = None) -> None:
        """`sample`: of a failed shadow, which is a difference of the class error."""
        differences = {} if sample is None else {sample.key: 1}
        self._tell(
            ReadEvent(pattern, failed=side, differences=differences, samples=[sample] if sample else ())
        )

    def dropped(self, pattern: str, why: str) -> None:
        self._tell(ReadEvent(pattern, dropped=why))

    def compared(
        self,
        pattern: str,
        verdict: Verdict,
        kind: str,
        differences: Mapping[DiffKey, int] | None = None,
        samples: Sequence[Sample] = (),
    ) -> None:
        self._tell(
            ReadEvent(pattern, verdict=verdict, kind=kind, differences=differences or {}, samples=samples)
        )

    def _tell(self, event: ReadEvent) -> None:
        if len(self._events) < EVENTS_HELD:
            self._events.append(event)
        else:
            self.lost += 1
            self._lost[event.pattern] += 1

    # ── events handed on ──

    def flush(self) -> None:
        """Write the counts to the journal. Raises: StoppedError if it is unreachable; no counts are lost."""
        with self._flushing:
            writer = self.writer()
            if not writer:
                return
            self._count(writer)
            windows = [
                *self._over.values(),
                *(minute.window() for minute in self._now.values() if minute.changed),
            ]
            samples = [sample for kept in self._samples.values() for sample in kept]
            if windows or samples:
                self.evidence.keep(windows, samples)
            self._over.clear()
            self._samples.clear()
            for minute in self._now.values():
                minute.changed = False

    def _count(self, writer: str) -> None:
        """Count by the minute of counting, not of the event, so that a written minute never changes."""
        now_s = int(self.clock())
        begun_at = now_s // MINUTE_S * MINUTE_S
        for pattern, minute in list(self._now.items()):
            if minute.blank.begun_at < begun_at:
                self._end(pattern)
        while len(self._over) > WINDOWS_HELD:
            oldest = self._over.pop(next(iter(self._over)))
            gone = oldest.compared + sum(oldest.dropped.values())
            self.lost += gone - oldest.dropped.get(LOST, 0)
            self._lost[oldest.pattern] += gone
        for _ in range(len(self._events)):
            event = self._events.popleft()
            self.totals.add(event)
            self._minute(event.pattern, begun_at, writer).add(event)
            for sample in event.samples:
                kept = self._samples.setdefault((event.pattern, sample.key), deque(maxlen=SAMPLES_KEPT))
                kept.append(sample)
        for pattern in list(self._lost):
            self._minute(pattern, begun_at, writer).lose(self._lost.pop(pattern))
        self._cut(now_s)

    def _minute(self, pattern: str, begun_at: int, writer: str) -> _Minute:
        if pattern not in self._now:
            begins = max(begun_at, self._cuts.get(pattern, 0))
            blank = replace(self.blank, pattern=pattern, begun_at=begins, writer=writer)
            self._now[pattern] = _Minute(replace(blank, answer=self.answers.get(pattern, "")))
        return self._now[pattern]

    def _cut(self, now_s: int) -> None:
        """End the windows of moved patterns; later counts belong to the time after the move."""
        before, now = self._acted_by, dict(self.versions())
        self._acted_by = now
        for pattern in [name for name, version in now.items() if before.get(name, 0) != version]:
            current = self._now.get(pattern)
            # Never two windows of one second: the journal would keep the second one alone.
            self._cuts[pattern] = max(now_s + 1, current.blank.begun_at + 1 if current else 0)
            if current is not None:
                self._end(pattern)

    def _end(self, pattern: str) -> None:
        minute = self._now.pop(pattern)
        if minute.changed:
            self._over[pattern, minute.blank.begun_at] = minute.window()

    # ── life ──

    def __enter__(self) -> ReadMetrics:
        tell_of_forks(self)
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        try:
            self.flush()
        except Exception as error:
            self._failed(error)

    def before_fork(self) -> None:
        self._held = self._flushing.acquire(timeout=_GOODBYE_S)

    def after_fork(self, *, in_child: bool) -> None:
        if not in_child and self._held:
            self._flushing.release()
        elif in_child and self._ticker.runs:
            self._reset()
            self._ticker.start()

    def _reset(self) -> None:
        self._lost: Counter[str] = Counter()
        self._events: deque[ReadEvent] = deque()
        self.totals = ReadTotals()
        self._now: dict[str, _Minute] = {}
        self._over: dict[tuple[str, int], Window] = {}
        self._acted_by = {}
        self._cuts: dict[str, int] = {}
        self._samples: dict[tuple[str, DiffKey], deque[Sample]] = {}
        self._flushing = Lock()
        self._ticker = Ticker("ledger", lambda: self.flush(), self._failed, lambda: self.every_s)

    def _failed(self, error: Exception) -> None:
        if time.monotonic() - self._logged_at >= _LOG_S:
            self._logged_at = time.monotonic()
            with suppress(OSError, ValueError):
                reason, waiting = reason_of(error), len(self._over)
                _log.warning("counts_cannot_be_kept", waiting=waiting, lost=self.lost, reason=reason)


class ReadTotals:
    """Totals since this process began, for its metrics; labels are (pattern, …)."""

    def __init__(self) -> None:
        self.answers = Histograms(ANSWER_S)
        """Latencies by (pattern, side)."""
        self.errors = Counts()
        """Errors by (pattern, side)."""
        self.comparisons = Counts()
        """Comparisons by (pattern, verdict)."""
        self.dropped = Counts()
        """Comparisons that were not made, by (pattern, why)."""

    def add(self, event: ReadEvent) -> None:
        if event.answered is not None:
            self.answers.observe((event.pattern, event.answered), event.took_ms / 1000)
        if event.failed is not None:
            self.errors.add((event.pattern, event.failed))
        if event.verdict is not None:
            self.comparisons.add((event.pattern, event.verdict))
        if event.dropped:
            self.dropped.add((event.pattern, event.dropped))


class _Minute:
    def __init__(self, blank: Window) -> None:
        self.blank = blank
        self.changed = False
        self._answered: Counter[Side] = Counter()
        self._errors: Counter[Side] = Counter()
        self._dropped: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._verdicts: Counter[Verdict] = Counter()
        self._differences: Counter[DiffKey] = Counter()
        self._latency: dict[Side, Latencies] = {}

    def add(self, event: ReadEvent) -> None:
        self.changed = True
        if event.answered is not None:
            self._answered[event.answered] += 1
            if event.answered not in self._latency:
                self._latency[event.answered] = Latencies()
            self._latency[event.answered].record(event.took_ms)
        if event.failed is not None:
            self._errors[event.failed] += 1
        if event.dropped:
            self._dropped[event.dropped] += 1
        if event.verdict is not None:
            self._verdicts[event.verdict] += 1
            self._kinds[event.kind] += 1
        if event.differences:
            self._differences.update(event.differences)

    def lose(self, count: int) -> None:
        self.changed = True
        self._dropped[LOST] += count

    def window(self) -> Window:
        verdicts = self._verdicts
        return replace(
            self.blank,
            answered=dict(self._answered),
            errors=dict(self._errors),
            compared=verdicts.total(),
            same=verdicts["same"],
            transient=verdicts["transient"],
            different=verdicts["different"],
            dropped=dict(self._dropped),
            kinds=dict(self._kinds),
            found=dict(self._differences),
            latency={side: latencies.text() for side, latencies in self._latency.items()},
        )
