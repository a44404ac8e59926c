"""`migrator table`: the DynamoDB table that a mapping describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from migrator import wiring
from migrator.cli.options import job_argument, read_job
from migrator.errors import DIFFERENT, MappingError, TargetError
from migrator.export.definitions import cloudformation, terraform
from migrator.model import TableDesign
from migrator.settings import Job
from migrator.target.creation import creation_request, definition, later_requests

_FORMS = {"terraform": terraform, "cloudformation": cloudformation}


@click.group()
def table() -> None:
    """Create the table of a job, and compare it with the mapping."""


@table.command()
@job_argument
@click.option("--dry-run", is_flag=True, help="Print the CreateTable request as JSON, create nothing.")
def create(job: Path, dry_run: bool) -> int:
    """Create the table with its keys, indexes, TTL and options, and wait until it is ready.

    A table that is there and fits is left as it is.
    """
    read = read_job(job)
    if dry_run:
        design = wiring.design_for(read, _design(read))
        click.echo(json.dumps(creation_request(design, read.target.options), indent=2))
        for operation, request in later_requests(design, read.target.options):
            click.echo(f"then {operation}: {json.dumps(request)}", err=True)
        return 0
    target = wiring.open_target(read, _design(read), _never)
    name, state = target.design.name, target.admin.state(target.design)
    if state is not None and not state.differences:
        click.echo(f"table {name} is there already, as the mapping says")
        return 0
    state = target.admin.create(target.design, read.target.options)
    for sentence in state.unlike:
        click.echo(f"warning: this endpoint is no AWS: {sentence}", err=True)
    click.echo(f"table {name} is {state.status} ({len(target.design.indexes)} indexes)")
    return 0


@table.command()
@job_argument
@click.option("--as", "form", type=click.Choice(sorted(_FORMS)), help="Print the lines to edit, too.")
def check(job: Path, form: str | None) -> int:
    """Say how the table differs from the mapping and from the job's options. Exit code 1 when it does."""
    read = read_job(job)
    target = wiring.open_target(read, _design(read), _never)
    state = target.admin.state(target.design)
    if state is None:
        raise TargetError(f"there is no table {target.design.name}; run `migrator table create {job}`")
    unlike = target.admin.unlike(target.design, read.target.options)
    differences = [*state.differences, *unlike.values()]
    for difference in differences:
        click.echo(difference)
    if form is not None:
        _print_lines(form, [*state.parts, *unlike], definition(target.design, read.target.options))
    verdict = f"{len(differences)} difference(s)" if differences else "as the mapping says"
    click.echo(f"table {target.design.name}: {verdict}")
    return DIFFERENT if differences else 0


def _print_lines(form: str, parts: list[str], wanted: dict[str, Any]) -> None:
    """The definition's lines of each part that differs, once."""
    for part in dict.fromkeys(parts):
        lines = _FORMS[form](part, wanted)
        click.echo(f"# {part}" if lines else f"# {part}: take it out")
        for line in lines:
            click.echo(line)


def _design(job: Job) -> TableDesign:
    parsed = wiring.read_mapping(job.mapping)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed.mapping.table


def _never() -> bool:
    return False
