"""`migrator backfill`: every row into the table, on the fast or on the conditional write path."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from decimal import Decimal
from threading import Event
from typing import cast

import click

from migrator.cli.operate.metrics import Watched, address_of, failure_kept, signs_of
from migrator.cli.options import (
    belonging,
    chosen,
    findings_to_print,
    need_yes,
    progress,
    stdout,
    stop_on_signals,
    stopped_says,
    tell_masked,
)
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
    tell_unmarked,
)
from migrator.journal.run_starts import keep_installation
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import newest_of
from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.heart.wire import Estimate, Price
from migrator.model.capture import Installation
from migrator.model.edges import Rows
from migrator.model.errors import DIFFERENT, Interrupted, OldRevisionError, SettingsError
from migrator.model.instances import Standing
from migrator.model.journal import Run, RunIdentity
from migrator.model.live import Memory
from migrator.model.results import BackfillResult
from migrator.output.runs import backfill_data, explained_lines, print_backfill
from migrator.output.text import SHOWN, estimate_data, estimate_line, print_findings, usd
from migrator.settings.job import Hook, Job
from migrator.settings.transforms import known_regions, price_of
from migrator.stages.backfill.encoded import encoded_where_possible
from migrator.stages.backfill.estimate import estimate
from migrator.stages.backfill.inserts import inserts_where_possible
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import (
    Claims,
    ConditionalPath,
    FastPath,
    PagePath,
    PutsAmongOthers,
)
from migrator.stages.live.writers import WriterLease, both, outlive
from migrator.wiring import job as job_wiring
from migrator.wiring import live
from migrator.wiring.job import CommandJob, JobContext, write_ownership
from migrator.wiring.live import ConcurrentEdges

# ──
# On which path a backfill writes: alone, alone while changes leave marks (fast), or beside other writers
# (conditional).

_PATH_MESSAGES = {
    "fast": "path: fast; nothing else writes items yet, and every change since leaves a mark for the relay",
    "conditional": "path: conditional; a relay (or a strict service) writes too, so nothing newer is replaced",
}


_UNCAPTURED = (
    "capture is not installed: right for a source that stands still. What changes from now on leaves no mark, and items of"
    " rows that are deleted stay; where services write, run `migrator capture install` first, or `migrator verify --repair`"
    " after it"
)


@dataclass
class PathChoice:
    """What a backfill finds around it. `installation`: of capture; '' where changes leave no marks."""

    installation: str = ""
    edges: ConcurrentEdges | None = None
    writer_lease: WriterLease | None = None

    def path(self, context: JobContext, session: Session) -> PagePath:
        if self.edges is None or self.writer_lease is None:
            claims = _claims(context, session, None)
            alone = FastPath(
                session.store, claims, time.time, session.check, session.objects, None, frozenset()
            )
            return encoded_where_possible(alone, context.checked.entities)
        check = both(session.check, self.writer_lease.check)
        if self.writer_lease.writer.kind == "conditional":
            return inserts_where_possible(
                ConditionalPath(self.edges.refresh(check), self.edges.open_findings)
            )
        target = self.edges.target
        store = PutsAmongOthers(self.edges.store, target.design) if session.is_shared else target.store
        memory = self.edges.memory if self.installation else None
        remembered = frozenset(name for name, entity in self.edges.entities.items() if entity.remembered)
        claims = _claims(context, session, memory)
        fast = FastPath(store, claims, time.time, check, session.objects, memory, remembered)
        return encoded_where_possible(fast, context.checked.entities)

    def source(self, context: JobContext) -> Rows:
        """Where pages are read: beside others only where every ticket is already known."""
        conditional = self.writer_lease is not None and self.writer_lease.writer.kind == "conditional"
        return context.source.at_primary() if conditional else context.source


def _claims(context: JobContext, session: Session, memory: Memory | None) -> Claims:
    entities = {entity.name: entity for entity in context.checked.entities}
    unproved = context.checked.unproved
    return Claims(session.journal, context.source, entities, unproved, session.table_id, memory=memory)


def choose_path(stack: ExitStack, context: JobContext, session: Session, stop: Event) -> PathChoice:
    """Enters the run among the writers, so that a relay that starts waits for it; it leaves when the stack unwinds.

    Raises: SettingsError where others write and nothing captures what changes.
    """
    if session.target is None:
        return PathChoice()
    opened = live.open_concurrent_edges(
        context, session.target, session.journal, session.table_id, stop.is_set
    )
    edges = stack.enter_context(opened)
    live.revisions_of(context, session.journal).refuse_old()
    installation = live.installation_of_job(edges.live, context)
    if installation is not None:
        edges.guard()
        tell_unmarked(context.job, session.journal, installation)
    begin_revision(edges, stop)
    writer_lease = edges.heartbeats.enter("fast")
    # A run that was refused since another mapping is the newest has no request under way.
    stack.push(
        lambda kind, *_: edges.heartbeats.leave(
            writer_lease, clean=kind is None or issubclass(kind, OldRevisionError)
        )
    )
    if installation is not None:
        click.echo(_PATH_MESSAGES[writer_lease.writer.kind], err=True)
        tell_unverified(session.journal, context.job, installation)
    elif writer_lease.writer.kind != "fast":
        what = "a relay or a strict service has written to this table, and capture is not installed any more"
        raise SettingsError(f"{what}: what changes would be missed; run `migrator capture install` first")
    else:
        click.echo(_UNCAPTURED, err=True)
    return PathChoice("" if installation is None else installation.id, edges, writer_lease)


def tell_unverified(journal: SqlJournal, job: Job, installation: Installation) -> None:
    """Says it where what changed between a backfill and the install of capture has not been looked for."""
    if what := live.unverified(journal, job, installation):
        click.echo(f"warning: {what}", err=True)


def begin_revision(edges: ConcurrentEdges, stop: Event) -> None:
    """Makes this mapping the one that the job's writers work by, where none has yet, and waits for those of another one.

    Raises: OldRevisionError where the job has gone on from it; Interrupted.
    """
    heartbeats = edges.heartbeats
    tell_registered(live.revisions_of(edges.context, edges.journal).register())
    if heartbeats.revisions.old(heartbeats.writers.living(edges.lifetimes.gone_s)):
        what = f"writers by another mapping are waited for, {edges.lifetimes.gone_s:g} s at most"
        click.echo(what, err=True)

    def wait(wait_s: float) -> None:
        if stop.wait(wait_s):
            raise Interrupted("stopped before it began")

    outlive(heartbeats.writers, heartbeats.revisions, edges.lifetimes, wait)


def tell_registered(before: Standing) -> None:
    """Says that the job has gone on to this mapping, where it has."""
    if before in ("new", "old"):
        verb = "goes on" if before == "new" else "goes back"
        what = f"the job {verb} to this mapping (or to these columns): a process that writes by another one is told to stop"
        rest = "start relays and services anew; rows that do not change keep their items until `migrator backfill`"
        click.echo(f"{what}; {rest}", err=True)


# ── What a backfill will cost, shown before it starts, and compared with the limit that was given ──


@dataclass(frozen=True)
class Allowed:
    """`max_cost`: US dollars above which nothing starts; `yes`: no question is asked."""

    max_cost: Decimal | None = None
    yes: bool = False


@dataclass(frozen=True)
class Bill:
    """An estimate with the prices of the job's region and table class; None where they are not known, and why."""

    estimate: Estimate
    price: Price | None
    unpriced: str = ""

    @property
    def cost(self) -> Decimal | None:
        return None if self.price is None else self.estimate.write_cost(self.price)

    def line(self) -> str:
        return estimate_line(self.estimate, self.price, self.unpriced)


