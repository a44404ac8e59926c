"""The watch, which rolls a pattern back by itself once its calls since the move show that a limit is passed; and hooks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any

from msgspec import Struct

from migrator.mapping.model.evidence import Evidence, Line, MovedError, PatternPhase, Phases, State, Window
from migrator.mapping.model.live import MarksState
from migrator.mapping.model.mapping import Pattern
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.settings.job import EventKind, Hook, WatchSettings
from migrator.stages.cutover.evidence import SIDES_MIN, Aggregate, chance_of_more, counted
from migrator.stages.cutover.moves import Cutover, way_back

SURE = 1e-6
"""A limit counts as passed if chance alone explains the counts with less than this probability. The same counts are
tested thousands of times, so it is far below what a single test would need."""
LONGEST_S = 6 * 3600.0
"""After an older move, only calls of this time are read at first: reading days of them every few seconds would be
slow."""
ENOUGH = 5000
"""With fewer calls the watch reads further back; this many are enough to prove twice our narrowest default limit."""
LAG_AGAIN_S = 300.0
LONGEST_FAILED_S = 60.0
_log = get_logger("watch")


class MovedBack(Struct, frozen=True):
    """A pattern that the watch rolled back, and the lines that were the reason."""

    pattern: str
    before: State
    after: State
    version: int
    reason: str
    lines: Sequence[Line]


@dataclass
class Watch:
    """`patterns`: those of the mapping; `tell`: called with each move back."""

    phases: Phases
    evidence: Evidence
    patterns: Mapping[str, Pattern]
    limits: WatchSettings
    cutover: Cutover
    tell: Callable[[MovedBack], None]
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why a pattern could not be checked the last time, by its name."""

    def once(self) -> list[MovedBack]:
        """Checks every pattern that the table answers, and returns those that were moved back.

        A pattern that cannot be checked (see `faults`) does not stop the others. Raises: StoppedError where the journal
        cannot be asked.
        """
        now_s = self.evidence.now_s()
        moved, faults = [], {}
        for phase in self.phases.all().values():
            try:
                if (move := self._look(phase, now_s)) is not None:
                    moved.append(move)
            except SettingsError as error:
                faults[phase.pattern] = str(error)
        for pattern, why in faults.items():
            if self.faults.get(pattern) != why:
                _log.error("not_watched", pattern=pattern, reason=why)
        self.faults = faults
        for move in moved:
            _log.warning("rolled_back", pattern=move.pattern, after=str(move.after), reason=move.reason)
            self.tell(move)
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
            # Another move was faster; the next check sees its result.
            _log.info("not_rolled_back", pattern=phase.pattern, reason=str(error))
            return None
        return MovedBack(phase.pattern, phase.state, after, moved.version, reason, passed)

    def _windows(self, phase: PatternPhase, now_s: float) -> list[Window]:
        """Windows of services since the move; of a pattern with many calls only the latest.

        Instances begin a window when they see a move; older windows may hold a fault that was mended before it.
        """
        begun_at, span_s = phase.since, LONGEST_S
        while True:
            since = max(begun_at, now_s - span_s)
            windows = [
                window for window in self.evidence.windows(since, phase.pattern) if window.origin == "service"
            ]
            calls = sum(window.answered.get("table", 0) + window.errors.get("table", 0) for window in windows)
            if since == begun_at or calls >= max(ENOUGH, self.limits.answers_min):
                return windows
            span_s *= 2


def passed_limits(
    pattern: Pattern | None, windows: Sequence[Window], limits: WatchSettings, now_s: float
) -> list[Line]:
    """The limits that are certainly passed, by all windows or by the latest ones; each once."""
    lately = [window for window in windows if window.begun_at >= now_s - limits.lately_s]
    by_name: dict[str, Line] = {}
    for some, since in ((windows, "since the move"), (lately, f"in the last {limits.lately_s:g} s")):
        for line in passed_by(pattern, counted(some), limits, since):
            by_name.setdefault(line.name, line)
    return list(by_name.values())


