"""`migrator status`, `throttle`, `pause` and `resume`: a job's processes while they are at work."""

from __future__ import annotations

import click

from migrator.cli.command_line import (
    Leaf,
    Work,
    adopt_option,
    job_argument,
    json_option,
    some_seconds,
)
from migrator.commands.cutover import own_name

_reason = click.option(
    "--reason", default="", help="Shown by `migrator status`, such as the ticket of an incident."
)
_who = click.option("--who", default=own_name, help="Who asks for it (default: user@host).")


@click.command(cls=Leaf, example="jobs/shop.yaml --watch")
@job_argument
@json_option
@click.option("--runs", is_flag=True, help="Also print the journal, the runs, the writers and the services.")
@click.option("--watch", is_flag=True, help="Say how it gets on again and again, until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    callback=some_seconds,
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="With --watch: how often.",
)
@click.option(
    "--same-job",
    is_flag=True,
    help="Keep on record that the table or the source that the job names now is the job's, by one name more.",
)
@adopt_option
def status() -> Work:
    """Show the status of a job: lag, rate, time left, last failure, pace, and each backfill and relay.

    Warnings follow, if there are any.

    A process is slow where it does less than half of its usual rate, and stalled where work waits and nothing was done for a
    minute.
    """
    from migrator.commands.status_work import status

    return status


@click.command(cls=Leaf, example="jobs/shop.yaml --max-write-units 200")
@job_argument
@click.option(
    "--max-write-units",
    type=click.IntRange(1),
    help="Write units a second, at most, of table or index: of a backfill, and of all relays together.",
)
@click.option("--off", is_flag=True, help="As the job file or the command line of each process says, again.")
@_reason
@_who
@json_option
@adopt_option
def throttle() -> Work:
    """Change how many write units backfills and relays take, while they are at work; without an option, say what is asked.

    It is kept in the journal, for processes that begin later, too. Those at work hear of it with their next heartbeat.
    """
    from migrator.commands.status_work import throttle

    return throttle


@click.command(cls=Leaf, example="jobs/shop.yaml --reason INC-1234")
@job_argument
@_reason
@_who
@json_option
@adopt_option
def pause() -> Work:
    """Pause backfills and relays of a job, once what is under way is done; marks wait in the source meanwhile.

    A process that begins later waits as well. Services go on, and leave marks.
    """
    from migrator.commands.status_work import pause

    return pause


@click.command(cls=Leaf, example="jobs/shop.yaml")
@job_argument
@_who
@json_option
@adopt_option
def resume() -> Work:
    """Let paused backfills and relays of a job go on."""
    from migrator.commands.status_work import resume

    return resume
