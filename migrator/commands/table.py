"""`migrator table`, `doctor` and `local`: the table of a job, all that a run needs, and the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator.cli import command_line as cli
from migrator.settings.roles import ROLES, SQL_ROLES


@click.group(cls=cli.Branch)
def table() -> None:
    """Create the table of a job, compare it with the mapping, and change its indexes."""


@table.command(example="jobs/shop.yaml")
@cli.job_argument
@cli.flag("--dry-run", "Print the CreateTable request as JSON, create nothing.")
@cli.json_option
def create() -> cli.Work:
    """Create the table with its keys, indexes, TTL and options, and wait until it is ready.

    A table that is there and fits is left as it is.
    """
    from migrator.commands.table_work import create

    return create


@table.command(name="check", example="jobs/shop.yaml")
@cli.job_argument
@click.option(
    "--as", "form", type=click.Choice(["cloudformation", "terraform"]), help="Print the lines to edit, too."
)
@cli.json_option
def check_table() -> cli.Work:
    """Say how the table differs from the mapping and from the job's options. Exit code 1 when it does."""
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

    It waits until DynamoDB has filled each of them. Stopped, it goes on where it is given again. An index that a pattern
    or a service may still ask is not removed, and none is without a question or --yes. Key and projection of an index
    cannot be altered: write the new one under another name.

    Exit code 0: the indexes are the mapping's; 1: some are not, or would be changed; 130: stopped.
    """
    from migrator.commands.table_work import change

    return change


@click.command(cls=cli.Leaf, example="jobs/shop.yaml")
@cli.job_argument
@cli.flag(
    "--write",
    "Try the permissions to write, too, on an item and an object of nobody's, which are taken away again.",
)
@cli.option(
    "--role ROLE",
    "Only what this role needs, each right of which must be there (migrator export --as iam, grants): "
    + f"{', '.join(sorted({*ROLES, *SQL_ROLES}))}.",
    type=click.Choice(sorted({*ROLES, *SQL_ROLES})),
)
@cli.flag(
    "--probe",
    "Try what migrator relies on of DynamoDB on a table of its own, which is deleted again (under 1 USD on AWS).",
)
@cli.option(
    "--to s3://BUCKET/PREFIX",
    "With --probe: also import a file, which is put there and deleted again.",
    "bucket",
)
@cli.flag("--yes", "With --probe: do not ask before the table is made.")
@cli.json_option
def doctor() -> cli.Work:
    """Check everything that a run of JOB needs: settings, packages, source, table, permissions, clocks, journal.

    With --role a right that cannot be tried without leaving something behind is a warning. Nothing is written but the
    journal's own file. Exit code 0: nothing failed; 1: something did.
    """
    from migrator.commands.table_work import doctor

    return doctor


@click.command(cls=cli.Leaf, example="stop")
@click.argument("stop", type=click.Choice(["stop"]), required=False, metavar="[stop]")
@cli.json_option
def local() -> cli.Work:
    """Show whether the embedded DynamoDB runs on this machine, and where; with the word stop, stop it.

    A job with `target: embedded` (MiniStack) or `target: dynoxide` starts it. Its tables are kept for the next start.
    """
    return _stopped_or_shown


def _stopped_or_shown(stop: str | None, as_json: bool) -> int:
    from migrator.stages.session.job import (  # here, so that helps wait for none of it
        running_servers,
        stop_servers,
    )

    if stop:
        stopped = stop_servers()
        data: dict[str, object] = {"stopped": stopped}
        line = "stopped; its tables are kept" if stopped else "it was not running"
    else:
        server, line = running_servers()
        data = {"running": server is not None}
        data |= {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
    if as_json:
        cli.print_json(data)
    else:
        click.echo(line)
    return 0
