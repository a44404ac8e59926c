"""Phases, evidence, moves and service instances, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from migrator.cli.text import FittedTable, table_of
from migrator.mapping.model.durations import age_text, moment
from migrator.mapping.model.evidence import (
    FORWARD,
    ROUTES,
    Judgement,
    Line,
    Move,
    PatternPhase,
    State,
    Verdict,
    lines_of,
)
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.runtime.errors import amount
from migrator.runtime.values import asdict, picked

# ── Phases, evidence and the audit of moves, for people and programs ──

_COLOURS: Mapping[Verdict, str] = {"ok": "green", "no": "bold red", "unknown": "yellow"}


class PhaseView(Struct, frozen=True):
    """`is_mapped`: the mapping has the pattern."""

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
    """The mapping's patterns, then those that only the journal knows."""
    readers = [instance.id for instance in service_registry.living if instance.reads]
    seen = [confirmed.get(reader, {}) for reader in readers]
    return [
        PhaseView(
            phase, len(readers), sum(one.get(name, 0) == phase.version for one in seen), name in patterns
        )
        for name, phase in _known(patterns, phases).items()
    ]


def _known(patterns: Sequence[str], phases: Mapping[str, PatternPhase]) -> dict[str, PatternPhase]:
    names = [*patterns, *sorted(set(phases) - set(patterns))]
    return {name: phases.get(name, PatternPhase(name)) for name in names}


def direct_line(names: Sequence[str]) -> str:
    return f"written to the table by the service itself: {', '.join(names)}"


def views_data(phase_views: Sequence[PhaseView]) -> list[dict[str, Any]]:
    return [
        {
            "pattern": view.phase.pattern,
            **_phase_entry(view.phase),
            "table_answers_percent": table_share(view.phase.state),
            "readers": view.readers,
            "confirmed": view.confirmed,
            "in_mapping": view.is_mapped,
        }
        for view in phase_views
    ]


PHASES_FORMAT = 1
"""Version of the document for other languages; raised when a key is removed or changes its meaning, not when one is
added."""


def phases_document(
    job: str, patterns: Sequence[str], phases: Mapping[str, PatternPhase], age_s: float
) -> dict[str, Any]:
    """Phases for services that do not use migrator as a library. `age_s`: since they were read."""
    return {
        "format": PHASES_FORMAT,
        "job": job,
        "age_s": round(age_s, 3),
        "patterns": {name: _phase_entry(phase) for name, phase in _known(patterns, phases).items()},
    }


def _phase_entry(phase: PatternPhase) -> dict[str, Any]:
    return {
        "phase": phase.state.phase,
        "percent": phase.state.percent,
        "for": [f"{param}={text}" for param, text in phase.state.audience],
        "version": phase.version,
        "since": moment(phase.since) if phase.version else None,
        "fault": phase.fault,
    }


def views_table(phase_views: Sequence[PhaseView], now_s: float) -> Table:
    columns = ("pattern", "phase", "for", "the table answers", "compared", "readers that act by it", "next")
    return table_of(columns, (_phase_cells(view, view.phase, now_s) for view in phase_views))


def _phase_cells(view: PhaseView, phase: PatternPhase, now_s: float) -> tuple[object, ...]:
    lasted = age_text(max(0.0, now_s - phase.since)) if phase.version else "-"
    compares = "yes" if ROUTES[phase.state.phase].compares else "no"
    readers = f"{view.confirmed} of {view.readers}"
    return phase.pattern, phase.state, lasted, f"{table_share(phase.state)} %", compares, readers, _next(view)


def _next(view: PhaseView) -> str:
    if view.phase.fault:
        return "roll it back: it was edited by hand"
    if not view.is_mapped:
        return "the mapping has no such pattern: roll it back, or put it there again"
    state = view.phase.state
    if state.phase == "complete":
        return "nothing"
    if state.phase == "ramp" and state.percent < 100:
        return "a higher ramp"
    return FORWARD[state.phase]


def table_share(state: State) -> int:
    route = ROUTES[state.phase]
    return 100 if route.answers == "table" else state.percent


# ── evidence ──


def evidence_shown(lines: Sequence[Line], *, every: bool) -> RenderableType:
    """The number of ok lines, and the other lines; with `every` all lines."""
    ok = sum(line.verdict == "ok" for line in lines)
    count = Text(f"evidence: {ok} of {len(lines)} ok")
    shown = [line for line in lines if every or line.verdict != "ok"]
    return Group(_evidence_table(shown), count) if shown else count


