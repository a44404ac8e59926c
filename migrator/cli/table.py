"""`migrator table`: the DynamoDB table that a mapping describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from migrator import wiring
from migrator.cli.command_line import print_json
from migrator.cli.options import read_job
from migrator.errors import DIFFERENT, MappingError, TargetError
from migrator.export.definitions import cloudformation, terraform
from migrator.model import TableDesign
from migrator.settings import Job
from migrator.table_options import TableOptions
from migrator.target.creation import creation_request, definition, later_requests
from migrator.transforms import read_mapping

_FORMS = {"terraform": terraform, "cloudformation": cloudformation}


def create(job: Path, dry_run: bool, as_json: bool) -> int:
    """The exit code of `migrator table create`."""
    read = read_job(job)
    if dry_run:
        _print_requests(wiring.design_for(read, _design(read)), read.target.options, as_json=as_json)
        return 0
    target = wiring.open_target(read, _design(read), _never)
    name, state = target.design.name, target.admin.state(target.design)
    is_there = state is not None and not state.differences
    if not is_there:
        state = target.admin.create(target.design, read.target.options)
        for sentence in state.unlike:
            click.echo(f"warning: this endpoint is no AWS: {sentence}", err=True)
    if as_json:
        print_json({"table": name, "created": not is_there, "indexes": len(target.design.indexes)})
    elif is_there or state is None:
        click.echo(f"table {name} is there already, as the mapping says")
    else:
        click.echo(f"table {name} is {state.status} ({len(target.design.indexes)} indexes)")
    return 0


def _print_requests(design: TableDesign, options: TableOptions, *, as_json: bool) -> None:
    first, later = creation_request(design, options), later_requests(design, options)
    if as_json:
        requests = [{"operation": name, "request": one} for name, one in [("CreateTable", first), *later]]
        print_json({"requests": requests})
        return
    click.echo(json.dumps(first, indent=2))
    for operation, request in later:
        click.echo(f"then {operation}: {json.dumps(request)}", err=True)


def check(job: Path, form: str | None, as_json: bool) -> int:
    """The exit code of `migrator table check`."""
    read = read_job(job)
    target = wiring.open_target(read, _design(read), _never)
    state = target.admin.state(target.design)
    if state is None:
        raise TargetError(f"there is no table {target.design.name}; run `migrator table create`")
    unlike = target.admin.unlike(target.design, read.target.options)
    differences = [*state.differences, *unlike.values()]
    wanted = definition(target.design, read.target.options)
    edits = [] if form is None else list(_edits(form, [*state.parts, *unlike], wanted))
    if as_json:
        print_json({"table": target.design.name, "differences": differences, "edits": edits})
        return DIFFERENT if differences else 0
    for line in [*differences, *edits]:
        click.echo(line)
    verdict = f"{len(differences)} difference(s)" if differences else "as the mapping says"
    click.echo(f"table {target.design.name}: {verdict}")
    return DIFFERENT if differences else 0


def _edits(form: str, parts: list[str], wanted: dict[str, Any]) -> Iterator[str]:
    """The definition's lines of each part that differs, once."""
    for part in dict.fromkeys(parts):
        lines = _FORMS[form](part, wanted)
        yield f"# {part}" if lines else f"# {part}: take it out"
        yield from lines


def _design(job: Job) -> TableDesign:
    parsed = read_mapping(job.mapping)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed.mapping.table


def _never() -> bool:
    return False
