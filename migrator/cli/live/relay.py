"""`migrator relay` and `migrator purge`: marks become items, and old tombstones are deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Event
from typing import Any

import click

from migrator.cli.backfill import begin_revision, tell_unverified
from migrator.cli.command_line import print_json
from migrator.cli.lag import lag_watch
from migrator.cli.options import belonging, shown_live, stop_on_signals
from migrator.cli.runs import RunEnd, begin, identity_of, need_bucket, tell_unmarked
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.model.errors import DIFFERENT, Interrupted
from migrator.model.journal import Run
from migrator.output.relay import RelayReport, lag_line, open_line
from migrator.runtime.logs import get_logger
from migrator.settings.transforms import sound_mapping
from migrator.stages.live.capture import ROWS_CAPTURED, CaptureStatus
from migrator.stages.live.daemon import Daemon
from migrator.stages.live.writers import Purge
from migrator.target.conditional import ConditionalWrites
from migrator.target.store import by_condition
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import CommandJob, JobContext, write_ownership
from migrator.wiring.live import ConcurrentEdges

# ──
# Whether changes still leave marks: a relay whose triggers are gone would be idle, without an error.

LOOK_S = 60.0
_log = get_logger("relay")


@dataclass
class CaptureCheck:
    """`status`: asks the source. Tells of what is not captured once a minute, as long as it lasts; of a partition that
    came, once."""

    status: Callable[[], CaptureStatus]
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _partitions: set[str] = field(default_factory=set)

    def __call__(self) -> None:
        """Raises: what `status` raises."""
        if self._looked_at is None:
            # The start has looked already.
            self._looked_at = self.clock()
        if self.clock() - self._looked_at < LOOK_S:
            return
        self._looked_at = self.clock()
        capture = self.status()
        open_ = {table.table: table.state for table in capture.tables if table.state not in ROWS_CAPTURED}
        if capture.installation is None or open_:
            _log.warning(
                "changes_leave_no_mark", tables=open_, installed=capture.installation is not None, see=_SEE
            )
        if set(capture.partitions) - self._partitions:
            _log.warning("truncate_leaves_no_mark", new_partitions=capture.partitions, mend=_INSTALL)
        self._partitions = set(capture.partitions)


_INSTALL = "migrator capture install"
_SEE = "`migrator capture status`; after `migrator capture install` run `migrator verify --repair`"


# ──
# `migrator relay` and `migrator purge`: marks made into items, and old tombstones deleted.

_WRITTEN_ALL_THE_SAME = {"apart"}
"""Kinds of findings whose rows have their items none the less."""
DISCARDED_TRIES = 3
"""A mark that failed less often may have met a failure that passes."""


@belonging()
def relay(command_job: CommandJob, once: bool, dry_run: bool, workers: int, **options: Any) -> int:
    """The exit code of `migrator relay`."""
    read = command_job.job
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        context = stack.enter_context(job_wiring.open_job(read, "relay", workers=workers, stop=stop.is_set))
        need_bucket(read, context.checked.entities)
        if dry_run or options["discard_failed"]:
            is_discarded, as_json = not dry_run, options["as_json"]
            return _marks_alone(stack, command_job, context, stop, discard=is_discarded, as_json=as_json)
        edges, journal, run = _open(stack, context, command_job, stop, force=options["force"])
        capture_check = CaptureCheck(partial(live_wiring.capture_status, context))
        keep = partial(_keep, edges, journal, stop, capture_check, force=options["force"])
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        lag = lag_watch(read, later, edges.live.marks.state)
        report = RelayReport(journal, run, edges.live.marks, edges.open_findings, keep, lag.see)
        highest = edges.memory.highest()
        if options["metrics_port"] is not None:
            report.serve(options["metrics_host"], options["metrics_port"])
        daemon = Daemon(edges.encoding_relay, edges.heartbeats, report, edges.guard, workers, stop)
        with RunEnd(journal, run, read.hooks), shown_live(report.line):
            _run(daemon, once=once)
        if once:
            edges.guard()
        _print_end(report, daemon, as_json=options["as_json"])
        failed = edges.live.marks.state().failed
        open_kinds = edges.open_findings.counts(above=highest).keys() - _WRITTEN_ALL_THE_SAME
        if once and stop.is_set() and not _is_over(edges, journal):
            raise Interrupted("stopped before every mark was looked at; the same command goes on with them")
    return DIFFERENT if once and (failed or daemon.left or open_kinds) else 0


def _print_end(report: RelayReport, daemon: Daemon, *, as_json: bool) -> None:
    if as_json:
        print_json(report.data() | {"left_to_others": daemon.left})
    else:
        click.echo(report.summary())
    if daemon.left:
        what = f"{daemon.left:,} mark(s) are another relay's, which did not finish them while a lease lasts"
        click.echo(f"warning: {what}; see whether it is stuck, and give the same command again", err=True)


def _marks_alone(
    stack: ExitStack,
    command_job: CommandJob,
    context: JobContext,
    stop: Event,
    *,
    discard: bool,
    as_json: bool,
) -> int:
    live = stack.enter_context(
        live_wiring.open_live(context.job, "relay", stop=stop.is_set, source=context.source)
    )
    live_wiring.need_installation(live, context)
    if discard:
        discarded = live.marks.discard_failed(DISCARDED_TRIES)
        data, line = (
            {"discarded": discarded},
            f"{discarded:,} mark(s) discarded; run `migrator verify --repair`",
        )
    else:
        counts = live_wiring.open_findings_of(context.job, command_job.journal()).counts()
        state = live.marks.state()
        data = asdict(state) | {"open_findings": counts}
        line = "\n".join(filter(None, (lag_line(state, counts), open_line(counts))))
    if as_json:
        print_json(data)
    else:
        click.echo(line)
    return 0


def _open(
    stack: ExitStack,
    context: JobContext,
    command_job: CommandJob,
    stop: Event,
    *,
    force: bool,
) -> tuple[ConcurrentEdges, SqlJournal, Run]:
    job = context.job
    target = job_wiring.open_target(job, context.checked.mapping.table, stop.is_set)
    table_id = target.table_id()
    journal = command_job.journal(stop.is_set)
    edges = stack.enter_context(
        live_wiring.open_concurrent_edges(context, target, journal, table_id, stop.is_set)
    )
    ownership = write_ownership(job, context.checked.mapping, journal)
    ask = ownership.need_direct if force else ownership.need_rows
    ask()
    live_wiring.revisions_of(context, journal).refuse_old()
    installation = live_wiring.need_installation(edges.live, context)
    edges.guard()
    tell_unmarked(job, journal, installation)
    tell_unverified(journal, job, installation)
    begin_revision(edges, stop)
    edges.open_findings.keep_entities(edges.entities)
    identity = identity_of("relay", context, table_id, context.checked.entities)
    return edges, journal, begin(journal, identity, again=True, after=0)


def _keep(
    edges: ConcurrentEdges, journal: SqlJournal, stop: Event, check_capture: CaptureCheck, *, force: bool
) -> None:
    """What a relay does now and then; it ends where the service may write the table itself, unless `force`."""
    edges.guard()
    check_capture()
    if not force and _is_over(edges, journal):
        click.echo(
            "every access pattern is complete: nothing is made of rows any more, the relay ends", err=True
        )
        stop.set()


def _is_over(edges: ConcurrentEdges, journal: SqlJournal) -> bool:
    """Whether the service may write the table itself by now."""
    return write_ownership(edges.context.job, edges.context.checked.mapping, journal).is_service()


def _run(daemon: Daemon, *, once: bool) -> None:
    try:
        daemon.run(once=once)
    except Interrupted:
        # A relay is stopped that way; what it had taken comes again.
        return


@belonging()
def purge(command_job: CommandJob, dry_run: bool, as_json: bool) -> int:
    """The exit code of `migrator purge`."""
    read = command_job.job
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        design = sound_mapping(read.mapping).mapping.table
        target = job_wiring.open_target(read, design, stop.is_set)
        table_id = target.table_id()
        journal = command_job.journal(stop.is_set)
        writers = SqlWriters(journal.database, table_id)
        lifetimes = live_wiring.lifetimes_of(read)
        removed = 0

        def check() -> None:
            if stop.is_set():
                progress_text = f"{removed:,} tombstone(s) {'were counted' if dry_run else 'are taken away'}"
                raise Interrupted(f"stopped; {progress_text} by now, and the same command goes on")

        # A tombstone is deleted by its ticket, so a request that arrives an hour late deletes nothing else.
        store = ConditionalWrites(target.store if dry_run else target.store.fenced(by_condition))
        stage = Purge(store, writers, target.design, lifetimes, check, dry_run=dry_run)
        for count in stage.run(target.pages(), writers.now_s()):
            removed += count
            check()
    if as_json:
        print_json({"tombstones": removed, "dry_run": dry_run})
    else:
        click.echo(f"{removed:,} tombstone(s) {'would go' if dry_run else 'taken away'}")
    return 0
