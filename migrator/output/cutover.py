"""Phases, evidence, moves and service instances, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from migrator.model.durations import age_text, moment
from migrator.model.evidence import Judgement, Line, Move, PatternPhase, Verdict, lines_of
from migrator.model.instances import Instance, ServiceRegistry
from migrator.model.phase import FORWARD, ROUTES, State
from migrator.output.text import whole_names

# ── Phases, evidence and the audit of moves, for people and programs ──

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
    service_registry: ServiceRegistry,
    confirmed: Mapping[str, Mapping[str, int]],
) -> list[PhaseView]:
    """All patterns of the mapping, then those that only the journal knows."""
    readers = [one.id for one in service_registry.living if one.reads]
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


# ── The instances of a job's services, for people and programs ──

_SILENT_SHOWN = 3
_NOT_TOLD = ("sees", "born")


def who(one: Instance) -> str:
    """An instance in words: its service, where it runs."""
    return f"{' '.join(filter(None, (one.service, one.version)))} on {one.host}:{one.pid}"


def marking_line(service_registry: ServiceRegistry) -> str:
    """Who leaves the marks where no trigger does, for people."""
    count = len(service_registry.marking)
    if not count:
        return "marked by services; no instance is alive, so changes leave no mark"
    return f"marked by services; {count} instance{'s' if count > 1 else ''} alive mark{'' if count > 1 else 's'} changes"


def instances_data(service_registry: ServiceRegistry, revision: str | None) -> list[dict[str, Any]]:
    """`revision`: of the job's mapping; None where it cannot be read."""
    return [
        {name: value for name, value in asdict(one).items() if name not in _NOT_TOLD}
        | {
            "age_s": round(service_registry.age_s(one), 1),
            "alive": service_registry.age_s(one) < service_registry.gone_s,
            "fits": None if revision is None else one.revision == revision,
        }
        for one in service_registry.known
    ]


def instances_table(service_registry: ServiceRegistry, revision: str | None) -> Table:
    """Those that live, a line each; made for 80 columns."""
    table = Table(box=None, pad_edge=False)
    for column in ("service", "where"):
        table.add_column(column, overflow="fold")
    for column in ("role", "mode", "mapping", "heard of"):
        table.add_column(column, no_wrap=True)
    for one in service_registry.living:
        name = " ".join(filter(None, (one.service, one.version)))
        cells = (f"{one.host}:{one.pid}", one.role, one.mode or "-", _fits(one, revision))
        table.add_row(*map(Text, (name, *cells, f"{age_text(service_registry.age_s(one))} ago")))
    return table


def instances_lines(
    service_registry: ServiceRegistry, revision: str | None, own_version: str
) -> Iterator[str]:
    """What is to be said beside the table: mappings and versions that differ, and who said no goodbye."""
    if others := [
        one for one in service_registry.living if revision is not None and one.revision != revision
    ]:
        yield f"mapping differs ({len(others)}): start what has an old mapping again, or mend the job's"
    versions = sorted({one.migrator for one in service_registry.living} - {own_version})
    if versions:
        yield f"some run migrator {', '.join(versions)}; this is {own_version}"
    silent = service_registry.silent
    for one in silent[:_SILENT_SHOWN]:
        yield f"no goodbye, silent for {age_text(service_registry.age_s(one))}: {who(one)}"
    if len(silent) > _SILENT_SHOWN:
        yield f"no goodbye of {len(silent) - _SILENT_SHOWN} more before that (see --json)"


def _fits(one: Instance, revision: str | None) -> str:
    if revision is None:
        return "?"
    return "fits" if one.revision == revision else "differs"
