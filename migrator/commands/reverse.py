"""`migrator reverse`: what services write to the table becomes rows of the source again."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli


@click.group(cls=cli.Branch)
def reverse() -> None:
    """Keep rows of the source up with what services write to the table: a way back."""


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def check() -> cli.Work:
    """Say whether the rows come back from the items: per table, or which column is lost and the line that would keep it;
    and whether the table's stream is on.

    Of the entities in writes.direct; of all if it names none. Once services write items, it also reads the table and counts
    the attributes that no row keeps. Exit code 1: something stands in the way.
    """
    from migrator.commands.reverse_work import check

    return check


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--once", "Stop when all is worked that was written before it began.")
@cli.flag(
    "--restart",
    "Begin the stream again, after it was lost or replaced; then also run `migrator reverse verify --repair`.",
)
@cli.flag("--dry-run", "Say what stands in the way and what waits, change nothing.")
@cli.rows_settle_option
@cli.json_option
def start() -> cli.Work:
    """Read the table's stream, and write the rows of each item that changed into the source.

    Runs until it is stopped (Ctrl-C, SIGTERM, `migrator reverse stop`); several may run at once, on several hosts with one
    journal. Start it before a pattern is complete: as long as no entity is direct it reads the stream and writes nothing,
    and makes rows of an entity as soon as `migrator capture install` has put on record that the service writes it. From then
    on triggers refuse what others write to its tables, until the way back.

    Exit code 0; 1: with --once, rows wait that no time mends (see `migrator reverse status`); 2: rows do not come back, or
    the stream is off; 3: an edge gave up, the stream has lost changes, or `migrator cutover rollback` is at work, which the
    message says.
    """
    from migrator.commands.reverse_work import start

    return start


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--attributes", "Also read the table, and count attributes of items that no row keeps.")
@cli.json_option
def status() -> cli.Work:
    """Say how far each shard of the stream is behind, which rows wait, and why, and of which tables SQL writers are refused.

    Exit code 1 where it was not begun, is further behind than cutover.lag_max_s of the job, or rows wait that the source
    refused or no row fits.
    """
    from migrator.commands.reverse_work import status

    return status


@reverse.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def stop() -> cli.Work:
    """End every process of `migrator reverse start` of this job, once what is under way is done; on any host."""
    from migrator.commands.reverse_work import stop

    return stop


@reverse.command(example="jobs/shop.yaml --repair")
@cli.job_argument
@cli.flag(
    "--repair",
    "Say how many rows differ, write each as its items say, then compare again; rows that no item holds stay.",
)
@cli.flag(
    "--delete-rows", "With --repair: rows that no item holds are deleted, also those that never had one."
)
@cli.flag("--dry-run", "With --repair: say what differs, and write nothing.")
@cli.rows_settle_option
@cli.keys_option
@cli.json_option
def verify() -> cli.Work:
    """Compare each row with what its items say, and each item with its rows.

    Of the entities in writes.direct, or of all, where there are none yet. It may run beside `migrator reverse start`; what
    is on its way is looked at again. With --repair rows are written as that one writes them, and with --delete-rows go as
    late; no backfill and no way back runs meanwhile.

    Exit code 0: rows are what the items say; 1: differences, or attributes that no row keeps; 2: rows do not come back, or,
    with --repair, the stream is off or was not begun with; 3 and 130: stopped.
    """
    from migrator.commands.reverse_work import verify

    return verify
