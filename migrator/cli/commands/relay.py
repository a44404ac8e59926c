"""`migrator relay` and `migrator purge`: changes become items, old tombstones are deleted."""

from __future__ import annotations

import click

from migrator.cli.command_line import Leaf, Work
from migrator.cli.commands.options import adopt_option, force_option, job_argument, json_option


@click.command(cls=Leaf)
@job_argument
@click.option("--once", is_flag=True, help="Stop when no mark is left; waits for those of others.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Marks under way at once."
)
@click.option("--dry-run", is_flag=True, help="Count the marks that wait, change nothing.")
@click.option(
    "--discard-failed",
    is_flag=True,
    help="Delete the marks that could not be worked; verify --repair finds their rows.",
)
@force_option("Also where every access pattern is complete.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on this port.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address to serve them on.")
@json_option
@adopt_option
def relay() -> Work:
    """Make items of what changed: take marks, read the rows that they touch, write, put the marks away.

    Runs until it is stopped (Ctrl-C, SIGTERM) or every access pattern is complete; several may run at once, on several
    hosts with one journal.

    Exit code 0: with --once, no mark is left that is ripe; 1: some could not be worked, or rows were refused or met a
    collision (see `migrator findings`), or another relay still has marks after the time of a lease (tuning.lease_s);
    3: an edge gave up, the marks wait.
    """
    from migrator.cli.live.relay import relay

    return relay


@click.command(cls=Leaf)
@job_argument
@click.option("--dry-run", is_flag=True, help="Count, take nothing away.")
@adopt_option
@json_option
def purge() -> Work:
    """Take away tombstones that nobody can be late for any more; DynamoDB's TTL would do it days later."""
    from migrator.cli.live.relay import purge

    return purge
