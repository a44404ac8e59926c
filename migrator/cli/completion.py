"""`migrator completion`: the script that makes a shell complete our commands and options."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

PROGRAM = "migrator"


def completion(shell: str, as_json: bool) -> int:
    """The exit code of `migrator completion`."""
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    script = found(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
    return 0
