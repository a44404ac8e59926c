"""Moves of patterns: forward on evidence, back at any time; the watch; and write ownership."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any

from msgspec import Struct

from migrator.mapping.check.keys import patterns_reading
from migrator.mapping.model.evidence import (
    FORWARD,
    ROUTES,
    Evidence,
    Judgement,
    Line,
    Move,
    MovedError,
    PatternPhase,
    Phases,
    State,
    Window,
    is_back,
    move_fault,
)
from migrator.mapping.model.live import MarksState
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Pattern
from migrator.runtime.errors import MigratorError, SettingsError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.settings.job import EventKind, Hook, WatchSettings
from migrator.stages.cutover.evidence import SIDES_MIN, Aggregate, chance_of_more, counted

FIRST_PERCENT = 1
"""The first step of a ramp, if no percentage is given."""


class Cutover(Struct, frozen=True):
    phases: Phases
    who: str
    revision: str = ""

    def phase(self, pattern: str) -> PatternPhase:
        return self.phases.all().get(pattern, PatternPhase(pattern))

    def judge(
        self, current: PatternPhase, after: State, evidence: Callable[[PatternPhase, State], Sequence[Line]]
    ) -> Judgement:
        """Evidence for and against a move. Raises: SettingsError if the move is impossible."""
        if fault := current.fault:
            raise SettingsError(fault)
        if fault := move_fault(current.state, after):
            raise SettingsError(f"pattern {current.pattern}: {fault}")
        return Judgement(current.pattern, current.state, after, current.version, evidence(current, after))

    def move(self, judged: Judgement, *, reason: str = "", override: bool = False) -> PatternPhase:
        """Move the pattern. The judged version must still be current.

        Raises: MovedError; SettingsError if the evidence is against it, without `override`.
        """
        if not judged.ok and not override:
            failing = ", ".join(line.name for line in judged.failing)
            raise SettingsError(f"pattern {judged.pattern}: the evidence is against it ({failing})")
        return self._moved(judged, reason, override=not judged.ok)

    def roll_back(
        self, current: PatternPhase, to: State | None, reason: str, lines: Sequence[Line] = ()
    ) -> PatternPhase:
        """Move the pattern back, without evidence; by default to the phase where SQL answers again.

        A phase edited by hand is first restored from its audit; that is all if it has no rollback.
        Raises: MovedError; SettingsError if you cannot roll back.
        """
        was_edited = bool(current.fault)
        current = self.phases.mend(current.pattern) if was_edited else current
        after = to or way_back(current.state)
        fault = move_fault(current.state, after)
        if was_edited and not is_back(current.state, after):
            return current
        if fault or not is_back(current.state, after):
            why = fault or f"you cannot roll back from {current.state} to {after}"
            raise SettingsError(f"pattern {current.pattern}: {why}")
        return self._moved(Judgement(current.pattern, current.state, after, current.version, lines), reason)

    def go_back(
        self, current: PatternPhase, to: State | None, reason: str, lines: Sequence[Line]
    ) -> PatternPhase:
        """Roll back from complete, once SQL is the truth again (stages/cutover/rollback.py).

        Raises: MovedError; SettingsError if the pattern is not complete, or its phase was edited by hand.
        """
        after = to or State("shadow")
        if current.fault or current.state.phase != "complete" or after.phase not in ("off", "shadow"):
            why = current.fault or f"from {current.state} it does not go to {after} this way"
            raise SettingsError(f"pattern {current.pattern}: {why}")
        return self._moved(Judgement(current.pattern, current.state, after, current.version, lines), reason)

    def _moved(self, judged: Judgement, reason: str, *, override: bool = False) -> PatternPhase:
        change = (judged.pattern, judged.before, judged.after, self.who, reason, judged.as_json())
        return self.phases.move(Move(*change, override=override, revision=self.revision), judged.version)


def next_step(state: State) -> State:
    if state.phase == "complete":
        raise SettingsError("it is complete: there is nothing beyond")
    after = FORWARD[state.phase]
    return State(after, FIRST_PERCENT) if after == "ramp" else State(after)


def way_back(state: State) -> State:
    return State("off") if state.phase in ("off", "shadow") else State("shadow")


# ── Whether items are still written from rows, checked before old rows could overwrite newer items ──

ANSWERING = [phase for phase, route in ROUTES.items() if "table" in (route.answers, route.in_share)]
FORCE = "pass --force if the service has not written to the table yet"


class WriteOwnership(Struct, frozen=True):
    """`direct`: entities the service writes itself, by the job file.
    `direct_on_record`: the same, by the journal.
    """

    mapping: MappingModel
    direct: Sequence[str]
    phases: Phases
    direct_on_record: Callable[[], frozenset[str]]

    def need_rows(self, advice: str = FORCE, *, force: bool = False) -> None:
        """Raises: as need_direct; SettingsError with `advice` if every pattern is complete, unless `force`."""
        self.need_direct()
        if not force:
            self.refuse_complete(advice)

    def refuse_complete(self, advice: str = FORCE) -> None:
        """Raises: SettingsError with `advice` if every pattern is complete, so that the service may write the
        table."""
        if self.is_service():
            what = "every access pattern is complete, so the service may have written to the table itself"
            raise SettingsError(
                f"{what}: old rows would be put over newer items (see docs/after.md); {advice}"
            )

    def is_service(self) -> bool:
        """Whether every pattern is complete, so that the service may write the table; never without patterns."""
        patterns = self.mapping.patterns
        return bool(patterns) and not self._incomplete(list(patterns))

    def refuse_answering(self, entities: Collection[str]) -> None:
        """Raises: SettingsError if callers may be answered from items of the entities.

        For an entity that the mapping no longer has, each former pattern counts.
        """
        phases = self.phases.all()
        reading = [name for name in patterns_reading(self.mapping, sorted(entities)) if name in phases]
        if any(name.partition("@")[0] not in self.mapping.entities for name in entities):
            reading += [name for name in phases if name not in self.mapping.patterns]
        answering = [
            f"{name} ({phases[name].state})" for name in reading if phases[name].state.phase in ANSWERING
        ]
        if answering:
            what = f"callers are answered from these items: {', '.join(answering)}"
            advice = "`migrator cutover rollback` these patterns to shadow or off first, or pass --force"
            raise SettingsError(f"{what}; {advice}")

    def need_direct(self) -> None:
        """Raises: SettingsError if job and journal disagree about direct entities, if all are direct, or if a
        pattern that reads one may still query SQL: old rows would overwrite newer items, or items would
        become stale."""
        self.refuse_taken_out()
        self.refuse_all_direct()
        reading = patterns_reading(self.mapping, self.direct)
        early = self._incomplete(reading) if reading else []
        if early:
            what = f"writes.direct names {', '.join(self.direct)}, and {', '.join(early)} is not complete"
            raise SettingsError(f"{what}: their items would no longer follow the rows; complete them first")

    def refuse_taken_out(self) -> None:
        if taken_out := sorted(self.direct_on_record() - set(self.direct)):
            names = ", ".join(taken_out)
            what = f"the service writes {names} itself, and writes.direct of this job does not name it"
            raise SettingsError(
                f"{what}: old rows would be put over newer items; `migrator cutover rollback JOB PATTERN` makes rows the"
                " truth again, or write it there again"
            )

    def refuse_all_direct(self) -> None:
        if self.mapping.entities and set(self.direct) >= self.mapping.entities.keys():
            what = "writes.direct names every entity, and nothing is left to migrate"
            raise SettingsError(
                f"{what}; see `migrator decommission check`, or `migrator reverse` to be able to roll back"
            )

    def _incomplete(self, patterns: Sequence[str]) -> list[str]:
        phases = self.phases.all()
        return [name for name in patterns if name not in phases or phases[name].state.phase != "complete"]


# ── The watch: patterns that do worse than SQL, or differ, move back by themselves ──


SURE = 1e-6
"""A limit counts as passed if chance alone explains the counts with less than this probability. The same counts are
tested thousands of times, so it is far below what a single test would need."""
LONGEST_S = 6 * 3600.0
"""After an older move, only calls of this time are read at first: reading days of them every few seconds would be
slow."""
ENOUGH = 5000
"""Calls that prove twice our narrowest default limit; with fewer the watch reads further back."""
LAG_AGAIN_S = 300.0
LONGEST_FAILED_S = 60.0
_log = get_logger("watch")


@dataclass
class Watch:
    """Moves patterns back that pass their limits. `tell`: called with each move back."""

    phases: Phases
    evidence: Evidence
    patterns: Mapping[str, Pattern]
    limits: WatchSettings
    cutover: Cutover
    tell: Callable[[Judgement], None]
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why a pattern could not be checked the last time, by its name."""

    def once(self) -> list[Judgement]:
        """Check every pattern that the table answers, and return those moved back.

        A pattern that cannot be checked (see `faults`) does not stop the others. Raises: StoppedError if the
        journal is unreachable.
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

    def _look(self, phase: PatternPhase, now_s: float) -> Judgement | None:
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
        return Judgement(phase.pattern, phase.state, after, moved.version, passed, reason)

    def _windows(self, phase: PatternPhase, now_s: float) -> list[Window]:
        """Services' windows since the move; only the latest of a pattern with many calls.

        Instances begin a window when they see a move; older windows may contain a fault fixed before it.
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
    """Limits certainly passed, by all windows or by the latest ones; each once."""
    lately = [window for window in windows if window.begun_at >= now_s - limits.lately_s]
    by_name: dict[str, Line] = {}
    for some, since in ((windows, "since the move"), (lately, f"in the last {limits.lately_s:g} s")):
        for line in passed_by(pattern, counted(some), limits, since):
            by_name.setdefault(line.name, line)
    return list(by_name.values())


