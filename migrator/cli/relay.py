"""`migrator relay` and `migrator purge`: marks made into items, and tombstones that nobody needs taken away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import click

from migrator import live_wiring, truth_wiring, wiring
from migrator.cli.beside import tell_lost_journal
from migrator.cli.capture_look import CaptureLook
from migrator.cli.instances import tell_unmarked
from migrator.cli.lag_hook import lag_watch
from migrator.cli.options import job_argument, read_job, stop_on_signals
from migrator.cli.runs import RunEnd, begin, identity_of, need_bucket
from migrator.errors import DIFFERENT, Interrupted
from migrator.journal.store import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.live_wiring import Beside
from migrator.ports import Run
from migrator.report.relay import RelayReport, lag_line
from migrator.stages.daemon import Daemon
from migrator.stages.lifetimes import Purge
from migrator.target.conditional import ConditionalWrites
from migrator.wiring import Laid

DISCARDED_TRIES = 3
"""A mark that failed less often may have met a failure that passes."""


@click.command()
@job_argument
@click.option("--once", is_flag=True, help="Stop when no mark is left.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Marks under way at once."
)
@click.option("--dry-run", is_flag=True, help="Count the marks that wait, change nothing.")
@click.option(
    "--discard-failed",
    is_flag=True,
    help="Delete the marks that could not be worked; verify --repair finds their rows.",
)
@click.option("--anyway", is_flag=True, help="Also where every access pattern is complete.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on this port.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address to serve them on.")
def relay(job: Path, once: bool, dry_run: bool, workers: int, **asked: Any) -> int:
    """Make items of what changed: take marks, read the rows that they touch, write, put the marks away.

    Runs until it is stopped (Ctrl-C, SIGTERM) or every access pattern is complete; several may run at once, on several
    hosts with one journal.

    Exit code 0: with --once, no mark is left that could be taken; 1: some could not be worked (see `migrator findings`);
    3: an edge gave up, the marks wait.
    """
    read = read_job(job)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(read, "relay", workers=workers, stop=stop.is_set))
        need_bucket(read, laid.checked.entities)
        if dry_run or asked["discard_failed"]:
            return _marks_alone(stack, laid, stop, discard=not dry_run)
        beside, journal, run = _open(stack, laid, stop, anyway=asked["anyway"])
        look = CaptureLook(partial(live_wiring.capture_status, laid))
        keep = partial(_keep, beside, journal, stop, look, anyway=asked["anyway"])
        later = stack.enter_context(ThreadPoolExecutor(1, "hooks"))
        lag = lag_watch(read, later, beside.live.marks.state)
        report = RelayReport(journal, run, beside.live.marks, keep, lag.see)
        if asked["metrics_port"] is not None:
            report.serve(asked["metrics_host"], asked["metrics_port"])
        daemon = Daemon(beside.relay, beside.presences, report, workers, stop)
        with RunEnd(journal, run, read.hooks):
            _run(daemon, once=once)
        beside.keep_ticket()
        click.echo(report.summary())
        failed = beside.live.marks.state().failed
    return DIFFERENT if once and failed else 0


def _marks_alone(stack: ExitStack, laid: Laid, stop: Event, *, discard: bool) -> int:
    live = stack.enter_context(live_wiring.open_live(laid.job, "relay", stop=stop.is_set, source=laid.source))
    live_wiring.need_installation(live, laid)
    if discard:
        click.echo(f"{live.marks.discard_failed(DISCARDED_TRIES):,} mark(s) discarded; run verify --repair")
    else:
        click.echo(lag_line(live.marks.state()))
    return 0


def _open(stack: ExitStack, laid: Laid, stop: Event, *, anyway: bool) -> tuple[Beside, SqlJournal, Run]:
    job = laid.job
    target = wiring.open_target(job, laid.checked.mapping.table, stop.is_set)
    table_id = live_wiring.existing_table(job, target)
    journal = stack.enter_context(wiring.open_journal(job))
    beside = stack.enter_context(live_wiring.open_beside(laid, target, journal, table_id, stop.is_set))
    ask = truth_wiring.need_direct if anyway else truth_wiring.need_rows
    ask(job, laid.checked.mapping, journal)
    installation = live_wiring.need_installation(beside.live, laid)
    tell_lost_journal(beside)
    tell_unmarked(job, journal, installation)
    identity = identity_of("relay", laid, table_id, laid.checked.entities)
    return beside, journal, begin(journal, identity, again=True)


def _keep(beside: Beside, journal: SqlJournal, stop: Event, look: CaptureLook, *, anyway: bool) -> None:
    """What a relay does now and then; it ends where the service may write the table itself, unless `anyway`."""
    beside.keep_ticket()
    look()
    if not anyway and truth_wiring.all_complete(beside.laid.job, beside.laid.checked.mapping, journal):
        click.echo(
            "every access pattern is complete: nothing is made of rows any more, the relay ends", err=True
        )
        stop.set()


def _run(daemon: Daemon, *, once: bool) -> None:
    try:
        daemon.run(once=once)
    except Interrupted:
        # A relay is stopped that way; what it had taken comes again.
        return


@click.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Count, take nothing away.")
def purge(job: Path, dry_run: bool) -> int:
    """Take away tombstones that nobody can be late for any more; DynamoDB's TTL would do it days later."""
    read = read_job(job)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        design = wiring.sound_mapping(read.mapping).mapping.table
        target = wiring.open_target(read, design, stop.is_set)
        table_id = live_wiring.existing_table(read, target)
        journal = stack.enter_context(wiring.open_journal(read))
        writers = SqlWriters(journal.database, table_id)
        lifetimes = live_wiring.lifetimes_of(read)
        stage = Purge(ConditionalWrites(target.store), writers, target.design, lifetimes, dry_run=dry_run)
        pages = (page.items for page in target.store.scan(0, 1))
        removed = 0
        for count in stage.run(pages, writers.now_s()):
            removed += count
            if stop.is_set():
                raise Interrupted("stopped; the same command goes on")
    click.echo(f"{removed:,} tombstone(s) {'would go' if dry_run else 'taken away'}")
    return 0
