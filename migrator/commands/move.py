"""The commands under Move as click sees them: backfill, verify, status and pace; and `shadow`."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli
from migrator.cli import names
from migrator.commands.cutover import own_name


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --max-write-units 500")
@cli.job_argument
@cli.entity_option
@cli.option("--workers", "Pages processed in parallel.", type=click.IntRange(1, 64))
@cli.flag("--join", "Help the running backfill of this job, on this host or another, until it ends.")
@cli.part_option
@cli.spark_option
@cli.option("--limit", "Only the first rows of each entity.", type=click.IntRange(1))
@cli.flag("--dry-run", "Read and build everything, write nothing.")
@cli.flag("--explain", "With --dry-run: show the source's plans for a page.")
@cli.flag("--restart", "Read and write everything again after a finished run.")
@cli.flag("--into-existing", "Write into a table that contains other items; these are never replaced.")
@cli.option(
    "--max-write-units",
    "Maximum write units per second, for the table and each index.",
    type=click.IntRange(1),
)
@cli.option("--max-cost USD", "Do not start if writing would cost more than this.", type=cli.MONEY)
@cli.flag("--yes", "Skip the question about the cost (tuning.confirm_above).")
@cli.force_option
@cli.metrics_option
@cli.keys_option
@cli.json_option
def backfill() -> cli.Work:
    """Write every row of the source into the table; resume a run that was stopped.

    Exit code 0: every row is written; 1: more rows were refused than tuning.max_refused allows (see `migrator status
    --findings`); 3 and 130: stopped; the same command resumes.
    """
    from migrator.commands.backfill_work import backfill

    return backfill


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --sample 1%")
@cli.job_argument
@cli.option("--workers", "Pages processed in parallel.", type=click.IntRange(1, 64))
@cli.flag(
    "--join",
    "Help the running verify of this job (begun with tuning.processes), on this host or another, until it ends.",
)
@cli.part_option
@cli.spark_option
@cli.option("--sample", "Compare only some rows with their items: 1%, 0.5% or 1000 rows.")
@cli.option("--seed", "Seed of the sample; the same seed selects the same rows.", type=click.IntRange(0))
@cli.flag("--repair", "Queue every row that still differs for the relay.")
@cli.flag("--force", "With --repair: even if every access pattern is complete.")
@cli.flag("--dry-run", "With --repair: print how many rows it would queue, and queue none.")
@cli.flag("--restart", "Compare everything again, even if a stopped verify could be resumed.")
@cli.duration(
    "--settle",
    "How long to wait before differences of a live source are checked again (default 10s).",
    "settle_s",
)
@cli.option(
    "--source URL",
    "Read rows as another user or from another server than the job's, such as env:NAME (or file:, secret:, a URL).",
    "source_url",
)
@cli.keys_option
@cli.json_option
def verify() -> cli.Work:
    """Compare every row with its items and every item with its row, and totals with plain SQL.

    If changes are captured, differences are checked again later, because a change may have been pending.
    With --sample it compares only some rows with their items, without items that have no row and without totals.
    A verify that was stopped within the last hour resumes without comparing the same pages again.
    With --source rows are read as another user; changes are still read as the job's user.

    Exit code 0: clean; 1: differences (see `migrator status --findings`); 3 and 130: stopped; the same command resumes.
    """
    from migrator.commands.verify_work import verify

    return verify


@click.group(cls=cli.Branch)
def shadow() -> None:
    """Compare DynamoDB's answers with SQL's."""


@shadow.command(example="jobs/shop.yaml --sample 100")
@cli.job_argument
@cli.option("--pattern P", "Only this pattern; may be repeated.", "names", multiple=True)
@cli.option(
    "--sample", "Questions per pattern.", "questions", type=click.IntRange(1), default=200, show_default=True
)
@cli.option("--seed", "The same seed uses the same parameters.", type=click.IntRange(0))
@cli.duration("--settle", "How long both sides may take to come to the same answer (default 3s).", "settle_s")
@cli.flag("--control", "Compare SQL with SQL: the noise of the source itself.")
@cli.option("--workers", "Questions at once.", type=click.IntRange(1, 64), default=4, show_default=True)
@cli.flag("--dry-run", "Keep nothing of it in the journal.")
@cli.json_option
def replay() -> cli.Work:
    """Run every access pattern on both sides, with parameters from the source, and compare the answers.

    It writes to neither side and needs no service. The journal keeps the results for `migrator report`. A difference is
    checked again until --settle is over: one that disappears is transient and does not count.

    Exit code 0: clean; 1: differences, errors of one side, or not proven, because a pattern has no parameters;
    3 and 130: stopped.
    """
    from migrator.commands.query_work import replay

    return replay


# ── `migrator status` and `pace`: a job's processes while they are at work ──


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --watch")
@cli.job_argument
@cli.json_option
@click.option(
    "--watch",
    "every_s",
    callback=cli.seconds,
    is_flag=False,
    flag_value="5s",
    metavar="[DURATION]",
    help="Print it again every 5 s, or as often as given, until Ctrl-C.",
)
@cli.flag(
    "--findings",
    "List the findings of a run: refused rows, collisions, differences; first open findings of relays.",
)
@cli.option(
    "--run",
    "With --findings: of this run (default: the newest).",
    "number",
    type=int,
    shell_complete=names.runs,
)
@cli.flag(
    "--all",
    "Also print the journal, the runs, the writers and the services; with --findings: all, not only the first 100.",
    "everything",
)
@cli.keys_option
def status() -> cli.Work:
    """Show the status of a job: lag, rate, time left, last failure, pace, and each backfill and relay.

    A process is slow below half of its usual rate, and stalled if work is pending and nothing was done for a minute.

    A finding of live change is open until a relay or a backfill has written its row. Keys show constant
    text, numbers, UUIDs and times; without --show-keys the rest is masked (…3f9a).
    """
    from migrator.commands.status_work import status

    return status


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --max-write-units 200")
@cli.job_argument
@click.option(
    "--pause/--resume",
    default=None,
    help="Pause backfills and relays after their current work, or let paused ones continue.",
)
@cli.option(
    "--max-write-units",
    "Maximum write units per second, for the table and each index: for a backfill, and for all relays together.",
    type=click.IntRange(1),
)
@cli.flag("--off", "The limit of the job file or of each process's command line, again.")
@cli.option("--reason", "Shown by `migrator status`, such as the ticket of an incident.", default="")
@cli.option("--who", "Who does it (default: user@host).", default=own_name)
@cli.json_option
def pace() -> cli.Work:
    """Pause, resume or slow down the running backfills and relays of a job; without an option, show the pace.

    The journal keeps it, also for processes that start later. Running ones follow with their next heartbeat. While they are
    paused, changes stay pending in the source; services continue, and capture theirs.
    """
    from migrator.commands.status_work import pace

    return pace
