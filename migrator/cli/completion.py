"""`migrator completion`: the script that makes a shell complete our commands and options."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from migrator.cli.command_line import Leaf

PROGRAM = "migrator"
SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Leaf)
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> int:
    """Print the completion script of SHELL; add it to the shell's start-up file."""
    found = get_completion_class(shell)
    assert found is not None
    root = context.find_root().command
    script = found(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
    return 0
