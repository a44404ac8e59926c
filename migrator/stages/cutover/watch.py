"""The watch: moves a pattern back by itself once its calls since the move show that a limit is passed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event

from migrator.model.errors import MigratorError, SettingsError, StoppedError
from migrator.model.evidence import Evidence, Line, MovedError, PatternPhase, Phases, Window
from migrator.model.live import MarksState
from migrator.model.patterns import Pattern
from migrator.model.phase import State
from migrator.runtime.logs import get_logger
from migrator.settings.cutover import WatchSettings
from migrator.stages.cutover.counts import Aggregate, chance_of_more, counted
from migrator.stages.cutover.evidence import SIDES_MIN
from migrator.stages.cutover.moves import Cutover, way_back

SURE = 1e-6
"""A limit counts as passed where chance alone explains the counts less often than that. The same counts are looked at
thousands of times, so it is far below what one look would need."""
LONGEST_S = 6 * 3600.0
"""Of a move that is older, the calls of so long are looked at first: reading days of them every few seconds would be
slow."""
ENOUGH = 5000
"""With fewer calls than these it looks back further: so many prove twice the narrowest limit that we set ourselves."""
LAG_AGAIN_S = 300.0
LONGEST_FAILED_S = 60.0
_log = get_logger("watch")


@dataclass(frozen=True, slots=True)
class MovedBack:
    """A pattern that the watch took back, and by which lines."""

    pattern: str
    before: State
    after: State
    version: int
    reason: str
    lines: Sequence[Line]


@dataclass
class Watch:
    """`patterns`: those of the mapping; `tell`: who is told of each move back."""

    phases: Phases
    evidence: Evidence
    patterns: Mapping[str, Pattern]
    limits: WatchSettings
    cutover: Cutover
    tell: Callable[[MovedBack], None]
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why a pattern could not be looked at last time, by its name."""

    def once(self) -> list[MovedBack]:
        """Looks at every pattern that the table answers; those that were moved back.

        One that cannot be looked at (see `faults`) leaves the others watched. Raises: StoppedError where the journal
        cannot be asked.
        """
        now_s = self.evidence.now_s()
        moved, faults = [], {}
        for phase in self.phases.all().values():
            try:
                if (one := self._look(phase, now_s)) is not None:
                    moved.append(one)
            except SettingsError as error:
                faults[phase.pattern] = str(error)
        for pattern, why in faults.items():
            if self.faults.get(pattern) != why:
                _log.error("not_watched", pattern=pattern, reason=why)
        self.faults = faults
        for one in moved:
            _log.warning("rolled_back", pattern=one.pattern, after=str(one.after), reason=one.reason)
            self.tell(one)
        return moved

    def _look(self, phase: PatternPhase, now_s: float) -> MovedBack | None:
        if phase.fault:
            raise SettingsError(phase.fault)
        is_watched = phase.state.phase in ("ramp", "live") and now_s - phase.since <= self.limits.watched_s
        if not is_watched:
            return None
        windows = self._windows(phase, now_s)
        passed = passed_limits(self.patterns.get(phase.pattern), windows, self.limits, now_s)
        if not passed:
            return None
        after = way_back(phase.state)
        reason = "; ".join(f"{line.name}: {line.found} (limit: {line.asked})" for line in passed)
        try:
            moved = self.cutover.roll_back(phase, after, reason, passed)
        except MovedError as error:
            # Another move was faster; the next look sees what came of it.
            _log.info("not_rolled_back", pattern=phase.pattern, reason=str(error))
            return None
        return MovedBack(phase.pattern, phase.state, after, moved.version, reason, passed)

    def _windows(self, phase: PatternPhase, now_s: float) -> list[Window]:
        """Of services, since the move; of one with many calls the latest alone.

        Instances begin a window when they see a move. Older ones may tell of a fault that was mended before it.
        """
        begun_at, span_s = phase.since, LONGEST_S
        while True:
            since = max(begun_at, now_s - span_s)
            found = [one for one in self.evidence.windows(since, phase.pattern) if one.origin == "service"]
            calls = sum(one.answered.get("table", 0) + one.errors.get("table", 0) for one in found)
            if since == begun_at or calls >= max(ENOUGH, self.limits.answers_min):
                return found
            span_s *= 2


