"""The group `migrator export`: each feature adds what it writes."""

from __future__ import annotations

import click

from migrator.cli.command_line import Branch


@click.group(cls=Branch)
def export() -> None:
    """Write a job's table, rights, items and access patterns for other tools, and as code: Python, TypeScript."""
