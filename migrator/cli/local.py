"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator import wiring
from migrator.cli.command_line import Branch
from migrator.cli.options import json_option, print_json
from migrator.target import embedded


@click.group(cls=Branch)
def local() -> None:
    """Look after the embedded DynamoDB (MiniStack) that `target: embedded` starts."""


@local.command()
@json_option
def status(as_json: bool) -> int:
    """Say whether it runs, and where."""
    server = embedded.running(wiring.embedded_home())
    if as_json:
        known = {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
        print_json({"running": server is not None, **known})
    else:
        click.echo(embedded.status(server))
    return 0


@local.command()
@json_option
def stop(as_json: bool) -> int:
    """Stop it; its tables are kept for the next start."""
    stopped = embedded.stop(wiring.embedded_home())
    if as_json:
        print_json({"stopped": stopped})
    else:
        click.echo("stopped; its tables are kept" if stopped else "it was not running")
    return 0