def passed_by(
    pattern: Pattern | None, counts: Aggregate, limits: WatchSettings, since: str
) -> Iterator[Line]:
    """The limits that these counts prove to be passed. `since`: which calls they are, as text."""
    answers = counts.compared + counts.unsettled
    # Estimates from a few calls prove nothing.
    guessed = _lasting(counts) if answers >= limits.answers_min else 0
    rules = (
        (
            "mismatches",
            counts.different + guessed,
            answers,
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
    """An estimate of lasting differences among the unsettled ones: the same share as among the settled; all if none was.

    Differences left at a process's end are not counted: deploying relay and service at once would move patterns back.
    """
    share = (counts.different + 1) / (counts.different + counts.transient + 1)
    return round(counts.unsettled * share)


def is_passed(count: int, of: int, limit: float) -> bool:
    """Whether `count` of `of` prove that the share is above the limit; a few calls rarely do."""
    return of > 0 and chance_of_more(count, of, limit) < SURE


def _limit_ms(pattern: Pattern | None, counts: Aggregate, limits: WatchSettings) -> float | None:
    """The limit of the table's p99: SQL's times the factor, and never less than the mapping's budget."""
    old = counts.latency["sql"]
    by_sql = old.p99_ms * limits.p99_factor if old.answers >= SIDES_MIN else None
    budget = pattern.p99_ms if pattern is not None else None
    limits_ms = [limit_ms for limit_ms in (by_sql, budget) if limit_ms is not None]
    return max(limits_ms) if limits_ms else None


@dataclass
class LagWatch:
    """Calls `tell` when the relay falls behind, and again every five minutes while it stays so. `clock`: seconds."""

    marks: Callable[[], MarksState]
    lag_max_s: float
    tell: Callable[[MarksState], object]
    clock: Callable[[], float]
    _told_at: float | None = None

    def once(self) -> None:
        """Raises: SourceError where the source cannot be asked."""
        self.see(self.marks())

    def see(self, state: MarksState) -> None:
        """As `once`, with a state that was already read."""
        if state.oldest_age_s <= self.lag_max_s:
            self._told_at = None
        elif self._told_at is None or self.clock() - self._told_at >= LAG_AGAIN_S:
            self._told_at = self.clock()
            _log.warning("lag_high", oldest_age_s=round(state.oldest_age_s, 1), waiting=state.waiting)
            self.tell(state)


def keep_watch(looks: Sequence[Callable[[], object]], every_s: float, stop: Event) -> None:
    """Runs the checks until `stop` is set. One that fails is logged and retried with growing waits; the others go on."""
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


_log = get_logger("hooks")


# ── Hooks: the operators' own programs, run on events, bounded in time; their failure fails nothing else ──


def tell(hooks: Sequence[Hook], kind: EventKind, job: str, /, **fields: Any) -> None:
    """Runs every hook of this kind, one after the other, with the event as JSON on its standard input.

    `fields`: plain values, never one of a row. A hook that fails or takes too long is logged; it is killed then, with
    all that it began.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    event = json.dumps({"event": kind, "job": job, "at": at, **fields}, ensure_ascii=False)
    for number, hook in enumerate(hooks):
        if kind in hook.on and (why := _run(hook, event)):
            _log.warning("hook_failed", hook=number, hooked=kind, reason=why)


def _run(hook: Hook, event: str) -> str:
    """Why the hook failed, '' where it did not. Its words are not quoted: they may hold a secret."""
    try:
        process = subprocess.Popen(
            hook.command if isinstance(hook.command, str) else list(hook.command),
            # A text is for the shell by its very form; the words of a list never meet one.
            shell=isinstance(hook.command, str),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"it cannot be started ({error.strerror})"
    except ValueError:
        return "it cannot be started (a word holds a character that no program takes)"
    try:
        process.communicate(event.encode(), timeout=hook.wait_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"it took longer than {hook.wait_s:g} s and was killed"
    return f"it ended with exit code {process.returncode}" if process.returncode else ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:  # Windows knows no groups of processes: what the hook began goes on.
        process.kill()
    # Not communicate(): what the hook began may have left the group, and hold the pipe open for ever.
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
