"""`migrator table` and `migrator doctor`: the DynamoDB table of a mapping, and whether a job could run."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from migrator.cli.command_line import print_json, whole
from migrator.cli.options import read_job, shown_path, stdout
from migrator.cli.ownership import refuse_strange
from migrator.cli.runs import read_roster
from migrator.model.errors import CLEAN, DIFFERENT, MappingError, TargetError
from migrator.model.instances import Standing
from migrator.model.results import Check, CheckState
from migrator.model.table import TableDesign
from migrator.output.definitions import cloudformation, terraform
from migrator.settings.job import Job
from migrator.settings.source import TableOptions
from migrator.settings.transforms import read_mapping
from migrator.stages.doctor import (
    Checkup,
    check_bucket,
    check_capture,
    check_clock,
    check_entities,
    check_hidden_rows,
    check_jobs,
    check_journal,
    check_packages,
    check_permissions,
    check_revision,
    check_server,
    check_statements,
    check_table,
    check_verified,
)
from migrator.target.create import creation_request, definition, later_requests
from migrator.wiring import job as job_wiring
from migrator.wiring import live, ownership
from migrator.wiring.job import CommandJob, JobContext

# ── `migrator table`: the DynamoDB table that a mapping describes ──

_FORMS = {"terraform": terraform, "cloudformation": cloudformation}


def create(job: Path, dry_run: bool, as_json: bool) -> int:
    """The exit code of `migrator table create`."""
    read = read_job(job)
    if dry_run:
        _print_requests(job_wiring.design_for(read, _design(read)), read.target.options, as_json=as_json)
        return 0
    target = job_wiring.open_target(read, _design(read), _never)
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
    target = job_wiring.open_target(read, _design(read), _never)
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


# ── The packages that a job needs, with their versions ──

_EMBEDDED, _EXTRA_OF_EMBEDDED = "embedded", ("local", "ministack")
"""How an endpoint begins that needs an extra; the extra, and the module that it brings."""


def packages_for(job: Job | None) -> dict[str, str | None]:
    """Versions of Python and of the packages that matter; None under the name of an extra that the job lacks."""
    found: dict[str, str | None] = {"Python": platform.python_version()}
    found |= {"migrator": version("single-table-migrator")}
    found |= {name: version(name) for name in ("boto3", "sqlalchemy")}
    return found | dict.fromkeys(extra for extra, module in _extras(job) if find_spec(module) is None)


def _extras(job: Job | None) -> list[tuple[str, str]]:
    if job is None:
        return []
    found = {job_wiring.extra_for(job.source.url)}
    if (job.target.endpoint or "").startswith(_EMBEDDED):
        found.add(_EXTRA_OF_EMBEDDED)
    return sorted(extra for extra in found if extra is not None)


# ── `migrator doctor`: everything that a run needs, checked one by one before it starts ──

_COLOURS: dict[CheckState, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(job: Path, write: bool, as_json: bool) -> int:
    """The exit code of `migrator doctor`."""
    found, journal = Checkup(), None
    with ExitStack() as stack:
        read = found.ask("job", lambda: read_job(job), "the job file is right")
        check_packages(found, packages_for(read))
        if read is not None:
            parsed = found.ask(
                "mapping file", lambda: job_wiring.sound_mapping(read.mapping), "its form is right"
            )
            _source(found, stack, read)
            if parsed is not None:
                _target(found, read, parsed.mapping.table, write=write)
            journal = check_journal(found, lambda: job_wiring.try_journal(read))
            if journal is not None:
                command_job = stack.enter_context(CommandJob(job))
                found.ask(
                    "journal's job",
                    lambda: refuse_strange(command_job, older=True, is_told=False, begins=True),
                )
    if as_json:
        checks = [asdict(check) for check in found.checks]
        click.echo(json.dumps({"job": str(job), "journal": journal, "checks": checks}))
    else:
        if journal is not None:
            click.echo(f"journal: {shown_path(journal)}")
        _print(found.checks)
    return DIFFERENT if any(check.state == "failed" for check in found.checks) else CLEAN


def _source(found: Checkup, stack: ExitStack, job: Job) -> None:
    context = found.ask(
        "source and mapping",
        lambda: stack.enter_context(job_wiring.open_job(job, "doctor")),
        "they fit each other",
    )
    if context is None:
        return
    check_server(found, lambda: job_wiring.health_of(context))
    check_entities(found, context.source, context.checked.entities)
    if context.source.hides_rows:
        check_hidden_rows(found, context.checked.entities, context.source.hidden_fault)
    check_statements(found, context.source, context.checked.mapping)
    captured = check_capture(
        found,
        lambda: live.capture_status(context),
        lambda: live.capture_refusals(context),
        lambda: len(read_roster(job).marking),
        str(job.path),
    )
    check_revision(found, lambda: _standing(context), str(job.path))
    check_verified(found, lambda: _unverified(context))
    if captured:
        found.ask("marks", lambda: live.try_marks(context), "they can be taken and finished")
        fine = "they can be drawn, and are not behind those that the journal and the table know"
        found.ask("tickets", lambda: live.try_tickets(context), fine)


def _unverified(context: JobContext) -> str:
    with job_wiring.open_journal(context.job) as journal:
        return live.unverified(journal, context.job, live.capture_status(context).installation)


def _standing(context: JobContext) -> Standing:
    with job_wiring.open_journal(context.job) as journal:
        return live.revisions_of(context, journal).standing()


def _target(found: Checkup, job: Job, design: TableDesign, *, write: bool) -> None:
    target = found.ask(
        "target",
        lambda: job_wiring.open_target(job, design, lambda: False),
        "region and credentials are there",
    )
    if target is None or not check_table(found, target.admin, target.design, str(job.path)):
        return
    check_jobs(found, lambda: ownership.jobs_of(target), job.name)
    check_clock(found, "clock of DynamoDB", lambda: target.admin.clock(target.design))
    check_permissions(found, target.admin.probe(target.design, write=write), str(job.path), written=write)
    if target.objects is not None:
        objects = target.objects
        probes = found.ask("bucket", lambda: objects.probe(write=write))
        check_bucket(found, probes or [])


def _print(checks: list[Check]) -> None:
    table = Table("check", "state", "what", "what mends it", box=None, pad_edge=False)
    for check in checks:
        table.add_row(
            check.name,
            f"[{_COLOURS[check.state]}]{check.state}[/]",
            _plain(whole(check.what)),
            _plain(whole(check.mend)),
        )
    stdout().print(table)
    counts = Counter(check.state for check in checks)
    states = ", ".join(f"{counts[state]} {state}" for state in _COLOURS if counts[state])
    click.echo(f"{len(checks)} checks: {states}")


def _plain(text: str) -> str:
    """The text with nothing in it that the table would take for a style."""
    return text.replace("[", "\\[")
