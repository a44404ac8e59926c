"""`migrator verify`: rows against items, both ways."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import click

from migrator import wiring
from migrator.cli.options import job_argument, json_option, progress, read_job, stdout, stop_on_signals
from migrator.cli.runs import RunEnd, begin, existing_table, identity_of, need_bucket
from migrator.errors import DIFFERENT
from migrator.journal.lease import RunLease
from migrator.report.results import print_findings, print_verify, verify_data
from migrator.stages.verify import Verify, VerifyOptions


@click.command()
@job_argument
@click.option("--workers", type=click.IntRange(1, 64), help="Pages under way at once.")
@json_option
def verify(job: Path, workers: int | None, as_json: bool) -> int:
    """Compare every row with its items and every item with its row, and totals by plain SQL.

    Exit code 0: clean; 1: differences (see `migrator findings`); 3 and 130: stopped, the same command goes on.
    """
    read = read_job(job)
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        laid = stack.enter_context(wiring.lay(read, "verify", workers=workers, stop=stop.is_set))
        need_bucket(read, laid.checked.entities)
        target = wiring.open_target(read, laid.checked.mapping.table, stop.is_set)
        table_id = existing_table(read, target)
        journal = stack.enter_context(wiring.open_journal(read))
        lease = stack.enter_context(RunLease(journal, read.name))
        revision = laid.checked.mapping.revision
        run = begin(journal, identity_of("verify", read, table_id, revision, ""), again=True)
        if run.resumed:
            click.echo(f"run {run.id} of {run.started_at} goes on", err=True)
        options = VerifyOptions(
            workers or read.tuning.workers, read.tuning.page_rows, read.tuning.scan_segments
        )
        stage = Verify(
            laid.source,
            target.store,
            journal,
            progress(),
            options,
            stop,
            check=lease.check,
            objects=target.objects,
        )
        with RunEnd(journal, run), stage.progress:
            result = stage.run(run, laid.checked.entities)
        if as_json:
            click.echo(json.dumps(verify_data(result), sort_keys=True))
        else:
            print_verify(stdout(), result)
            print_findings(stdout(), journal.findings(run, 20), result.findings)
    return DIFFERENT if result.findings else 0
