"""`migrator mapping`: a mapping checked and tried before a row moves."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli import command_line as cli
from migrator.cli import names

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
    "Say of each table whether its rows can be made of their items again, and what would be lost (with --source).",
)
@cli.json_option
def check() -> cli.Work:
    """Report every fault of mapping or job FILEs at once, against the real schema when a source is given.

    Of a job the file itself is checked, and then the mapping that it names. With --source tables that have no entity are
    named, too, but for those that the job leaves on purpose (cutover: {leave: […]}).

    It reads no journal and no DynamoDB table: `migrator doctor JOB` checks both.

    With --invertible it says instead, table by table, which columns items do not give back, why, and the line of the mapping
    that would keep them.

    Exit code 0: no faults (warnings are printed), or every table comes back; 1: some do not (--invertible); 2: faults.
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
