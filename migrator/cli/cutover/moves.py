"""`migrator cutover`: moves access patterns from phase to phase on evidence, and back by `rollback`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import click

from migrator.cli.cutover.options import (
    Asked,
    EvictedInstances,
    MovedPattern,
    evidence_table,
    fit_reason,
    known_pattern,
    refuse_moved,
    strike,
    told,
    vouched_for,
)
from migrator.cli.options import shown_path, stdout, stop_on_signals
from migrator.cli.ownership import belonging
from migrator.cli.runs import known_revision
from migrator.model.errors import CLEAN, DIFFERENT, MigratorError, SettingsError
from migrator.model.evidence import Judgement, PatternPhase
from migrator.model.phase import State, is_back
from migrator.output.cutover import (
    direct_line,
    history_data,
    history_lines,
    judgement_data,
    refusal,
    views,
    views_data,
    views_table,
    who,
)
from migrator.stages.cutover.moves import Cutover, next_step
from migrator.wiring import cutover
from migrator.wiring.cutover import EvidenceSources, JobJournal, job_journal_of, open_evidence
from migrator.wiring.job import CommandJob

# ──
# `migrator cutover`: each access pattern moved from phase to phase, forward on evidence and back at any time.


@belonging(keeps=True)
def status(command_job: CommandJob, pattern: str | None, as_json: bool) -> int:
    """The exit code of `migrator cutover status`."""
    read = command_job.job
    patterns = cutover.known_patterns(read)
    if isinstance(patterns, MigratorError):
        raise patterns
    job_journal = job_journal_of(read, command_job.journal())
    phases = job_journal.phases.all()
    if pattern is not None:
        known_pattern(pattern, [*patterns, *phases])
    service_registry = job_journal.service_registry()
    found = views(patterns, phases, service_registry, job_journal.phases.confirmed())
    shown = [one for one in found if pattern in (None, one.phase.pattern)]
    if as_json:
        about = {"job": read.name, "journal": job_journal.journal.name, "patterns": views_data(shown)}
        silent = [{"id": one.id, "instance": who(one)} for one in service_registry.silent]
        click.echo(json.dumps(about | {"silent": silent, "direct": read.direct}))
    else:
        click.echo(f"journal: {shown_path(job_journal.journal.name)}")
        stdout().print(views_table(shown, service_registry.now_s))
        if read.direct:
            click.echo(direct_line(read.direct))
        replaced = [one.id for one in service_registry.replaced]
        for one in service_registry.silent:
            more = "; a newer one took its place, so only `complete` asks" if one.id in replaced else ""
            click.echo(f"silent, no goodbye: {who(one)} (--evict {one.id} once it is sure that it is{more})")
    if faults := [one.phase.fault for one in shown if one.phase.fault]:
        raise SettingsError("; ".join(faults))
    return CLEAN


@belonging()
def history(command_job: CommandJob, pattern: str | None, as_json: bool) -> int:
    """The exit code of `migrator cutover history`."""
    read = command_job.job
    moves = job_journal_of(read, command_job.journal()).phases.history(pattern)
    if pattern is not None and not moves:
        # What was ever moved has a history, whether the mapping can be read or not.
        patterns = cutover.known_patterns(read)
        known_pattern(pattern, patterns if isinstance(patterns, list) else [])
    if as_json:
        click.echo(json.dumps(history_data(moves), ensure_ascii=False))
        return CLEAN
    for line in history_lines(moves) if moves else ["nobody has moved anything yet"]:
        click.echo(line)
    return CLEAN


@belonging(keeps=True)
def advance(command_job: CommandJob, pattern: str, **asked: Any) -> int:
    """The exit code of `migrator cutover advance`."""
    return _move(command_job, pattern, lambda known: next_step(known.state), Asked(**asked))


@belonging(keeps=True)
def ramp(command_job: CommandJob, pattern: str, percent: int, **asked: Any) -> int:
    """The exit code of `migrator cutover ramp`."""
    if percent < 1:
        raise SettingsError(
            f"a ramp has 1 to 100 percent, not {percent}; SQL answers all after `migrator cutover rollback`"
        )
    if percent > 100:
        raise SettingsError(
            f"a ramp has 1 to 100 percent, not {percent}; at 100 the table answers all, then `migrator cutover advance`"
        )
    return _move(command_job, pattern, lambda known: State("ramp", percent), Asked(**asked))


def _move(command_job: CommandJob, pattern: str, to: Callable[[PatternPhase], State], asked: Asked) -> int:
    read = command_job.job
    job_journal = job_journal_of(read, command_job.journal())
    known = job_journal.phases.all().get(pattern, PatternPhase(pattern))
    refuse_moved(known, asked.shown)
    after = to(known)
    if not known.fault and is_back(known.state, after):
        return _down(job_journal, known, after, asked)
    patterns = cutover.known_patterns(read)
    if isinstance(patterns, MigratorError):
        raise patterns
    known_pattern(pattern, patterns)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        gone = vouched_for(job_journal, asked)
        evidence_sources = stack.enter_context(
            open_evidence(replace(job_journal, gone=gone.ids), "cutover", stop.is_set)
        )
        stage = Cutover(job_journal.phases, asked.who, evidence_sources.context.checked.mapping.revision)
        # What was known when the command was given is what is moved; who was faster has moved another version.
        judged = _judged(stage, evidence_sources, known, after, asked)
        if asked.goes(judged) and asked.wants_a_yes(judged):
            asked.need_yes(judged)
            # Nobody knows how long the question stood; what was shown may be hours old.
            judged = _judged(stage, evidence_sources, known, judged.after, asked)
        if not asked.goes(judged):
            return _stays(judged, asked)
        moved = stage.move(judged, reason=_reason(asked, gone), override=bool(asked.override))
        strike(job_journal, gone.ids)
        return _tell(job_journal, judgement_data(judged) | {"moved": True}, moved, asked)


def _judged(
    stage: Cutover, evidence_sources: EvidenceSources, known: PatternPhase, after: State, asked: Asked
) -> Judgement:
    """By the evidence of now, which people are shown."""
    judged = stage.judge(known, after, evidence_sources.evidence)
    if not asked.as_json:
        stdout().print(evidence_table(judged.lines))
    return judged


def _reason(asked: Asked, gone: EvictedInstances) -> str:
    return "; ".join(filter(None, (asked.override or asked.reason, *gone.reasons)))


def _down(job_journal: JobJournal, known: PatternPhase, after: State, asked: Asked) -> int:
    """A move back by the journal alone: neither source nor table may stand in its way."""
    judged = Judgement(known.pattern, known.state, after, known.version, ())
    if asked.dry_run:
        return _stays(judged, asked)
    gone = vouched_for(job_journal, asked)
    stage = Cutover(job_journal.phases, asked.who, known_revision(job_journal.job) or "")
    moved = stage.roll_back(known, after, _reason(asked, gone))
    strike(job_journal, gone.ids)
    return _tell(job_journal, judgement_data(judged) | {"moved": True}, moved, asked)


def _tell(job_journal: JobJournal, data: dict[str, Any], moved: PatternPhase, asked: Asked) -> int:
    return told(job_journal, [MovedPattern(data, moved)], as_json=asked.as_json, wait=asked.wait)


def _stays(judged: Judgement, asked: Asked) -> int:
    if asked.as_json:
        click.echo(json.dumps(judgement_data(judged) | {"moved": False}, ensure_ascii=False))
    elif judged.ok:
        click.echo(f"{judged.pattern} could go from {judged.before} to {judged.after}; nothing was changed")
    else:
        click.echo(refusal(judged), err=True)
    return CLEAN if judged.ok else DIFFERENT


# ── `migrator cutover rollback`: SQL answers again, by the journal alone ──


@belonging(keeps=True)
def rollback(command_job: CommandJob, pattern: str | None, every: bool, to: str | None, **asked: Any) -> int:
    """The exit code of `migrator cutover rollback`."""
    if every == (pattern is not None):
        raise click.UsageError("name one pattern, or say --all")
    if every and asked["shown"] is not None:
        raise click.UsageError("--from goes with one pattern")
    fit_reason(asked["reason"])
    read = command_job.job
    patterns = cutover.known_patterns(read)
    after = None if to is None else State("shadow") if to == "shadow" else State("off")
    job_journal = job_journal_of(read, command_job.journal())
    phases = job_journal.phases.all()
    if pattern is not None:
        known_pattern(pattern, [*(patterns if isinstance(patterns, list) else []), *phases])
    stage = Cutover(job_journal.phases, asked["who_"], known_revision(read) or "")
    if pattern is not None:
        known = stage.phase(pattern)
        refuse_moved(known, asked["shown"])
        moved, code = [_back(stage, known, after, asked["reason"])], CLEAN
    else:
        moved, code = _all_back(stage, phases, after, asked["reason"])
    # All of them are moved before anybody is waited for: a reader that hangs must not hold the others' way out.
    late = told(job_journal, moved, as_json=asked["as_json"], wait=asked["wait"], as_list=every)
    if not moved and not code and not asked["as_json"]:
        click.echo("nothing to roll back: SQL answers every pattern, or it is complete")
    return max(code, late)


def _all_back(
    stage: Cutover, phases: Mapping[str, PatternPhase], after: State | None, reason: str
) -> tuple[list[MovedPattern], int]:
    """What was moved, and the exit code of what was not: one that somebody else was faster with stops none of the others."""
    moved, code = [], CLEAN
    for _, known in sorted(phases.items()):
        if not (known.fault or known.state.phase in _wanted(after)):
            continue
        try:
            moved.append(_back(stage, known, after or State("shadow"), reason))
        except SettingsError as error:
            click.echo(f"error: {error}", err=True)
            code = max(code, error.exit_code)
    return moved, code


def _wanted(after: State | None) -> set[str]:
    """What a rollback of all means: where the table answers, and where both are compared if all is to be off."""
    return {"ramp", "live"} | ({"shadow"} if after == State("off") else set())


def _back(stage: Cutover, known: PatternPhase, after: State | None, reason: str) -> MovedPattern:
    if known.fault:
        click.echo(f"warning: {known.fault}", err=True)
    moved = stage.roll_back(known, after, reason)
    data = {"pattern": known.pattern, "from": str(known.state), "to": str(moved.state)}
    return MovedPattern(data | {"moved": moved.version != known.version}, moved)