def _evidence_table(lines: Sequence[Line]) -> Table:
    table = FittedTable(box=None, pad_edge=False)
    for column in ("", "evidence", "required", "age", "found, and the fix"):
        table.add_column(column)
    for line in lines:
        verdict = Text(line.verdict, style=_COLOURS[line.verdict])
        age = "now" if line.age_s is None else age_text(line.age_s)
        texts = filter(None, (line.found, line.mend))
        found = "\n→ ".join(texts)
        table.add_row(verdict, *map(Text, (line.name, line.asked, age, found)))
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
    return f'{what}. Fix it, or pass --override "why"'


# ── the audit ──


def history_lines(moves: Sequence[Move]) -> Iterator[str]:
    for move in moves:
        against = " against the evidence" if move.override else ""
        why = f": {move.reason}" if move.reason else ""
        step = f"{move.pattern}  {move.before} -> {move.after}"
        yield f"{moment(move.at)}  {step}  by {move.who}{against}{why}{_by_what(move)}"


def _by_what(move: Move) -> str:
    lines = lines_of(move.evidence)
    if lines is None:
        return " (its evidence cannot be read)"
    right = sum(line.verdict == "ok" for line in lines)
    verdicts = [f"{right} ok"] if right else []
    for verdict in ("no", "unknown"):
        if names := ", ".join(line.name for line in lines if line.verdict == verdict):
            verdicts.append(f"{verdict}: {names}")
    return f" (evidence: {'; '.join(verdicts)})" if verdicts else ""


def history_data(moves: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "at": moment(move.at),
            "from": str(move.before),
            "to": str(move.after),
            **picked(move, "pattern", "version", "who", "reason", "override", "revision"),
            "evidence": move.evidence
            if (lines := lines_of(move.evidence)) is None
            else list(map(asdict, lines)),
        }
        for move in moves
    ]


# ── The instances of a job's services, for people and programs ──

_SILENT_SHOWN = 3
_NOT_PRINTED = ("sees", "born")


def instance_label(instance: Instance) -> str:
    return f"{' '.join(filter(None, (instance.service, instance.version)))} on {instance.host}:{instance.pid}"


def marking_line(service_registry: ServiceRegistry) -> str:
    count = len(service_registry.marking)
    if not count:
        return "captured by services; no instance is running, so changes are not captured"
    return f"captured by services; {amount(count, 'instance')} running"


def instances_data(service_registry: ServiceRegistry, revision: str | None) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in asdict(instance).items() if name not in _NOT_PRINTED}
        | {
            "age_s": round(service_registry.age_s(instance), 1),
            "alive": service_registry.age_s(instance) < service_registry.gone_s,
            "fits": None if revision is None else instance.revision == revision,
        }
        for instance in service_registry.known
    ]


def instances_table(service_registry: ServiceRegistry, revision: str | None) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("service", "where"):
        table.add_column(column, overflow="fold")
    for column in ("role", "mode", "mapping", "heard of"):
        table.add_column(column, no_wrap=True)
    for instance in service_registry.living:
        name = " ".join(filter(None, (instance.service, instance.version)))
        where, age = f"{instance.host}:{instance.pid}", age_text(service_registry.age_s(instance))
        cells = (name, where, instance.role, instance.mode or "-", _fits(instance, revision), f"{age} ago")
        table.add_row(*map(Text, cells))
    return table


def instances_lines(
    service_registry: ServiceRegistry, revision: str | None, own_version: str
) -> Iterator[str]:
    if others := [_fits(one, revision) for one in service_registry.living].count("differs"):
        yield f"mapping differs ({others}): restart what has an old mapping, or fix the job's"
    versions = sorted({instance.migrator for instance in service_registry.living} - {own_version})
    if versions:
        yield f"some run migrator {', '.join(versions)}; this is {own_version}"
    silent = service_registry.silent
    for instance in silent[:_SILENT_SHOWN]:
        age = age_text(service_registry.age_s(instance))
        yield f"timed out without deregistering, silent for {age}: {instance_label(instance)}"
    if len(silent) > _SILENT_SHOWN:
        yield f"{len(silent) - _SILENT_SHOWN} more timed out before that (see --json)"


def _fits(instance: Instance, revision: str | None) -> str:
    if revision is None:
        return "?"
    return "fits" if instance.revision == revision else "differs"