def bill_of(job: Job, estimate: Estimate) -> Bill:
    options, region = job.target.options, job_wiring.region_of(job)
    if options.provisioned is not None:
        what = "the table's capacity is provisioned: AWS bills it by the hour, whatever is written"
        return Bill(estimate, None, what)
    price = price_of(region, options.table_class)
    regions = ", ".join(known_regions())
    unpriced = f"no price is known for the region {region or '(none set)'}; known: {regions}"
    return Bill(estimate, price, "" if price else unpriced)


def need_allowed(job: Job, bill: Bill, allowed: Allowed) -> None:
    """Returns where the run may start.

    Raises: SettingsError above --max-cost, where the price is not known, or without a terminal; RefusedError where
    the person who is asked says no.
    """
    limit, asks = allowed.max_cost, None if allowed.yes else job.tuning.confirm_above
    if limit is None and asks is None:
        return
    if bill.cost is None:
        raise SettingsError(f"the cost cannot be held against a limit: {bill.unpriced}")
    if limit is not None and bill.cost > limit:
        what = f"writing would cost about {usd(bill.cost)}, more than --max-cost {limit}"
        raise SettingsError(f"{what}; raise it, or move fewer entities or rows at once")
    if asks is None or bill.cost <= Decimal(str(asks)):
        return
    if not sys.stdin.isatty():
        what = f"writing would cost about {usd(bill.cost)}, more than tuning.confirm_above"
        raise SettingsError(f"{what}, and there is no terminal to ask at; say --yes")
    need_yes(f"Writing will cost about {usd(bill.cost)}. Start?")


# ── `migrator backfill`: every row into the table ──


