"""`migrator local` and `migrator completion`: the embedded DynamoDB, and shell completion, as click commands."""

from __future__ import annotations

import click

from migrator.cli.command_line import Leaf, Work, json_option

SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Leaf, example="--stop")
@click.option("--stop", is_flag=True, help="Stop it; its tables are kept for the next start.")
@json_option
def local() -> Work:
    """Show whether the embedded DynamoDB runs on this machine, and where.

    A job with `target: embedded` (MiniStack) or `target: dynoxide` starts it.
    """
    from migrator.commands.local_work import local

    return local


@click.command(cls=Leaf, example="bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion() -> Work:
    """Print the completion script of SHELL; add it to the shell's start-up file."""
    from migrator.commands.local_work import completion

    return completion
