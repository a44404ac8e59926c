"""The commands under Prepare as click sees them, and `mapping`: mapping, table, doctor, local, capture and relay."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli
from migrator.cli import names
from migrator.settings.roles import ROLES, SQL_ROLES

_FILE = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@click.group(cls=cli.Branch)
def mapping() -> None:
    """Check mapping files and try them on single rows."""


@mapping.command(example="mappings/shop.yaml --source env:SHOP_URL")
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE…", nargs=-1, required=True)
@cli.option(
    "--source", f"{cli.SOURCE_HELP} Without it only the form is checked.", envvar="MIGRATOR_SOURCE_URL"
)
@cli.flag(
    "--invertible",
    "Print per table whether its rows can be made from their items, and what would be lost (with --source).",
)
@cli.json_option
def check() -> cli.Work:
    """Report every fault of mapping or job FILEs at once, compared with the real schema if a source is given.

    Of a job, the file and the mapping that it names are checked. With --source it also names tables that have no entity,
    except those in cutover: {leave: […]}.

    It reads no journal and no DynamoDB table: `migrator doctor JOB` checks both.

    With --invertible it prints instead, per table, which columns cannot be made from items, why, and the line of the mapping
    that would keep them.

    Exit code 0: no faults (warnings are printed), or every table can be made from items; 1: some cannot
    (--invertible); 2: faults.
    """
    from migrator.commands.mapping_work import check

    return check


@mapping.command(name="try", example="shop.yaml --source env:SHOP_URL --entity order --key 42")
@_FILE
@cli.option("--source", cli.SOURCE_HELP, envvar="MIGRATOR_SOURCE_URL", required=True)
@cli.option("--entity", "The entity to build.", required=True, shell_complete=names.entities)
@cli.option("--key", "The row's key: 42, or --key a=1 --key b=2.", "keys", multiple=True)
@cli.json_option
def try_() -> cli.Work:
    """Print one row tree and the items that it becomes; without --key the entity's item program, and no row is read.

    A program lists the operations that the mapping is compiled to: what each item is made of, and how each column is read.
    """
    from migrator.commands.mapping_source import try_

    return try_


@click.group(cls=cli.Branch)
def table() -> None:
    """Create the table of a job, compare it with the mapping, and change its indexes."""


@table.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--dry-run", "Print the CreateTable request as JSON, create nothing.")
@cli.json_option
def create() -> cli.Work:
    """Create the table with its keys, indexes, TTL and options, and wait until it is ready.

    A table that exists and fits stays unchanged.
    """
    from migrator.commands.table_work import create

    return create


@table.command(name="check", example="jobs/shop.yaml")
@cli.job_argument
@click.option(
    "--as", "form", type=click.Choice(["cloudformation", "terraform"]), help="Also print the lines to edit."
)
@cli.json_option
def check_table() -> cli.Work:
    """Print how the table differs from the mapping and the job's options. Exit code 1: it differs."""
    from migrator.commands.table_work import check

    return check


@table.command(name="change", example="jobs/shop.yaml")
@cli.job_argument
@cli.option(
    "--as", "Print the lines to edit instead.", "form", type=click.Choice(["cloudformation", "terraform"])
)
@cli.flag("--dry-run", "Print the UpdateTable requests as JSON, change nothing.")
@cli.flag("--yes", "Remove indexes without asking.")
@cli.json_option
def change_table() -> cli.Work:
    """Add the global indexes that the table lacks, then remove those that the mapping does not have, one at a time.

    It waits until DynamoDB has filled each of them. If it was stopped, run it again to resume. An index that a pattern
    or a service may still use is not removed, and none is without a question or --yes. Key and projection of an index
    cannot be altered: write the new one under another name.

    Exit code 0: the indexes match the mapping; 1: some do not, or would be changed; 130: stopped.
    """
    from migrator.commands.table_work import change

    return change


@click.command(cls=cli.Leaf, example="jobs/shop.yaml")
@cli.job_argument
@cli.flag(
    "--write", "Also test the rights to write, on an item and an object of its own, which are deleted again."
)
@cli.option(
    "--role ROLE",
    "Only what this role needs; each of its rights must exist (migrator export --as iam, grants): "
    + f"{', '.join(sorted({*ROLES, *SQL_ROLES}))}.",
    type=click.Choice(sorted({*ROLES, *SQL_ROLES})),
)
@cli.flag(
    "--probe",
    "Test what migrator relies on in DynamoDB, on a table of its own that is deleted again (under 1 USD on AWS).",
)
@cli.option(
    "--to s3://BUCKET/PREFIX",
    "With --probe: also import a file, which is created there and deleted again.",
    "bucket",
)
@cli.flag("--yes", "With --probe: skip the question before the table is made.")
@cli.json_option
def doctor() -> cli.Work:
    """Check everything that a run of JOB needs: settings, packages, source, table, permissions, clocks, journal.

    With --role a right that cannot be tried without leaving something behind is a warning. Nothing is written except the
    journal's own file. Exit code 0: nothing failed; 1: something did.
    """
    from migrator.commands.table_work import doctor

    return doctor


