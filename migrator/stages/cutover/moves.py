"""Cutover: an access pattern moved from phase to phase, forward on evidence and back at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migrator.model.errors import SettingsError
from migrator.model.evidence import Judgement, Line, Move, PatternPhase, Phases
from migrator.model.phase import FORWARD, State, is_back, move_fault

FIRST_PERCENT = 1
"""Of a ramp that begins by itself."""


@dataclass(frozen=True)
class Cutover:
    """`who`: who moves, as the audit names them. `revision`: of the mapping."""

    phases: Phases
    who: str
    revision: str = ""

    def phase(self, pattern: str) -> PatternPhase:
        return self.phases.all().get(pattern, PatternPhase(pattern))

    def judge(
        self, known: PatternPhase, after: State, evidence: Callable[[PatternPhase, State], Sequence[Line]]
    ) -> Judgement:
        """What speaks for a move and what against it. Raises: SettingsError where no evidence could make it a move."""
        if fault := known.fault:
            raise SettingsError(fault)
        if fault := move_fault(known.state, after):
            raise SettingsError(f"pattern {known.pattern}: {fault}")
        return Judgement(known.pattern, known.state, after, known.version, evidence(known, after))

    def move(self, judged: Judgement, *, reason: str = "", override: bool = False) -> PatternPhase:
        """The pattern's new phase. The version that was judged must still be its version.

        Raises: MovedError; SettingsError where the evidence is against it and it is not to be overridden.
        """
        if not judged.ok and not override:
            failing = ", ".join(line.name for line in judged.failing)
            raise SettingsError(f"pattern {judged.pattern}: the evidence is against it ({failing})")
        move = Move(
            judged.pattern,
            judged.before,
            judged.after,
            self.who,
            reason,
            judged.as_json(),
            override=not judged.ok,
            revision=self.revision,
        )
        return self.phases.move(move, judged.version)

    def roll_back(
        self, known: PatternPhase, to: State | None, reason: str, lines: Sequence[Line] = ()
    ) -> PatternPhase:
        """The pattern's phase after a move back, which needs no evidence; `to` None: where SQL answers again.

        One that was edited by hand is first what its audit says, and only that where there is no way back from it.
        Raises: MovedError; SettingsError where there is no way back.
        """
        was_edited = bool(known.fault)
        known = self.phases.mend(known.pattern) if was_edited else known
        after = to or way_back(known.state)
        fault = move_fault(known.state, after)
        if was_edited and not is_back(known.state, after):
            return known
        if fault or not is_back(known.state, after):
            why = fault or f"{after} is no way back from {known.state}"
            raise SettingsError(f"pattern {known.pattern}: {why}")
        judged = Judgement(known.pattern, known.state, after, known.version, lines)
        move = Move(
            known.pattern, known.state, after, self.who, reason, judged.as_json(), revision=self.revision
        )
        return self.phases.move(move, known.version)


def next_step(state: State) -> State:
    """Where `advance` goes. Raises: SettingsError at the end."""
    if state.phase == "complete":
        raise SettingsError("it is complete: there is nothing beyond")
    after = FORWARD[state.phase]
    return State(after, FIRST_PERCENT) if after == "ramp" else State(after)


def way_back(state: State) -> State:
    """Where a rollback goes that names nothing: to shadow, where SQL answers and both are compared; from there to off."""
    return State("off") if state.phase in ("off", "shadow") else State("shadow")
