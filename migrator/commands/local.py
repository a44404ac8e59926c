"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator.cli.command_line import Leaf, Work, json_option


@click.command(cls=Leaf, example="--stop")
@click.option("--stop", is_flag=True, help="Stop it; its tables are kept for the next start.")
@json_option
def local() -> Work:
    """Show whether the embedded DynamoDB runs on this machine, and where.

    A job with `target: embedded` (MiniStack) or `target: dynoxide` starts it.
    """
    from migrator.commands.local_work import local

    return local