@dataclass(frozen=True)
class BackfillFlags:
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
def backfill(
    command_job: CommandJob, max_refused: int | None, as_json: bool, whole_keys: bool, **values: object
) -> int:
    """The exit code of `migrator backfill`."""
    if values["explain"] and not values["dry_run"]:
        raise click.UsageError("--explain goes with --dry-run")
    address = address_of(str(values.pop("metrics_host")), cast("int | None", values.pop("metrics_port")))
    flags = BackfillFlags(**values)  # type: ignore[arg-type]
    read = _tuned(command_job.job, flags)
    allowed = read.tuning.max_refused if max_refused is None else max_refused
    with failure_kept("backfill", command_job), ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(
            job_wiring.open_job(read, "backfill", workers=flags.workers, stop=stop.is_set)
        )
        entities = chosen(context.checked.entities, flags.entities)
        need_bucket(read, entities)
        if flags.explain:
            _explain(context, entities)
        session = _session(stack, command_job, context, flags, stop)
        _need_rows(context, session, flags)
        path_choice = choose_path(stack, context, session, stop)
        identity = _identity(context, session, entities, flags, path_choice.installation)
        bill = _bill(context, session, entities, flags, identity)
        need_allowed(read, bill, Allowed(flags.max_cost, flags.yes or flags.dry_run))
        run = _begin(session, identity, flags)
        keep_installation(session.journal.database, run.id, path_choice.installation)
        stage = _stage(context, session, flags, path_choice, stop)
        if session.target is not None and run.state != "done":
            signs = signs_of(read.tuning)
            watched = Watched("backfill", context, session.journal, session.target, signs, address)
            stage = watched.open_backfill(stack, stage, bill.estimate.rows)
        with stopped_says(lambda: _stopped(session, run, dry_run=flags.dry_run)):
            result = _work(stage, run, entities, read.hooks)
        if as_json:
            _print_data(result, bill)
        else:
            _print(result, session, context, whole_keys=whole_keys)
    return DIFFERENT if result.total.refused > allowed else 0


def _tuned(job: Job, flags: BackfillFlags) -> Job:
    """The job with what the command line says instead of it."""
    if flags.max_write_units is None:
        return job
    return replace(job, tuning=job.tuning.model_copy(update={"max_write_units": flags.max_write_units}))


def _explain(context: JobContext, entities: list[CompiledEntity]) -> None:
    """On standard error, beside the progress: the result on standard output stays as it is."""
    for entity in entities:
        for line in explained_lines(
            entity.name, context.source.explain(entity.plan, context.job.tuning.page_rows)
        ):
            click.echo(line, err=True)


def _session(
    stack: ExitStack, command_job: CommandJob, context: JobContext, flags: BackfillFlags, stop: Event
) -> Session:
    design = context.checked.mapping.table
    if flags.dry_run:
        return dry_session(stack, design)
    return live_session(stack, context.job, design, command_job, stop, into_existing=flags.into_existing)


def _need_rows(context: JobContext, session: Session, flags: BackfillFlags) -> None:
    """Raises: SettingsError where items are not made of rows any more; a dry run writes none."""
    if flags.dry_run:
        return
    ownership = write_ownership(context.job, context.checked.mapping, session.journal)
    ask = ownership.need_direct if flags.force else ownership.need_rows
    ask()


def _identity(
    context: JobContext,
    session: Session,
    entities: list[CompiledEntity],
    flags: BackfillFlags,
    installation: str,
) -> RunIdentity:
    scope = scope_of(entities, flags.limit, named=bool(flags.entities))
    return identity_of("backfill", context, session.table_id, entities, scope, installation=installation)


def _bill(
    context: JobContext,
    session: Session,
    entities: list[CompiledEntity],
    flags: BackfillFlags,
    identity: RunIdentity,
) -> Bill:
    """What is left to write and what it costs, printed on stderr unless it is nothing."""
    unfinished = session.journal.find_run(identity)
    if unfinished is not None and (
        (unfinished.state == "done" and flags.restart) or unfinished.id <= _runs_before(session, identity)
    ):
        unfinished = None
    done = (
        {}
        if unfinished is None
        else {entity.name: session.journal.tally(unfinished, entity.name).rows for entity in entities}
    )
    bill = bill_of(context.job, estimate(context.source, entities, time.time(), limit=flags.limit, done=done))
    if bill.estimate.rows:
        click.echo(bill.line(), err=True)
    return bill


def _runs_before(session: Session, identity: RunIdentity) -> int:
    """The last run before the job went on, or back, to the mapping that it works by now."""
    newest = newest_of(session.journal.database, identity.job)
    return newest.runs_before if newest is not None else 0


def _begin(session: Session, identity: RunIdentity, flags: BackfillFlags) -> Run:
    run = begin(session.journal, identity, again=flags.restart, after=_runs_before(session, identity))
    if run.state == "done":
        what = f"run {run.id} finished {run.ended_at}: nothing left to do (--restart writes everything once more)"
        click.echo(what, err=True)
    elif run.resumed:
        click.echo(f"run {run.id} of {run.started_at} goes on", err=True)
    return run


def _stage(
    context: JobContext, session: Session, flags: BackfillFlags, path_choice: PathChoice, stop: Event
) -> Backfill:
    tuning = context.job.tuning
    options = BackfillOptions(flags.workers or tuning.workers, tuning.page_rows, flags.limit)
    return Backfill(
        source=path_choice.source(context),
        journal=session.journal,
        path=path_choice.path(context, session),
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


def _print(result: BackfillResult, session: Session, context: JobContext, *, whole_keys: bool) -> None:
    print_backfill(stdout(), result)
    unmasked = session.journal.findings(result.run, SHOWN)
    printed = findings_to_print(unmasked, context.checked.mapping, whole_keys=whole_keys)
    print_findings(stdout(), printed, result.findings)
    tell_masked(printed, unmasked)
