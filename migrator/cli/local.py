"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator.cli.command_line import print_json
from migrator.target import embedded


def status(as_json: bool) -> int:
    """The exit code of `migrator local status`."""
    server = embedded.running(embedded.folder())
    if as_json:
        known = {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
        print_json({"running": server is not None, **known})
    else:
        click.echo(embedded.status(server))
    return 0


def stop(as_json: bool) -> int:
    """The exit code of `migrator local stop`."""
    stopped = embedded.stop(embedded.folder())
    if as_json:
        print_json({"stopped": stopped})
    else:
        click.echo("stopped; its tables are kept" if stopped else "it was not running")
    return 0