def passed_by(
    pattern: Pattern | None, counts: Aggregate, limits: WatchSettings, since: str
) -> Iterator[Line]:
    """Limits that these counts prove to be passed. `since`: describes the calls."""
    answers = counts.compared + counts.unsettled
    # Estimates from a few calls prove nothing.
    guessed = _lasting(counts) if answers >= limits.answers_min else 0
    differ = f"answers differ ({guessed:,} guessed from those never settled)" if guessed else "answers differ"
    errors, calls = counts.errors["table"], counts.calls("table")
    shares = (
        ("mismatches", counts.different + guessed, answers, limits.mismatch_max, differ),
        ("errors", errors, calls, limits.error_max, "calls of the table fail"),
    )
    for name, count, of, limit, what in shares:
        if is_passed(count, of, limit):
            yield Line(name, f"{limit:.2%}", f"{count:,} of {of:,} {what} {since} ({count / of:.2%})", "no")
    table = counts.latency["table"]
    limit_ms = _limit_ms(pattern, counts, limits) if table.answers >= limits.answers_min else None
    if limit_ms is None or table.p99_ms <= limit_ms:
        return
    if is_passed(table.above(limit_ms), table.answers, 0.01):
        yield Line("p99", f"{limit_ms:,.1f} ms", f"{table.p99_ms:,.1f} ms {since}", "no")