def passed_limits(
    pattern: Pattern | None, windows: Sequence[Window], limits: WatchSettings, now_s: float
) -> list[Line]:
    """The limits that are passed for sure, by all windows or by the latest ones alone; each once."""
    lately = [one for one in windows if one.begun_at >= now_s - limits.lately_s]
    found: dict[str, Line] = {}
    for some, since in ((windows, "since the move"), (lately, f"in the last {limits.lately_s:g} s")):
        for line in passed_by(pattern, counted(some), limits, since):
            found.setdefault(line.name, line)
    return list(found.values())


def passed_by(
    pattern: Pattern | None, counts: Aggregate, limits: WatchSettings, since: str
) -> Iterator[Line]:
    """The limits that these counts prove to be passed. `since`: which calls they are of, in words."""
    asked = counts.compared + counts.unsettled
    # What is guessed proves nothing by a few calls.
    guessed = _lasting(counts) if asked >= limits.answers_min else 0
    rules = (
        (
            "mismatches",
            counts.different + guessed,
            asked,
            limits.mismatch_max,
            f"answers differ ({guessed:,} guessed from those never settled)" if guessed else "answers differ",
        ),
        (
            "errors",
            counts.errors["table"],
            counts.calls("table"),
            limits.error_max,
            "calls of the table fail",
        ),
    )
    for name, count, of, limit, what in rules:
        if is_passed(count, of, limit):
            yield Line(name, f"{limit:.2%}", f"{count:,} of {of:,} {what} {since} ({count / of:.2%})", "no")
    table = counts.latency["table"]
    limit_ms = _limit_ms(pattern, counts, limits) if table.answers >= limits.answers_min else None
    if limit_ms is None or table.p99_ms <= limit_ms:
        return
    if is_passed(table.above(limit_ms), table.answers, 0.01):
        yield Line("p99", f"{limit_ms:,.1f} ms", f"{table.p99_ms:,.1f} ms {since}", "no")


def _lasting(counts: Aggregate) -> int:
    """Of what differed and was never settled as large a share as of what was; all of it where nothing was settled.

    What a process left behind at its end says nothing: a deployment of relay and service at once would move patterns back.
    """
    share = (counts.different + 1) / (counts.different + counts.transient + 1)
    return round(counts.unsettled * share)


def is_passed(count: int, of: int, limit: float) -> bool:
    """Whether `count` of `of` prove that the share is above the limit. Few can: five of five are no one in a hundred."""
    return of > 0 and chance_of_more(count, of, limit) < SURE


def _limit_ms(pattern: Pattern | None, counts: Aggregate, limits: WatchSettings) -> float | None:
    """What the table's p99 may be: SQL's times the factor, and never less than the mapping's budget."""
    old = counts.latency["sql"]
    by_sql = old.p99_ms * limits.p99_factor if old.answers >= SIDES_MIN else None
    budget = pattern.p99_ms if pattern is not None else None
    known = [one for one in (by_sql, budget) if one is not None]
    return max(known) if known else None


@dataclass
class LagWatch:
    """Tells when the relay falls behind, and again every five minutes while it stays there. `clock`: seconds."""

    marks: Callable[[], MarksState]
    lag_max_s: float
    tell: Callable[[MarksState], object]
    clock: Callable[[], float]
    _told_at: float | None = None

    def once(self) -> None:
        """Raises: SourceError where the source cannot be asked."""
        self.see(self.marks())

    def see(self, state: MarksState) -> None:
        """The same, where somebody has looked."""
        if state.oldest_age_s <= self.lag_max_s:
            self._told_at = None
        elif self._told_at is None or self.clock() - self._told_at >= LAG_AGAIN_S:
            self._told_at = self.clock()
            _log.warning("lag_high", oldest_age_s=round(state.oldest_age_s, 1), waiting=state.waiting)
            self.tell(state)


def keep_watch(looks: Sequence[Callable[[], object]], every_s: float, stop: Event) -> None:
    """Looks until `stop` is set. What fails is logged and looked at again, later and later; other looks go on."""
    failures = [0] * len(looks)
    waits = [0.0] * len(looks)
    while not stop.is_set():
        for number, look in enumerate(looks):
            waits[number] -= every_s
            if waits[number] > 0:
                continue
            try:
                look()
            except MigratorError as error:
                failures[number] += 1
                waits[number] = min(every_s * 2 ** min(failures[number], 10), LONGEST_FAILED_S)
                log = _log.warning if isinstance(error, StoppedError) else _log.error
                log("watch_failed", reason=str(error), wait_s=waits[number])
            else:
                failures[number], waits[number] = 0, 0.0
        stop.wait(every_s)
