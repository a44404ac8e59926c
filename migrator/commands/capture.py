"""`migrator capture` and `relay`: marks of changes, and the items that they become."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli


@click.group(cls=cli.Branch)
def capture() -> None:
    """Leave a mark of every change in the source, by triggers, from PostgreSQL's log, by streams of old tables of DynamoDB,
    or by the services themselves, for the relay to work."""


@capture.command(example="jobs/shop.yaml --dry-run")
@cli.job_argument
@cli.flag("--dry-run", "Print the SQL that would run, change nothing.")
@cli.option("--as", "Print a migration file, change nothing.", "form", type=click.Choice(["sql", "alembic"]))
@cli.option(
    "--by",
    "Who leaves the marks: services, by the adapter that all of them import; PostgreSQL's log, which the relay reads by"
    " a publication and a replication slot; or triggers (default: as installed, else triggers).",
    "marked_by",
    type=click.Choice(["services", "log", "triggers"]),
)
@cli.flag("--force", "Also where a pattern that DynamoDB answers gets another answer by this mapping.")
@cli.json_option
def install() -> cli.Work:
    """Make our two tables and the triggers, one table a transaction; what is there already stays as it is.

    With --by services only the tables are made. Without it on such an installation, triggers are made, and leave
    the marks from then on.

    With --by log the tables, a publication and a replication slot are made. Without it such an installation stays
    as it is and is brought up to date; --by triggers replaces it.

    Of old tables of DynamoDB the streams are switched on and begun with, and --dry-run prints calls of aws.
    """
    from migrator.commands.capture_work import install

    return install


@capture.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def status() -> cli.Work:
    """Compare triggers, or what is read of the log, with mapping and schema, look at streams of old tables, or count the
    services that leave marks. Of a log, how far its slot is behind.

    Exit code 1 where a change could leave no mark.
    """
    from migrator.commands.capture_work import status

    return status


@capture.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--dry-run", "Print the SQL that would run, change nothing.")
@cli.flag("--discard-marks", "Also where marks wait; their changes are lost to the table.")
@cli.flag("--force", "Also while services run that mark changes; their writes fail then.")
@cli.json_option
def uninstall() -> cli.Work:
    """Take away the triggers, or the slot and the publication, and our tables, so that nothing of ours is left in the
    source.

    Streams of old tables of DynamoDB stay on: others may read them.
    """
    from migrator.commands.capture_work import uninstall

    return uninstall


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --once")
@cli.job_argument
@cli.flag("--once", "Stop when no mark is left; waits for those of others.")
@cli.option("--workers", "Marks under way at once.", type=click.IntRange(1, 64), default=2, show_default=True)
@cli.part_option
@cli.flag("--dry-run", "Count the marks that wait, change nothing.")
@cli.flag("--discard-marks", "Delete the marks that could not be worked; verify --repair finds their rows.")
@cli.flag(
    "--force", "Also where every pattern is complete, or one that DynamoDB answers gets another answer."
)
@cli.metrics_option
@cli.json_option
def relay() -> cli.Work:
    """Make items of what changed: take marks, read the rows that they touch, write, put the marks away.

    Runs until it is stopped (Ctrl-C, SIGTERM) or every access pattern is complete; several may run at once, on several
    hosts with one journal. It starts and ends the others of tuning.relay_processes.

    Exit code 0: with --once, no mark is left that is ripe; 1: some could not be worked, or rows were refused or met a
    collision (see `migrator status --findings`), or another relay still has marks after a lease (tuning.lease_s);
    3: an edge gave up, the marks wait.
    """
    from migrator.commands.capture_work import relay

    return relay
