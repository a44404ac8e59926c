"""`migrator local`: the embedded DynamoDB."""

from __future__ import annotations

import click

from migrator import wiring
from migrator.target import embedded


@click.group()
def local() -> None:
    """Look after the embedded DynamoDB (MiniStack) that `target: embedded` starts."""


@local.command()
def status() -> int:
    """Say whether it runs, and where."""
    click.echo(embedded.status(wiring.embedded_home()))
    return 0


@local.command()
def stop() -> int:
    """Stop it; its tables are kept for the next start."""
    stopped = embedded.stop(wiring.embedded_home())
    click.echo("stopped; its tables are kept" if stopped else "it was not running")
    return 0
