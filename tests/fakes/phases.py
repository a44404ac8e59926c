"""Phases of access patterns in memory; it passes the contract tests of the journal's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock

from migrator.model.edges import KeptPhase
from migrator.model.errors import SettingsError
from migrator.model.evidence import Move, MovedError, PatternPhase
from migrator.model.phase import state_named


class FakePhases:
    """model.evidence.Phases of one job. `clock`: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._phases: dict[str, PatternPhase] = {}
        self._moves: list[Move] = []
        self._confirmed: dict[str, dict[str, int]] = {}
        self._lock = Lock()

    def all(self) -> dict[str, PatternPhase]:
        with self._lock:
            return dict(self._phases)

    def move(self, move: Move, version: int) -> PatternPhase:
        with self._lock:
            known = self._phases.get(move.pattern, PatternPhase(move.pattern))
            if known.version != version or known.state != move.before:
                first = [one for one in self._moves if one.pattern == move.pattern][-1:]
                who = f": {first[0].who} moved it from {first[0].before}" if first else ""
                raise MovedError(f"pattern {move.pattern} is in {known.state} by now{who}")
            made = PatternPhase(move.pattern, move.after, version + 1, self.clock())
            self._phases[move.pattern] = made
            self._moves.append(replace(move, version=made.version, at=made.since))
            return made

    def mend(self, pattern: str) -> PatternPhase:
        """Nobody edits these by hand."""
        return self.all().get(pattern, PatternPhase(pattern))

    def take_over(self, pattern: str, kept: KeptPhase, who: str, reason: str) -> PatternPhase:
        state = state_named(kept.phase)
        if state is None:
            raise SettingsError(f"the table keeps of pattern {pattern} what is no phase")
        with self._lock:
            known = self._phases.get(pattern, PatternPhase(pattern))
            version = max(kept.version, known.version + 1)
            made = self._phases[pattern] = PatternPhase(pattern, state, version, self.clock())
            move = Move(pattern, known.state, state, who, reason)
            self._moves.append(replace(move, version=version, at=made.since))
        return made

    def history(self, pattern: str | None = None) -> list[Move]:
        with self._lock:
            return [one for one in self._moves if pattern in (None, one.pattern)]

    def confirm(self, instance: str, versions: Mapping[str, int]) -> None:
        with self._lock:
            self._confirmed[instance] = dict(versions)

    def confirmed(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {instance: dict(versions) for instance, versions in self._confirmed.items() if versions}
