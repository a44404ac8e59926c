"""Phases of access patterns in memory; it passes the contract tests of the journal's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from migrator.mapping.model.edges import KeptPhase
from migrator.mapping.model.evidence import Move, MovedError, PatternPhase, State, share_fits, state_named
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace


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
            current = self._phases.get(move.pattern, PatternPhase(move.pattern))
            if current.version != version or current.state != move.before:
                first = [earlier for earlier in self._moves if earlier.pattern == move.pattern][-1:]
                who = f": {first[0].who} moved it from {first[0].before}" if first else ""
                raise MovedError(f"pattern {move.pattern} is now in {current.state}{who}")
            moved = PatternPhase(move.pattern, move.after, version + 1, self.clock())
            self._phases[move.pattern] = moved
            self._moves.append(replace(move, version=moved.version, at=moved.since))
            return moved

    def mend(self, pattern: str) -> PatternPhase:
        """These are never edited by hand."""
        return self.all().get(pattern, PatternPhase(pattern))

    def take_over(self, pattern: str, kept: KeptPhase, who: str, reason: str) -> PatternPhase:
        state = state_named(kept.phase)
        if state is None:
            raise SettingsError(f"the table stores an invalid phase of pattern {pattern}")
        state = state if share_fits(state) else State("shadow")
        with self._lock:
            current = self._phases.get(pattern, PatternPhase(pattern))
            version = max(kept.version, current.version + 1)
            taken_over = self._phases[pattern] = PatternPhase(pattern, state, version, self.clock())
            move = Move(pattern, current.state, state, who, reason)
            self._moves.append(replace(move, version=version, at=taken_over.since))
        return taken_over

    def history(self, pattern: str | None = None) -> list[Move]:
        with self._lock:
            return [move for move in self._moves if pattern in (None, move.pattern)]

    def confirm(self, instance: str, versions: Mapping[str, int]) -> None:
        with self._lock:
            self._confirmed[instance] = dict(versions)

    def confirmed(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {instance: dict(versions) for instance, versions in self._confirmed.items() if versions}