def _lasting(counts: Aggregate) -> int:
    """Estimate of lasting differences among the unsettled ones, by the settled ones' share; all if none is.

    Differences cut off by a process's end do not count: deploying relay and service at once would move
    patterns back.
    """
    share = (counts.different + 1) / (counts.different + counts.transient + 1)
    return round(counts.unsettled * share)


def is_passed(count: int, of: int, limit: float) -> bool:
    """Whether `count` of `of` prove a share above the limit; a few calls rarely do."""
    return of > 0 and chance_of_more(count, of, limit) < SURE


def _limit_ms(pattern: Pattern | None, counts: Aggregate, limits: WatchSettings) -> float | None:
    old = counts.latency["sql"]
    by_sql = old.p99_ms * limits.p99_factor if old.answers >= SIDES_MIN else None
    budget = pattern.p99_ms if pattern is not None else None
    limits_ms = [limit_ms for limit_ms in (by_sql, budget) if limit_ms is not None]
    return max(limits_ms) if limits_ms else None


@dataclass
class LagWatch:
    """Calls `tell` when the relay falls behind, and every five minutes while it stays behind. `clock`: seconds."""

    marks: Callable[[], MarksState]
    lag_max_s: float
    tell: Callable[[MarksState], object]
    clock: Callable[[], float]
    _told_at: float | None = None

    def once(self) -> None:
        self.see(self.marks())

    def see(self, state: MarksState) -> None:
        if state.oldest_age_s <= self.lag_max_s:
            self._told_at = None
        elif self._told_at is None or self.clock() - self._told_at >= LAG_AGAIN_S:
            self._told_at = self.clock()
            _log.warning("lag_high", oldest_age_s=round(state.oldest_age_s, 1), waiting=state.waiting)
            self.tell(state)


def keep_watch(looks: Sequence[Callable[[], object]], every_s: float, stop: Event) -> None:
    """Run the checks until `stop`. A failed check is logged and retried with growing waits; the others continue."""
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


_hooks_log = get_logger("hooks")


# ── Hooks: the operators' own programs, run on events, bounded in time; their failure fails nothing else ──


def tell(hooks: Sequence[Hook], kind: EventKind, job: str, /, **fields: Any) -> None:
    """Run every hook of this kind in turn, with the event as JSON on its standard input.

    `fields`: never values of a row. A failing hook is logged; a slow one is killed with its children.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    event = json.dumps({"event": kind, "job": job, "at": at, **fields}, ensure_ascii=False)
    for number, hook in enumerate(hooks):
        if kind in hook.on and (why := _run(hook, event)):
            _hooks_log.warning("hook_failed", hook=number, hooked=kind, reason=why)


def _run(hook: Hook, event: str) -> str:
    """Why the hook failed, '' if it did not. Its output is not quoted, since it may contain a secret."""
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
    else:  # Windows has no process groups: processes started by the hook continue.
        process.kill()
    # Not communicate(): the hook's children may have left the group, and keep the pipe open for ever.
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
