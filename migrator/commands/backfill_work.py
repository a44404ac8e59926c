"""`migrator backfill`: every row into the table, on the fast or the conditional write path."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from decimal import Decimal
from functools import partial
from typing import cast

import click
from msgspec import Struct

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.cost import Bill, bill_of, need_allowed, reading_cost
from migrator.cli.runs import RunEnd, print_found
from migrator.cli.runs_text import backfill_data, explained_lines, print_backfill, print_backfill_verdict
from migrator.cli.text import estimate_data
from migrator.cli.watched import Watched, address_of, failure_kept, signs_of
from migrator.commands.processes import (
    Joining,
    RunWork,
    join,
    open_engine,
    options_of,
    part_of,
    refuse_beside_engine,
    reserved,
    started,
)
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.instances import Share
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.results import BackfillResult
from migrator.runtime.errors import DIFFERENT, amount
from migrator.runtime.values import replace
from migrator.settings.job import Hook, Job
from migrator.stages import process as runs
from migrator.stages.backfill.stage import Backfill, BackfillOptions, estimate
from migrator.stages.core.ownership import refuse_source_table
from migrator.stages.process import PathChoice, choose_path
from migrator.stages.session.session import JobSession

# ── `migrator backfill`: every row into the table ──


class BackfillFlags(Struct, frozen=True):
    entities: tuple[str, ...]
    workers: int | None
    join: bool
    part: str | None
    spark: str | None
    limit: int | None
    dry_run: bool
    explain: bool
    restart: bool
    into_existing: bool
    max_write_units: int | None
    max_cost: Decimal | None
    yes: bool
    force: bool

    @property
    def work(self) -> RunWork:
        return RunWork(
            kind="backfill",
            entities=self.entities,
            limit=self.limit,
            max_write_units=self.max_write_units,
            force=self.force,
        )


@cli.belonging(begins=True)
def backfill(session: JobSession, as_json: bool, whole_keys: bool, **values: object) -> int:
    port = cast("int | None", values.pop("metrics_port"))
    flags = BackfillFlags(**values)  # type: ignore[arg-type]
    _refuse_unfit(flags)
    read = session.job.limited(flags.max_write_units)
    address = address_of(read.tuning.metrics_host, port)
    if flags.join or flags.part:
        return _join(session, read, flags, address)
    allowed = read.tuning.max_refused
    with failure_kept("backfill", session), ExitStack() as stack:
        stack.enter_context(cli.stop_on_signals(session.stop))
        whole = session.job
        cluster = open_engine(flags.spark, stack, session, read, "backfill")
        read = (
            cluster.driver_job(read)
            if cluster
            else runs.divided(read, 1 if flags.dry_run else read.tuning.processes or 1)
        )
        session = stack.enter_context(session.another("backfill", job=read, workers=flags.workers))
        entities = runs.chosen(session.checked.entities, flags.entities)
        runs.need_bucket(read, entities)
        if flags.explain:
            _explain(session, entities)
        if flags.dry_run:
            edges = runs.dry_edges(stack, session.checked.mapping.table)
        else:
            edges = runs.leased_edges(stack, session, into_existing=flags.into_existing)
        refuse_source_table(session.source, edges.table_id)
        if not flags.dry_run:
            session.ownership.need_rows(force=flags.force)
        path_choice = choose_path(stack, session, edges, cli.say, force=flags.force)
        scope = runs.scope_of(entities, flags.limit, named=bool(flags.entities))
        table_id, installation = edges.table_id, path_choice.installation
        identity = runs.identity_of("backfill", session, table_id, entities, scope, installation=installation)
        after = runs.runs_before(edges.journal, identity.job)
        bill = _bill(session, edges, entities, flags, identity, after, path_choice.source(session))
        need_allowed(read, bill, flags.max_cost, yes=flags.yes or flags.dry_run)
        run = _begin(edges, identity, flags, after)
        edges.journal.keep_installation(run, path_choice.installation)
        stage = _stage(session, edges, flags, path_choice)
        if edges.target is not None and run.state != "done":
            watched = Watched("backfill", session, signs_of(session.job.tuning), address, None)
            if cluster is None:
                stage = _with_others(stack, stage, run, watched, flags, bill.estimate.rows, whole)
            else:
                # This process writes nothing, and takes no part of the budgets.
                stage = watched.open_backfill(stack, stage, bill.estimate.rows)
                stage = replace(stage, pages=cluster.pages(flags.work), is_shared=lambda: True)
        with cli.stopped_says(lambda: _stopped(edges, run, dry_run=flags.dry_run)):
            result = _work(stage, run, entities, read.hooks)
        if as_json:
            print_json(backfill_data(result) | {"estimate": estimate_data(bill.estimate, bill.price)})
        else:
            print_backfill(cli.stdout(), result)
            print_found(edges.journal.findings, result, session.checked.mapping, whole_keys=whole_keys)
            print_backfill_verdict(cli.stdout(), result, allowed)
    return DIFFERENT if result.total.refused > allowed else 0


def _refuse_unfit(flags: BackfillFlags) -> None:
    if flags.explain and not flags.dry_run:
        raise click.UsageError("--explain goes with --dry-run")
    unfit = {"--dry-run": flags.dry_run, "--restart": flags.restart, "--into-existing": flags.into_existing}
    by_host = {"--dry-run": flags.dry_run, "--join": flags.join}
    refuse_beside_engine(flags.spark, by_host | {"--workers": flags.workers is not None})
    if flags.join and (named := [name for name, is_given in unfit.items() if is_given]):
        raise click.UsageError(f"--join works on a run that was begun, and goes without {', '.join(named)}")


# ── Several processes on one run: the one that began it, those that it starts, and those that join ──


def _with_others(
    stack: ExitStack, stage: Backfill, run: Run, watched: Watched, flags: BackfillFlags, rows: int, whole: Job
) -> Backfill:
    session, scope = watched.session, runs.scope_of_run(run)
    job = session.job
    processes = runs.processes_of(whole, rows, (job.tuning.max_write_units, job.source.max_rows_per_s))
    connections = runs.taken_by(runs.divided(job, 1), stage.options.workers)
    parts = reserved(session, scope, processes - 1, connections)
    watched = replace(watched, own=Share(stage.who, scope, connections=connections))
    stage = watched.open_backfill(stack, stage, rows)
    ended = partial(session.journal.release_pages, run)
    started(stack, session, parts, _words(session, flags), stage.stop, ended)
    return stage


def _words(session: JobSession, flags: BackfillFlags) -> list[str]:
    options = {
        "--workers": flags.workers,
        "--limit": flags.limit,
        "--max-write-units": flags.max_write_units,
        "--force": flags.force,
    }
    named = [word for name in flags.entities for word in ("--entity", name)]
    return ["backfill", str(session.path), *named, *options_of(options)]


def _join(session: JobSession, job: Job, flags: BackfillFlags, address: tuple[str, int] | None) -> int:
    who, connections = part_of(flags.part)
    workers = flags.workers or job.tuning.workers
    joining = Joining(job, who, connections, workers, flags.work, address=address)
    with failure_kept("backfill", session):
        return join(session, joining, has_parent=bool(flags.part))


def _explain(session: JobSession, entities: list[CompiledEntity]) -> None:
    """Explain the plan on standard error: standard output is for the result."""
    for entity in entities:
        plans = session.source.explain(entity.plan, session.job.tuning.page_rows)
        for line in explained_lines(entity.name, plans):
            cli.say(line)


def _bill(
    session: JobSession,
    edges: runs.RunEdges,
    entities: list[CompiledEntity],
    flags: BackfillFlags,
    identity: RunIdentity,
    after: int,
    rows: Rows,
) -> Bill:
    last, done = edges.journal.find_run(identity), dict[str, int]()
    if last is not None and last.id > after and not (last.state == "done" and flags.restart):
        done = {entity.name: edges.journal.tally(last, entity.name).rows for entity in entities}
    plans = [entity.plan for entity in entities]
    reading = reading_cost(session.job, rows, plans, flags.max_cost)
    left = estimate(session.source, entities, time.time(), limit=flags.limit, done=done)
    bill = bill_of(session.job, left, reading)
    if bill.estimate.rows:
        cli.say(bill.line())
    return bill


def _begin(edges: runs.RunEdges, identity: RunIdentity, flags: BackfillFlags, after: int) -> Run:
    run = runs.begin(edges.journal, identity, again=flags.restart, after=after)
    if run.state == "done":
        again = "nothing left to do (--restart writes everything once more)"
        cli.say(f"run {run.id} finished {run.ended_at}: {again}")
    elif run.resumed:
        cli.say(f"run {run.id} of {run.started_at} is resumed")
    return run


def _stage(
    session: JobSession, edges: runs.RunEdges, flags: BackfillFlags, path_choice: PathChoice
) -> Backfill:
    tuning = session.job.tuning
    options = BackfillOptions(flags.workers or tuning.workers, tuning.page_rows, flags.limit)
    source, path = path_choice.source(session), path_choice.path(session, edges)
    return Backfill(source, edges.journal, path, cli.progress(), options, session.stop)


def _work(stage: Backfill, run: Run, entities: list[CompiledEntity], hooks: Sequence[Hook]) -> BackfillResult:
    if run.state == "done":
        return stage.result(run, entities, 0.0)
    with RunEnd(stage.journal.end_run, run, hooks), stage.progress:
        return stage.run(run, entities)


def _stopped(edges: runs.RunEdges, run: Run, *, dry_run: bool) -> str:
    if dry_run:
        return "stopped; a dry run writes nothing and keeps nothing: it starts from the beginning when you run it again"
    pages, _ = runs.pages_of(edges.journal, run)
    rows = edges.journal.tally(run).rows
    written = f"{amount(rows, 'row')} of {amount(pages, 'page')} written"
    return f"stopped; {written}, which stay; the same command resumes from there"
