"""Cutover: moves an access pattern from phase to phase, forward on evidence and back at any time; and write ownership:
whether items are written from rows or by the service itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from migrator.mapping.check.keys import patterns_reading
from migrator.mapping.model.evidence import (
    FORWARD,
    ROUTES,
    Judgement,
    Line,
    Move,
    PatternPhase,
    Phases,
    State,
    is_back,
    move_fault,
)
from migrator.mapping.model.mapping import Mapping
from migrator.runtime.errors import SettingsError

FIRST_PERCENT = 1
"""The first step of a ramp, where no percentage is given."""


class Cutover(Struct, frozen=True):
    """`who`: the operator's name in the audit. `revision`: of the mapping."""

    phases: Phases
    who: str
    revision: str = ""

    def phase(self, pattern: str) -> PatternPhase:
        return self.phases.all().get(pattern, PatternPhase(pattern))

    def judge(
        self, current: PatternPhase, after: State, evidence: Callable[[PatternPhase, State], Sequence[Line]]
    ) -> Judgement:
        """The evidence for and against a move. Raises: SettingsError where the move is not possible at all."""
        if fault := current.fault:
            raise SettingsError(fault)
        if fault := move_fault(current.state, after):
            raise SettingsError(f"pattern {current.pattern}: {fault}")
        return Judgement(current.pattern, current.state, after, current.version, evidence(current, after))

    def move(self, judged: Judgement, *, reason: str = "", override: bool = False) -> PatternPhase:
        """The pattern's new phase. The version that was judged must still be current.

        Raises: MovedError; SettingsError where the evidence is against it, without `override`.
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
        self, current: PatternPhase, to: State | None, reason: str, lines: Sequence[Line] = ()
    ) -> PatternPhase:
        """The pattern's phase after a move back, which needs no evidence; `to` None: the phase where SQL answers again.

        A phase that was edited by hand is first restored from its audit, and only that where there is no way back from it.
        Raises: MovedError; SettingsError where there is no way back.
        """
        was_edited = bool(current.fault)
        current = self.phases.mend(current.pattern) if was_edited else current
        after = to or way_back(current.state)
        fault = move_fault(current.state, after)
        if was_edited and not is_back(current.state, after):
            return current
        if fault or not is_back(current.state, after):
            why = fault or f"{after} is no way back from {current.state}"
            raise SettingsError(f"pattern {current.pattern}: {why}")
        judged = Judgement(current.pattern, current.state, after, current.version, lines)
        move = Move(
            current.pattern, current.state, after, self.who, reason, judged.as_json(), revision=self.revision
        )
        return self.phases.move(move, current.version)

    def go_back(
        self, current: PatternPhase, to: State | None, reason: str, lines: Sequence[Line]
    ) -> PatternPhase:
        """The pattern's phase after a rollback from complete, once SQL is the truth again (stages/cutover/rollback.py).

        Raises: MovedError; SettingsError where it is not complete, or its phase was edited by hand.
        """
        after = to or State("shadow")
        if current.fault or current.state.phase != "complete" or after.phase not in ("off", "shadow"):
            why = current.fault or f"from {current.state} it does not go to {after} this way"
            raise SettingsError(f"pattern {current.pattern}: {why}")
        evidence = Judgement(current.pattern, current.state, after, current.version, lines).as_json()
        move = Move(current.pattern, current.state, after, self.who, reason, evidence, revision=self.revision)
        return self.phases.move(move, current.version)


def next_step(state: State) -> State:
    """The state that `advance` moves to. Raises: SettingsError where it is complete."""
    if state.phase == "complete":
        raise SettingsError("it is complete: there is nothing beyond")
    after = FORWARD[state.phase]
    return State(after, FIRST_PERCENT) if after == "ramp" else State(after)


def way_back(state: State) -> State:
    """The default state of a rollback: shadow, where SQL answers and both sides are compared; from shadow it is off."""
    return State("off") if state.phase in ("off", "shadow") else State("shadow")


# ── Whether items are still written from rows, checked before old rows could overwrite newer items ──

ANSWERING = [phase for phase, route in ROUTES.items() if "table" in (route.answers, route.in_share)]
FORCE = "say --force where you know that the service has not written to the table yet"


class WriteOwnership(Struct, frozen=True):
    """Write ownership of a job's items. `direct`: entities that the service writes itself, by the job;
    `direct_on_record`: those by the journal."""

    mapping: Mapping
    direct: Sequence[str]
    phases: Phases
    direct_on_record: Callable[[], frozenset[str]]

    def need_rows(self, advice: str = FORCE) -> None:
        """Raises: as need_direct does; SettingsError with `advice` where every pattern is complete."""
        self.need_direct()
        self.refuse_complete(advice)

    def refuse_complete(self, advice: str = FORCE) -> None:
        """Raises: SettingsError with `advice` where every pattern is complete, so that the service may write the table."""
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
        """Raises: SettingsError where callers are, or may be, answered from items of the entities: of one that the mapping
        does not have any more by each pattern that it does not have either."""
        phases = self.phases.all()
        reading = [name for name in patterns_reading(self.mapping, sorted(entities)) if name in phases]
        if any(name.partition("@")[0] not in self.mapping.entities for name in entities):
            reading += [name for name in phases if name not in self.mapping.patterns]
        answering = [
            f"{name} ({phases[name].state})" for name in reading if phases[name].state.phase in ANSWERING
        ]
        if answering:
            what = f"callers are answered from these items: {', '.join(answering)}"
            advice = "`migrator cutover rollback` these patterns to shadow or off first, or say --force"
            raise SettingsError(f"{what}; {advice}")

    def need_direct(self) -> None:
        """Raises: SettingsError where the job and the journal disagree about direct entities, where all are direct, or where
        a pattern that reads one may still ask SQL: old rows would be put over newer items, or items grow old."""
        self.refuse_taken_out()
        self.refuse_all_direct()
        reading = patterns_reading(self.mapping, self.direct)
        early = self._incomplete(reading) if reading else []
        if early:
            what = f"writes.direct names {', '.join(self.direct)}, and {', '.join(early)} is not complete"
            raise SettingsError(f"{what}: their items would no longer follow the rows; complete them first")

    def refuse_taken_out(self) -> None:
        """Raises: SettingsError where the service writes an entity itself, and the job does not say so."""
        if taken_out := sorted(self.direct_on_record() - set(self.direct)):
            names = ", ".join(taken_out)
            what = f"the service writes {names} itself, and writes.direct of this job does not say so"
            raise SettingsError(
                f"{what}: old rows would be put over newer items; `migrator cutover rollback JOB PATTERN` makes rows the"
                " truth again, or write it there again"
            )

    def refuse_all_direct(self) -> None:
        """Raises: SettingsError where no entity is left whose items are made of rows."""
        if self.mapping.entities and set(self.direct) >= self.mapping.entities.keys():
            what = "writes.direct names every entity, and nothing is left to migrate"
            raise SettingsError(
                f"{what}; see `migrator decommission check`, or `migrator reverse` for a way back"
            )

    def _incomplete(self, patterns: Sequence[str]) -> list[str]:
        phases = self.phases.all()
        return [name for name in patterns if name not in phases or phases[name].state.phase != "complete"]
