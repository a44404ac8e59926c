"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator.cli.command_line import Leaf, Work, json_option, print_json


@click.command(cls=Leaf, example="--stop")
@click.option("--stop", is_flag=True, help="Stop it; its tables are kept for the next start.")
@json_option
def local() -> Work:
    """Show whether the embedded DynamoDB runs on this machine, and where.

    A job with `target: embedded` (MiniStack) or `target: dynoxide` starts it.
    """
    return _stopped_or_shown


def _stopped_or_shown(stop: bool, as_json: bool) -> int:
    from migrator.stages.session import local as servers  # here, so that helps wait for none of it

    if stop:
        stopped = servers.stop()
        data: dict[str, object] = {"stopped": stopped}
        line = "stopped; its tables are kept" if stopped else "it was not running"
    else:
        server, line = servers.running()
        data = {"running": server is not None}
        data |= {} if server is None else {"endpoint": server.endpoint, "pid": server.pid}
    if as_json:
        print_json(data)
    else:
        click.echo(line)
    return 0
