"""`migrator completion`: the script that makes a shell complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

PROGRAM = "migrator"
SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the completion script of SHELL; add it to the shell's start-up file."""
    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root().command
    click.echo(found(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
    return 0