@click.command(cls=cli.Leaf, example="stop")
@click.argument("stop", type=click.Choice(["stop"]), required=False, metavar="[stop]")
@cli.json_option
def local() -> cli.Work:
    """Show whether the embedded DynamoDB runs on this machine, and where; `stop` stops it.

    A job with `target: embedded` (MiniStack) or `target: dynoxide` starts it. Its tables are kept for the next start.
    """
    return _stopped_or_shown


def _stopped_or_shown(stop: str | None, as_json: bool) -> int:
    from migrator.stages.session import local as servers  # imported here, so that help does not wait for it

    if stop:
        stopped = servers.stop()
        data: dict[str, object] = {"stopped": stopped}
        line = "stopped; its tables are kept" if stopped else "it was not running"
    else:
        server, line = servers.running()
        data = {"running": server is not None}
        data |= {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
    if as_json:
        cli.print_json(data)
    else:
        click.echo(line)
    return 0


# ── `migrator capture` and `relay`: marks of changes, and the items that they become ──


@click.group(cls=cli.Branch)
def capture() -> None:
    """Capture every change in the source, by triggers, from the database's log, by streams of old DynamoDB tables,
    or by the services themselves, for the relay."""


@capture.command(example="jobs/shop.yaml --dry-run")
@cli.job_argument
@cli.flag("--dry-run", "Print the SQL that would run, change nothing.")
@cli.option("--as", "Print a migration file, change nothing.", "form", type=click.Choice(["sql", "alembic"]))
@cli.option(
    "--by",
    "Who captures changes: services, by the adapter that all of them import; the log of PostgreSQL or MySQL, which"
    " the relay reads; or triggers (default: as installed, else triggers).",
    "marked_by",
    type=click.Choice(["services", "log", "triggers"]),
)
@cli.flag("--force", "Also if this mapping changes the answer of a pattern that DynamoDB answers.")
@cli.json_option
def install() -> cli.Work:
    """Create our two tables and the triggers, one table per transaction; existing ones stay.

    With --by services only the tables are created. A later install without it creates triggers, which capture the
    changes from then on.

    With --by log our tables are created, and on PostgreSQL a publication and a replication slot. A later install without it
    updates them; --by triggers replaces them.

    For old tables of DynamoDB it turns their streams on, and --dry-run prints calls of aws.
    """
    from migrator.commands.capture_work import install

    return install


@capture.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.json_option
def status() -> cli.Work:
    """Compare triggers, or the columns read from the log, with mapping and schema; check streams of old tables; or
    count the services that capture changes. For a log, show how far its slot is behind.

    Exit code 1: a change could be missed.
    """
    from migrator.commands.capture_work import status

    return status


@capture.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--dry-run", "Print the SQL that would run, change nothing.")
@cli.flag("--discard-marks", "Also if changes are pending; they are lost to the table.")
@cli.flag("--force", "Also while services run that capture changes; their writes fail then.")
@cli.json_option
def uninstall() -> cli.Work:
    """Remove the triggers, or the slot and the publication, and our tables from the source.

    Streams of old tables of DynamoDB stay on: others may read them.
    """
    from migrator.commands.capture_work import uninstall

    return uninstall


@click.command(cls=cli.Leaf, example="jobs/shop.yaml --once")
@cli.job_argument
@cli.flag("--once", "Stop when no change is left, including the changes of other relays.")
@cli.option(
    "--workers", "Changes processed in parallel.", type=click.IntRange(1, 64), default=2, show_default=True
)
@cli.part_option
@cli.flag("--dry-run", "Count the pending changes, write nothing.")
@cli.flag("--discard-marks", "Delete the changes that cannot be applied; verify --repair finds their rows.")
@cli.force_option
@cli.metrics_option
@cli.json_option
def relay() -> cli.Work:
    """Keep items up to date: take changes, read their rows, write the items, delete the changes from the queue.

    Runs until it is stopped (Ctrl-C, SIGTERM) or every access pattern is complete; several may run at once, on several
    hosts with one journal. It starts and ends the others of tuning.relay_processes.

    Exit code 0: with --once, no change is left that is ready; 1: some cannot be processed, or rows were refused or met a
    collision (see `migrator status --findings`), or another relay still has changes after a lease (tuning.lease_s);
    3: a store is unavailable, and the changes stay pending.
    """
    from migrator.commands.capture_work import relay

    return relay
