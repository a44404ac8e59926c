"""`migrator local` and `migrator completion`: the embedded DynamoDB, and shell completion, as click commands."""

from __future__ import annotations

import click

from migrator.cli.command_line import Branch, Leaf, Work, json_option

SHELLS = ("bash", "zsh", "fish")


@click.group(cls=Branch)
def local() -> None:
    """Look after the embedded DynamoDB on this machine; `target: embedded` (MiniStack) or `target: dynoxide` starts it."""


@local.command(example="")
@json_option
def status() -> Work:
    """Say whether it runs, and where."""
    from migrator.commands.local_work import status

    return status


@local.command(example="")
@json_option
def stop() -> Work:
    """Stop it; its tables are kept for the next start."""
    from migrator.commands.local_work import stop

    return stop


@click.command(cls=Leaf, example="bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(SHELLS))
@json_option
def completion() -> Work:
    """Print the completion script of SHELL; add it to the shell's start-up file."""
    from migrator.commands.local_work import completion

    return completion
