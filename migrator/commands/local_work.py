"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.command_line import print_json
from migrator.dynamodb import embedded


def _folders() -> list[Path]:
    return [embedded.folder(name) for name in embedded.NAMES]


def local(stop: bool, as_json: bool) -> int:
    """The exit code of `migrator local`."""
    return _stop(as_json) if stop else _status(as_json)


def _status(as_json: bool) -> int:
    server = next(filter(None, map(embedded.running, _folders())), None)
    if as_json:
        fields = {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
        print_json({"running": server is not None, **fields})
    else:
        click.echo(embedded.status(server))
    return 0


def _stop(as_json: bool) -> int:
    stopped = True in [embedded.stop(home) for home in _folders()]
    if as_json:
        print_json({"stopped": stopped})
    else:
        click.echo("stopped; its tables are kept" if stopped else "it was not running")
    return 0
