"""`migrator table`: the DynamoDB table that a mapping describes."""

from __future__ import annotations

from pathlib import Path

import click

from migrator import wiring
from migrator.cli.options import job_argument, read_job
from migrator.errors import DIFFERENT, MappingError, TargetError
from migrator.model import TableDesign
from migrator.settings import Job


@click.group()
def table() -> None:
    """Create the table of a job, and compare it with the mapping."""


@table.command()
@job_argument
def create(job: Path) -> int:
    """Create the table with its keys, indexes and TTL, and wait until it is ready."""
    read = read_job(job)
    target = wiring.open_target(read, _design(read), _never)
    state = target.admin.create(target.design)
    indexes = len(target.design.indexes)
    click.echo(f"table {target.design.name} is {state.status} ({indexes} indexes)")
    return 0


@table.command()
@job_argument
def check(job: Path) -> int:
    """Say how the table differs from the mapping. Exit code 1 when it does."""
    read = read_job(job)
    target = wiring.open_target(read, _design(read), _never)
    state = target.admin.state(target.design)
    if state is None:
        raise TargetError(f"there is no table {target.design.name}; run `migrator table create {job}`")
    for difference in state.differences:
        click.echo(difference)
    verdict = f"{len(state.differences)} difference(s)" if state.differences else "as the mapping says"
    click.echo(f"table {target.design.name}: {verdict}")
    return DIFFERENT if state.differences else 0


def _design(job: Job) -> TableDesign:
    parsed = wiring.read_mapping(job.mapping)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed.mapping.table


def _never() -> bool:
    return False
