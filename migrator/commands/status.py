"""`migrator status` and `pace`: a job's processes while they are at work."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli
from migrator.cli import names
from migrator.commands.cutover import own_name


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
    help="Print it again and again, every 5 s or as said, until Ctrl-C.",
)
@cli.flag(
    "--findings",
    "List what a run found: refused rows, collisions, differences; first what relays found and is still open.",
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

    Warnings follow, if there are any.

    A process is slow where it does less than half of its usual rate, and stalled where work waits and nothing was done for a
    minute.

    A finding of live change is open until its row was written well, by a relay or a backfill. Keys show constant
    text, numbers, UUIDs and times; without --show-keys the rest is masked (…3f9a).
    """
    from migrator.commands.status_work import status

    return status


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --max-write-units 200")
@cli.job_argument
@click.option(
    "--pause/--resume",
    default=None,
    help="Pause backfills and relays once what is under way is done, or let paused ones continue.",
)
@cli.option(
    "--max-write-units",
    "Write units a second, at most, of table or index: of a backfill, and of all relays together.",
    type=click.IntRange(1),
)
@cli.flag("--off", "The limit of the job file or of each process's command line, again.")
@cli.option("--reason", "Shown by `migrator status`, such as the ticket of an incident.", default="")
@cli.option("--who", "Who does it (default: user@host).", default=own_name)
@cli.json_option
def pace() -> cli.Work:
    """Pause, resume or slow down the backfills and relays of a job while they work; without an option, show the pace.

    The journal keeps it, also for processes that begin later. Those at work follow with their next heartbeat. While they are
    paused, marks wait in the source; services continue, and leave marks.
    """
    from migrator.commands.status_work import pace

    return pace
