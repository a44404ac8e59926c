"""Phases, evidence and the audit of moves, for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from migrator.cutover_results import Judgement, Line, Verdict, lines_of
from migrator.moments import age_text, moment
from migrator.phase import FORWARD, ROUTES, State
from migrator.ports.instances import Roster
from migrator.ports.phases import Move, PatternPhase
from migrator.report.shapes import whole_names

_COLOURS: Mapping[Verdict, str] = {"ok": "green", "no": "bold red", "unknown": "yellow"}


@dataclass(frozen=True)
class PhaseView:
    """A pattern's phase beside what readers confirmed. `is_mapped`: whether the mapping has the pattern."""

    phase: PatternPhase
    readers: int
    confirmed: int
    is_mapped: bool = True


def views(
    patterns: Sequence[str],
    phases: Mapping[str, PatternPhase],
    roster: Roster,
    confirmed: Mapping[str, Mapping[str, int]],
) -> list[PhaseView]:
    """All patterns of the mapping, then those that only the journal knows."""
    readers = [one.id for one in roster.living if one.reads]
    names = [*patterns, *sorted(set(phases) - set(patterns))]
    found = []
    for name in names:
        phase = phases.get(name, PatternPhase(name))
        agree = sum(confirmed.get(one, {}).get(name, 0) == phase.version for one in readers)
        found.append(PhaseView(phase, len(readers), agree, name in patterns))
    return found


def direct_line(names: Sequence[str]) -> str:
    """Which entities the job says that the service writes past SQL."""
    return f"written to the table by the service itself: {', '.join(names)}"


def views_data(found: Sequence[PhaseView]) -> list[dict[str, Any]]:
    return [
        {
            "pattern": one.phase.pattern,
            "phase": one.phase.state.phase,
            "percent": one.phase.state.percent,
            "version": one.phase.version,
            "since": moment(one.phase.since) if one.phase.version else None,
            "table_answers_percent": table_share(one.phase.state),
            "readers": one.readers,
            "confirmed": one.confirmed,
            "in_mapping": one.is_mapped,
            "fault": one.phase.fault,
        }
        for one in found
    ]


def views_table(found: Sequence[PhaseView], now_s: float) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in (
        "pattern",
        "phase",
        "for",
        "the table answers",
        "compared",
        "readers that act by it",
        "next",
    ):
        table.add_column(column, overflow="fold")
    for one in found:
        phase = one.phase
        lasted = age_text(max(0.0, now_s - phase.since)) if phase.version else "-"
        cells = (
            phase.pattern,
            str(phase.state),
            lasted,
            f"{table_share(phase.state)} %",
            "yes" if ROUTES[phase.state.phase].compares else "no",
            f"{one.confirmed} of {one.readers}",
            _next(one),
        )
        table.add_row(*map(Text, cells))
    return whole_names(table, (one.phase.pattern for one in found))


def _next(one: PhaseView) -> str:
    if one.phase.fault:
        return "roll it back: it was edited by hand"
    if not one.is_mapped:
        return "the mapping has no such pattern: roll it back, or put it there again"
    state = one.phase.state
    if state.phase == "complete":
        return "nothing"
    if state.phase == "ramp" and state.percent < 100:
        return "a higher ramp"
    return FORWARD[state.phase]


def table_share(state: State) -> int:
    """How many percent of the calls the table answers."""
    route = ROUTES[state.phase]
    return 100 if route.answers == "table" else state.percent


# ── evidence ──


def judgement_table(lines: Sequence[Line]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("evidence", "asked", "found", "age", "", "what mends it"):
        table.add_column(column, overflow="fold")
    for line in lines:
        verdict = Text(line.verdict, style=_COLOURS[line.verdict])
        age = "now" if line.age_s is None else age_text(line.age_s)
        texts = (line.name, line.asked, line.found, age)
        table.add_row(*map(Text, texts), verdict, Text(line.mend))
    return table


def judgement_data(judged: Judgement) -> dict[str, Any]:
    return {
        "pattern": judged.pattern,
        "from": str(judged.before),
        "to": str(judged.after),
        "ok": judged.ok,
        "evidence": [asdict(line) for line in judged.lines],
    }


def refusal(judged: Judgement) -> str:
    failing = ", ".join(line.name for line in judged.failing)
    what = f"refused: {judged.pattern} stays in {judged.before}; not proven: {failing}"
    return f'{what}. Mend it, or say --override "why"'


# ── the audit ──


def history_lines(moves: Sequence[Move]) -> Iterator[str]:
    for one in moves:
        against = " against the evidence" if one.override else ""
        why = f": {one.reason}" if one.reason else ""
        yield f"{moment(one.at)}  {one.pattern}  {one.before} -> {one.after}  by {one.who}{against}{why}{_by_what(one)}"


def _by_what(one: Move) -> str:
    """Which lines were right and which not, '' where none was asked; --json has all that they said."""
    lines = lines_of(one.evidence)
    if lines is None:
        return " (its evidence cannot be read)"
    right = sum(line.verdict == "ok" for line in lines)
    others = {
        verdict: ", ".join(line.name for line in lines if line.verdict == verdict)
        for verdict in ("no", "unknown")
    }
    said = [f"{right} ok"] * bool(right) + [
        f"{verdict}: {names}" for verdict, names in others.items() if names
    ]
    return f" (evidence: {'; '.join(said)})" if said else ""


def history_data(moves: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "pattern": one.pattern,
            "version": one.version,
            "at": moment(one.at),
            "who": one.who,
            "from": str(one.before),
            "to": str(one.after),
            "reason": one.reason,
            "override": one.override,
            "revision": one.revision,
            "evidence": one.evidence
            if (lines := lines_of(one.evidence)) is None
            else list(map(asdict, lines)),
        }
        for one in moves
    ]
