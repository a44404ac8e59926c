"""`migrator cutover`: who is in charge of each access pattern, moved forward on evidence and back at any time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from migrator import cutover_wiring
from migrator.cli.belonging import belonging
from migrator.cli.cutover_options import Asked, Vouched, known_pattern, refuse_moved, strike, vouched_for
from migrator.cli.cutover_told import MovedPattern, evidence_table, told
from migrator.cli.instances import known_revision
from migrator.cli.options import read_job, shown_path, stdout, stop_on_signals
from migrator.cutover_results import Judgement
from migrator.cutover_wiring import Court, Desk, open_court, open_desk
from migrator.errors import CLEAN, DIFFERENT, MigratorError, SettingsError
from migrator.phase import State, is_back
from migrator.ports.phases import PatternPhase
from migrator.report.cutover import (
    direct_line,
    history_data,
    history_lines,
    judgement_data,
    refusal,
    views,
    views_data,
    views_table,
)
from migrator.report.instances import who
from migrator.stages.cutover import Cutover, next_step


@belonging(keeps=True)
def status(job: Path, pattern: str | None, as_json: bool) -> int:
    """The exit code of `migrator cutover status`."""
    read = read_job(job)
    patterns = cutover_wiring.known_patterns(read)
    if isinstance(patterns, MigratorError):
        raise patterns
    with open_desk(read) as desk:
        phases = desk.phases.all()
        if pattern is not None:
            known_pattern(pattern, [*patterns, *phases])
        roster = desk.roster()
        found = views(patterns, phases, roster, desk.phases.confirmed())
    shown = [one for one in found if pattern in (None, one.phase.pattern)]
    if as_json:
        about = {"job": read.name, "journal": desk.journal.name, "patterns": views_data(shown)}
        silent = [{"id": one.id, "instance": who(one)} for one in roster.silent]
        click.echo(json.dumps(about | {"silent": silent, "direct": read.direct}))
    else:
        click.echo(f"journal: {shown_path(desk.journal.name)}")
        stdout().print(views_table(shown, roster.now_s))
        if read.direct:
            click.echo(direct_line(read.direct))
        replaced = [one.id for one in roster.replaced]
        for one in roster.silent:
            more = "; a newer one took its place, so only `complete` asks" if one.id in replaced else ""
            click.echo(f"silent, no goodbye: {who(one)} (--evict {one.id} once it is sure that it is{more})")
    if faults := [one.phase.fault for one in shown if one.phase.fault]:
        raise SettingsError("; ".join(faults))
    return CLEAN


@belonging()
def history(job: Path, pattern: str | None, as_json: bool) -> int:
    """The exit code of `migrator cutover history`."""
    read = read_job(job)
    with open_desk(read) as desk:
        moves = desk.phases.history(pattern)
    if pattern is not None and not moves:
        # What was ever moved has a history, whether the mapping can be read or not.
        patterns = cutover_wiring.known_patterns(read)
        known_pattern(pattern, patterns if isinstance(patterns, list) else [])
    if as_json:
        click.echo(json.dumps(history_data(moves), ensure_ascii=False))
        return CLEAN
    for line in history_lines(moves) if moves else ["nobody has moved anything yet"]:
        click.echo(line)
    return CLEAN


@belonging(keeps=True)
def advance(job: Path, pattern: str, **asked: Any) -> int:
    """The exit code of `migrator cutover advance`."""
    return _move(job, pattern, lambda known: next_step(known.state), Asked(**asked))


@belonging(keeps=True)
def ramp(job: Path, pattern: str, percent: int, **asked: Any) -> int:
    """The exit code of `migrator cutover ramp`."""
    if percent < 1:
        raise SettingsError(
            f"a ramp has 1 to 100 percent, not {percent}; SQL answers all after `migrator cutover rollback`"
        )
    if percent > 100:
        raise SettingsError(
            f"a ramp has 1 to 100 percent, not {percent}; at 100 the table answers all, then `migrator cutover advance`"
        )
    return _move(job, pattern, lambda known: State("ramp", percent), Asked(**asked))


def _move(job: Path, pattern: str, to: Callable[[PatternPhase], State], asked: Asked) -> int:
    read = read_job(job)
    with open_desk(read) as desk:
        known = desk.phases.all().get(pattern, PatternPhase(pattern))
        refuse_moved(known, asked.shown)
        after = to(known)
        if not known.fault and is_back(known.state, after):
            return _down(desk, known, after, asked)
    patterns = cutover_wiring.known_patterns(read)
    if isinstance(patterns, MigratorError):
        raise patterns
    known_pattern(pattern, patterns)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        desk = stack.enter_context(open_desk(read))
        gone = vouched_for(desk, asked)
        court = stack.enter_context(open_court(replace(desk, gone=gone.ids), "cutover", stop.is_set))
        stage = Cutover(desk.phases, asked.who, court.laid.checked.mapping.revision)
        # What was known when the command was given is what is moved; who was faster has moved another version.
        judged = _judged(stage, court, known, after, asked)
        if asked.goes(judged) and asked.wants_a_yes(judged):
            asked.need_yes(judged)
            # Nobody knows how long the question stood; what was shown may be hours old.
            judged = _judged(stage, court, known, judged.after, asked)
        if not asked.goes(judged):
            return _stays(judged, asked)
        moved = stage.move(judged, reason=_reason(asked, gone), override=bool(asked.override))
        strike(desk, gone.ids)
        return _tell(desk, judgement_data(judged) | {"moved": True}, moved, asked)


def _judged(stage: Cutover, court: Court, known: PatternPhase, after: State, asked: Asked) -> Judgement:
    """By the evidence of now, which people are shown."""
    judged = stage.judge(known, after, court.evidence)
    if not asked.as_json:
        stdout().print(evidence_table(judged.lines))
    return judged


def _reason(asked: Asked, gone: Vouched) -> str:
    return "; ".join(filter(None, (asked.override or asked.reason, *gone.reasons)))


def _down(desk: Desk, known: PatternPhase, after: State, asked: Asked) -> int:
    """A move back by the journal alone: neither source nor table may stand in its way."""
    judged = Judgement(known.pattern, known.state, after, known.version, ())
    if asked.dry_run:
        return _stays(judged, asked)
    gone = vouched_for(desk, asked)
    stage = Cutover(desk.phases, asked.who, known_revision(desk.job) or "")
    moved = stage.roll_back(known, after, _reason(asked, gone))
    strike(desk, gone.ids)
    return _tell(desk, judgement_data(judged) | {"moved": True}, moved, asked)


def _tell(desk: Desk, data: dict[str, Any], moved: PatternPhase, asked: Asked) -> int:
    return told(desk, [MovedPattern(data, moved)], as_json=asked.as_json, wait=asked.wait)


def _stays(judged: Judgement, asked: Asked) -> int:
    if asked.as_json:
        click.echo(json.dumps(judgement_data(judged) | {"moved": False}, ensure_ascii=False))
    elif judged.ok:
        click.echo(f"{judged.pattern} could go from {judged.before} to {judged.after}; nothing was changed")
    else:
        click.echo(refusal(judged), err=True)
    return CLEAN if judged.ok else DIFFERENT
