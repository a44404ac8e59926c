"""`migrator decommission`: what still depends on SQL, the steps that end it, and our attributes stripped."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from threading import Event

import click

from migrator.cli.cutover_text import direct_line, instance_label
from migrator.cli.options import belonging, need_yes, print_evidence, print_folded, stop_on_signals
from migrator.cli.runs import RunEnd
from migrator.cli.text import EndSql, EndStep, end_steps, step_lines
from migrator.dynamodb.control import DynamoStripping
from migrator.dynamodb.store import reads_only
from migrator.journal.lease import RunLease
from migrator.journal.writers import SqlWriters
from migrator.mapping.language.plan import entities_of
from migrator.mapping.model.evidence import PatternPhase
from migrator.mapping.model.journal import RunIdentity
from migrator.runtime.errors import CLEAN, DIFFERENT, SettingsError
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.core.removal import Strip, StripCounts
from migrator.stages.cutover.dependence import before_the_end
from migrator.stages.process.session import begin
from migrator.stages.session import job as job_wiring
from migrator.stages.session import live
from migrator.stages.session.cutover import EvidenceSources, open_evidence
from migrator.stages.session.job import CommandJob, Target
from migrator.stages.session.live import JobJournal, job_journal_of


@belonging()
def check(command_job: CommandJob, steps: bool, as_json: bool) -> int:
    """The exit code of `migrator decommission check`."""
    read = command_job.job
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        job_journal = job_journal_of(read, command_job.journal())
        evidence_sources = stack.enter_context(open_evidence(job_journal, "decommission", stop.is_set))
        evidence_sources.target.table_id()
        dependence = evidence_sources.gatherer.dependence(with_tombstones=True)
        lines = before_the_end(dependence, read.cutover)
        unfinished = [name for name, view in dependence.phases.items() if view.state.phase != "complete"]
        ending = _steps(evidence_sources, str(command_job.path), unfinished)
    is_green = all(line.verdict == "ok" for line in lines)
    if as_json:
        data = {
            "ok": is_green,
            "lines": [asdict(line) for line in lines],
            "steps": [asdict(step) for step in ending],
            "direct": read.direct,
        }
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        print_evidence(lines, every=True)
        if read.direct:
            print_folded(direct_line(read.direct))
        if steps:
            for text in step_lines(ending):
                print_folded(text)
        advice = "" if steps else "; --steps prints how to end it"
        print_folded(f"nothing depends on SQL{advice}" if is_green else "not yet: fix what is not ok")
    return CLEAN if is_green else DIFFERENT


def _steps(evidence_sources: EvidenceSources, job: str, unfinished: list[str]) -> list[EndStep]:
    activity, tables = evidence_sources.live.activity, evidence_sources.gatherer.old_tables
    uninstall = [text for step in evidence_sources.live.capture.uninstall_steps() for text in step.statements]
    one_way = not evidence_sources.context.source.takes_rows
    return end_steps(
        job,
        unfinished,
        one_way=one_way,
        sql=EndSql(activity.read_only(tables), uninstall, activity.drops(tables)),
    )


@belonging()
def strip(command_job: CommandJob, dry_run: bool, yes: bool, as_json: bool) -> int:
    """The exit code of `migrator decommission strip`."""
    read = command_job.job
    mapping = sound_mapping(read.mapping).mapping
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingsError(
            "strip changes every item, and there is no terminal to ask at; say --yes, or --dry-run to count"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        target = job_wiring.open_target(read, mapping.table, stop.is_set)
        table_id = target.table_id()
        job_journal = job_journal_of(read, command_job.journal())
        _refuse_early(job_journal, list(mapping.patterns), table_id)
        names = frozenset(entity.name for entity in entities_of(mapping))
        if dry_run:
            counts = _stage(stack, read, target, names, reads_only, stop).count()
            return _tell(counts, as_json=as_json, dry_run=True)
        lease = stack.enter_context(RunLease(job_journal.journal, read.name))
        stage = _stage(stack, read, target.fenced(lease.check), names, lease.check, stop)
        if not yes:
            _need_yes(stage.count(), target.design.name)
        identity = RunIdentity("strip", read.name, table_id, mapping.revision, f"segments={stage.segments}")
        run = begin(job_journal.journal, identity, again=True, after=0)
        with RunEnd(job_journal.journal, run, read.hooks):
            counts = stage.run(job_journal.journal, run)
        return _tell(counts, as_json=as_json, dry_run=False)


def _stage(
    stack: ExitStack,
    job: Job,
    target: Target,
    names: frozenset[str],
    check: Callable[[], None],
    stop: Event,
) -> Strip:
    stripping, tuning = stack.enter_context(DynamoStripping(target.store)), job.tuning
    segments, workers = tuning.scan_segments, tuning.workers
    return Strip(target.store, stripping, target.design, names, check, segments, workers, stop)


def _refuse_early(job_journal: JobJournal, patterns: list[str], table_id: str) -> None:
    """Raises: SettingsError while a pattern may still go back, or anything of ours may still write."""
    phases, service_registry = job_journal.phases.all(), job_journal.service_registry()
    moved = [phases.get(name, PatternPhase(name)) for name in patterns]
    if faults := [phase.fault for phase in moved if phase.fault]:
        raise SettingsError("; ".join(faults))
    early = [phase.pattern for phase in moved if phase.state.phase != "complete"]
    if early:
        raise SettingsError(
            f"strip comes last, and {', '.join(early)} is not complete; see `migrator cutover status`"
        )
    gone_s = live.lifetimes_of(job_journal.job).gone_s
    writers = SqlWriters(job_journal.journal.database, table_id).living(gone_s)
    named = [
        *(f"a {writer.kind}" for writer in writers),
        *(instance_label(writer) for writer in service_registry.marking),
    ]
    if named:
        what = f"strip comes last, and these may still write: {', '.join(named)}"
        raise SettingsError(f"{what}; stop them, and wait {gone_s:g} s for those that were killed")


def _need_yes(counts: StripCounts, table: str) -> None:
    what = f"Take our attributes out of {counts.items:,} item(s) of table {table}, and delete {counts.own:,} of our own?"
    need_yes(f"{what} `migrator verify` and `undo` will not know them any more.")


def _tell(counts: StripCounts, *, as_json: bool, dry_run: bool) -> int:
    if as_json:
        click.echo(json.dumps(asdict(counts)))
        return CLEAN
    done, deleted = (counts.items, counts.own) if dry_run else (counts.stripped, counts.removed)
    would = "would be " if dry_run else ""
    print_folded(
        f"{done:,} item(s) {would}stripped, {deleted:,} tombstone(s) and control item(s) {would}deleted;"
        f" {counts.others:,} item(s) of others are left alone"
    )
    return CLEAN
