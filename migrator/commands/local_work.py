"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator.cli.command_line import print_json
from migrator.stages.session import local as servers


def local(stop: bool, as_json: bool) -> int:
    """The exit code of `migrator local`."""
    return _stop(as_json) if stop else _status(as_json)


def _status(as_json: bool) -> int:
    server, line = servers.running()
    if as_json:
        fields = {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
        print_json({"running": server is not None, **fields})
    else:
        click.echo(line)
    return 0


def _stop(as_json: bool) -> int:
    stopped = servers.stop()
    if as_json:
        print_json({"stopped": stopped})
    else:
        click.echo("stopped; its tables are kept" if stopped else "it was not running")
    return 0
