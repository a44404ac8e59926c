"""`migrator decommission`: what still depends on SQL, the steps that end it, and our attributes taken out of the table."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from threading import Event

import click

from migrator import live_wiring, wiring
from migrator.cli.belonging import belonging
from migrator.cli.cutover_told import evidence_table
from migrator.cli.options import need_yes, read_job, stdout, stop_on_signals
from migrator.cli.runs import RunEnd, begin
from migrator.cutover_wiring import Court, Desk, open_court, open_desk
from migrator.errors import CLEAN, DIFFERENT, SettingsError
from migrator.journal.lease import RunLease
from migrator.journal.writers import SqlWriters
from migrator.mapping.tenants import entities_of
from migrator.ports import RunIdentity
from migrator.ports.phases import PatternPhase
from migrator.report.cutover import direct_line
from migrator.report.decommission import EndSql, EndStep, end_steps, step_lines
from migrator.report.instances import who
from migrator.settings import Job
from migrator.stages.decommission import before_the_end
from migrator.stages.strip import Strip, StripCounts
from migrator.target.store import reads_only
from migrator.target.stripping import DynamoStripping
from migrator.wiring import Target


@belonging()
def check(job: Path, as_json: bool) -> int:
    """The exit code of `migrator decommission check`."""
    read = read_job(job)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        desk = stack.enter_context(open_desk(read))
        court = stack.enter_context(open_court(desk, "decommission", stop.is_set))
        live_wiring.existing_table(read, court.target)
        found = court.dependence(with_tombstones=True)
        lines = before_the_end(found, read.cutover)
        left = [name for name, one in found.phases.items() if one.state.phase != "complete"]
        steps = _steps(court, str(job), left)
    is_green = all(line.verdict == "ok" for line in lines)
    if as_json:
        data = {
            "ok": is_green,
            "lines": [asdict(line) for line in lines],
            "steps": [asdict(one) for one in steps],
            "direct": read.direct,
        }
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        stdout().print(evidence_table(lines))
        if read.direct:
            click.echo(direct_line(read.direct))
        click.echo("nothing depends on SQL any more" if is_green else "not yet: mend what is not ok")
        for text in step_lines(steps):
            click.echo(text)
    return CLEAN if is_green else DIFFERENT


def _steps(court: Court, job: str, left: list[str]) -> list[EndStep]:
    activity, tables = court.activity, court.tables
    uninstall = [text for step in court.live.capture.uninstall_steps() for text in step.statements]
    return end_steps(job, left, EndSql(activity.read_only_sql(tables), uninstall, activity.drop_sql(tables)))


@belonging()
def strip(job: Path, dry_run: bool, yes: bool, as_json: bool) -> int:
    """The exit code of `migrator decommission strip`."""
    read = read_job(job)
    mapping = wiring.sound_mapping(read.mapping).mapping
    if not (yes or dry_run or sys.stdin.isatty()):
        raise SettingsError(
            "strip changes every item, and nobody can be asked here; say --yes, or --dry-run to count"
        )
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        target = wiring.open_target(read, mapping.table, stop.is_set)
        table_id = live_wiring.existing_table(read, target)
        desk = stack.enter_context(open_desk(read))
        _refuse_early(desk, list(mapping.patterns), table_id)
        names = frozenset(entity.name for entity in entities_of(mapping))
        if dry_run:
            counts = _stage(stack, read, target, names, reads_only, stop).count()
            return _tell(counts, as_json=as_json, dry_run=True)
        lease = stack.enter_context(RunLease(desk.journal, read.name))
        stage = _stage(stack, read, target.fenced(lease.check), names, lease.check, stop)
        if not yes:
            _need_yes(stage.count(), target.design.name)
        identity = RunIdentity("strip", read.name, table_id, mapping.revision, f"segments={stage.segments}")
        run = begin(desk.journal, identity, again=True, after=0)
        with RunEnd(desk.journal, run, read.hooks):
            counts = stage.run(desk.journal, run)
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


def _refuse_early(desk: Desk, patterns: list[str], table_id: str) -> None:
    """Raises: SettingsError while a pattern may still go back, or anything of ours may still write."""
    phases, roster = desk.phases.all(), desk.roster()
    moved = [phases.get(name, PatternPhase(name)) for name in patterns]
    if faults := [one.fault for one in moved if one.fault]:
        raise SettingsError("; ".join(faults))
    early = [one.pattern for one in moved if one.state.phase != "complete"]
    if early:
        raise SettingsError(
            f"strip comes last, and {', '.join(early)} is not complete; see `migrator cutover status`"
        )
    gone_s = live_wiring.lifetimes_of(desk.job).gone_s
    writers = SqlWriters(desk.journal.database, table_id).living(gone_s)
    named = [*(f"a {one.kind}" for one in writers), *(who(one) for one in roster.marking)]
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
    done, gone = (counts.items, counts.own) if dry_run else (counts.stripped, counts.removed)
    would = "would be " if dry_run else ""
    click.echo(
        f"{done:,} item(s) {would}stripped, {gone:,} tombstone(s) and control item(s) {would}deleted;"
        f" {counts.others:,} item(s) of others are left alone"
    )
    return CLEAN
