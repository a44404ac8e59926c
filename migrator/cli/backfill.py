"""`migrator backfill`: every row into the table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from threading import Event

import click

from migrator import truth_wiring, wiring
from migrator.cli.belonging import belonging
from migrator.cli.beside import Surroundings, look_around
from migrator.cli.costs import Allowed, Bill, bill_of, need_allowed
from migrator.cli.keys import as_asked, tell_masked
from migrator.cli.options import chosen, progress, read_job, stdout, stop_on_signals, stopped_says
from migrator.cli.runs import (
    RunEnd,
    Session,
    begin,
    dry_session,
    identity_of,
    live_session,
    need_bucket,
    pages_of,
    scope_of,
)
from migrator.cutover_settings import Hook
from migrator.errors import DIFFERENT
from migrator.journal.revisions import newest_of
from migrator.journal.verified import keep_installation
from migrator.mapping.items import CompiledEntity
from migrator.ports import Run, RunIdentity
from migrator.report.costs import estimate_data
from migrator.report.findings import SHOWN, print_findings
from migrator.report.results import backfill_data, explained_lines, print_backfill
from migrator.results import BackfillResult
from migrator.settings import Job
from migrator.stages.backfill import Backfill, BackfillOptions
from migrator.stages.estimate import estimate
from migrator.wiring import Laid


@dataclass(frozen=True)
class Asked:
    """What the command line asked for."""

    entities: tuple[str, ...]
    workers: int | None
    limit: int | None
    dry_run: bool
    explain: bool
    restart: bool
    into_existing: bool
    max_write_units: int | None
    max_cost: Decimal | None
    yes: bool
    force: bool


@belonging(begins=True)
def backfill(job: Path, max_refused: int | None, as_json: bool, whole_keys: bool, **asked: object) -> int:
    """The exit code of `migrator backfill`."""
    if asked["explain"] and not asked["dry_run"]:
        raise click.UsageError("--explain goes with --dry-run")
    wanted = Asked(**asked)  # type: ignore[arg-type]
    read = _tuned(read_job(job), wanted)
    allowed = read.tuning.max_refused if max_refused is None else max_refused
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(read, "backfill", workers=wanted.workers, stop=stop.is_set))
        entities = chosen(laid.checked.entities, wanted.entities)
        need_bucket(read, entities)
        if wanted.explain:
            _explain(laid, entities)
        session = _session(stack, laid, wanted, stop)
        _need_rows(laid, session, wanted)
        around = look_around(stack, laid, session, stop)
        identity = _identity(laid, session, entities, wanted, around.installation)
        bill = _bill(laid, session, entities, wanted, identity)
        need_allowed(read, bill, Allowed(wanted.max_cost, wanted.yes or wanted.dry_run))
        run = _begin(session, identity, wanted)
        keep_installation(session.journal.database, run.id, around.installation)
        stage = _stage(laid, session, wanted, around, stop)
        with stopped_says(lambda: _stopped(session, run, dry_run=wanted.dry_run)):
            result = _work(stage, run, entities, read.hooks)
        if as_json:
            _print_data(result, bill)
        else:
            _print(result, session, laid, whole_keys=whole_keys)
    return DIFFERENT if result.total.refused > allowed else 0


def _tuned(job: Job, wanted: Asked) -> Job:
    """The job with what the command line says instead of it."""
    if wanted.max_write_units is None:
        return job
    return replace(job, tuning=replace(job.tuning, max_write_units=wanted.max_write_units))


def _explain(laid: Laid, entities: list[CompiledEntity]) -> None:
    """On standard error, beside the progress: the result on standard output stays as it is."""
    for entity in entities:
        for line in explained_lines(entity.name, laid.source.explain(entity.plan, laid.job.tuning.page_rows)):
            click.echo(line, err=True)


def _session(stack: ExitStack, laid: Laid, wanted: Asked, stop: Event) -> Session:
    design = laid.checked.mapping.table
    if wanted.dry_run:
        return dry_session(stack, design)
    return live_session(stack, laid.job, design, stop, into_existing=wanted.into_existing)


def _need_rows(laid: Laid, session: Session, wanted: Asked) -> None:
    """Raises: SettingsError where items are not made of rows any more; a dry run writes none."""
    if wanted.dry_run:
        return
    ask = truth_wiring.need_direct if wanted.force else truth_wiring.need_rows
    ask(laid.job, laid.checked.mapping, session.journal)


def _identity(
    laid: Laid, session: Session, entities: list[CompiledEntity], wanted: Asked, installation: str
) -> RunIdentity:
    scope = scope_of(entities, wanted.limit, named=bool(wanted.entities))
    return identity_of("backfill", laid, session.table_id, entities, scope, installation=installation)


def _bill(
    laid: Laid, session: Session, entities: list[CompiledEntity], wanted: Asked, identity: RunIdentity
) -> Bill:
    """What is left to write and costs, told on stderr unless it is nothing."""
    found = session.journal.find_run(identity)
    if found is not None and (
        (found.state == "done" and wanted.restart) or found.id <= _runs_before(session, identity)
    ):
        found = None
    done = (
        {} if found is None else {one.name: session.journal.tally(found, one.name).rows for one in entities}
    )
    bill = bill_of(laid.job, estimate(laid.source, entities, time.time(), limit=wanted.limit, done=done))
    if bill.estimate.rows:
        click.echo(bill.line(), err=True)
    return bill


def _runs_before(session: Session, identity: RunIdentity) -> int:
    """The last run before the job went on, or back, to the mapping that it works by now."""
    newest = newest_of(session.journal.database, identity.job)
    return newest.runs_before if newest is not None else 0


def _begin(session: Session, identity: RunIdentity, wanted: Asked) -> Run:
    run = begin(session.journal, identity, again=wanted.restart, after=_runs_before(session, identity))
    if run.state == "done":
        what = f"run {run.id} finished {run.ended_at}: nothing left to do (--restart writes everything once more)"
        click.echo(what, err=True)
    elif run.resumed:
        click.echo(f"run {run.id} of {run.started_at} goes on", err=True)
    return run


def _stage(laid: Laid, session: Session, wanted: Asked, around: Surroundings, stop: Event) -> Backfill:
    tuning = laid.job.tuning
    options = BackfillOptions(wanted.workers or tuning.workers, tuning.page_rows, wanted.limit)
    return Backfill(
        source=around.source(laid),
        journal=session.journal,
        path=around.path(laid, session),
        progress=progress(),
        options=options,
        stop=stop,
    )


def _work(stage: Backfill, run: Run, entities: list[CompiledEntity], hooks: Sequence[Hook]) -> BackfillResult:
    if run.state == "done":
        return stage.result(run, entities, 0.0)
    with RunEnd(stage.journal, run, hooks), stage.progress:
        return stage.run(run, entities)


def _stopped(session: Session, run: Run, *, dry_run: bool) -> str:
    if dry_run:
        return "stopped; a dry run writes nothing and keeps nothing: it begins anew when it is given again"
    pages, _ = pages_of(session.journal, run)
    rows = session.journal.tally(run).rows
    return f"stopped; {rows:,} row(s) of {pages:,} page(s) are written and stay, and the same command goes on from there"


def _print_data(result: BackfillResult, bill: Bill) -> None:
    data = {**backfill_data(result), "estimate": estimate_data(bill.estimate, bill.price)}
    click.echo(json.dumps(data, sort_keys=True))


def _print(result: BackfillResult, session: Session, laid: Laid, *, whole_keys: bool) -> None:
    print_backfill(stdout(), result)
    found = session.journal.findings(result.run, SHOWN)
    printed = as_asked(found, laid.checked.mapping, whole_keys=whole_keys)
    print_findings(stdout(), printed, result.findings)
    tell_masked(printed, found)
