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
from migrator.cli.options import read_job, refuse_strange, shown_path, stdout
from migrator.journal.runs import SqlJournal
from migrator.model.errors import CLEAN, DIFFERENT, MappingError, TargetError
from migrator.model.results import Check, CheckState
from migrator.model.table import TableDesign
from migrator.output.definitions import cloudformation, terraform
from migrator.runtime.retry import Backoff
from migrator.settings.job import Job
from migrator.settings.source import TableOptions
from migrator.settings.transforms import read_mapping, sound_mapping
from migrator.source.connect import extra_for
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
from migrator.wiring import adoption as adoption_wiring
from migrator.wiring import job as job_wiring
from migrator.wiring import live
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
        requests = [
            {"operation": name, "request": request_body}
            for name, request_body in [("CreateTable", first), *later]
        ]
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
    designed = definition(target.design, read.target.options)
    edits = [] if form is None else list(_edits(form, [*state.parts, *unlike], designed))
    if as_json:
        print_json({"table": target.design.name, "differences": differences, "edits": edits})
        return DIFFERENT if differences else 0
    for line in [*differences, *edits]:
        click.echo(line)
    verdict = f"{len(differences)} difference(s)" if differences else "as the mapping says"
    click.echo(f"table {target.design.name}: {verdict}")
    return DIFFERENT if differences else 0


def _edits(form: str, parts: list[str], designed: dict[str, Any]) -> Iterator[str]:
    """The definition's lines of each part that differs, once."""
    for part in dict.fromkeys(parts):
        lines = _FORMS[form](part, designed)
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
    versions: dict[str, str | None] = {"Python": platform.python_version()}
    versions |= {"migrator": version("single-table-migrator")}
    versions |= {name: version(name) for name in ("boto3", "sqlalchemy")}
    return versions | dict.fromkeys(extra for extra, module in _extras(job) if find_spec(module) is None)


def _extras(job: Job | None) -> list[tuple[str, str]]:
    if job is None:
        return []
    extras = {extra_for(job.source.url)}
    if (job.target.endpoint or "").startswith(_EMBEDDED):
        extras.add(_EXTRA_OF_EMBEDDED)
    return sorted(extra for extra in extras if extra is not None)


# ── `migrator doctor`: everything that a run needs, checked one by one before it starts ──

_COLOURS: dict[CheckState, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(job: Path, write: bool, as_json: bool) -> int:
    """The exit code of `migrator doctor`."""
    checkup, journal = Checkup(), None
    with ExitStack() as stack:
        command_job = stack.enter_context(CommandJob(job, Backoff(attempts=1)))
        read = checkup.ask("job", lambda: command_job.job, "the job file is right")
        check_packages(checkup, packages_for(read))
        if read is not None:
            parsed = checkup.ask("mapping file", lambda: sound_mapping(read.mapping), "its form is right")
            _source(checkup, stack, command_job)
            if parsed is not None:
                _target(checkup, read, parsed.mapping.table, write=write)
            journal = check_journal(checkup, lambda: job_wiring.try_journal(command_job))
            if journal is not None:
                checkup.ask(
                    "journal's job",
                    lambda: refuse_strange(command_job, older=True, warns=False, begins=True),
                )
    if as_json:
        checks = [asdict(check) for check in checkup.checks]
        click.echo(json.dumps({"job": str(job), "journal": journal, "checks": checks}))
    else:
        if journal is not None:
            click.echo(f"journal: {shown_path(journal)}")
        _print(checkup.checks)
    return DIFFERENT if any(check.state == "failed" for check in checkup.checks) else CLEAN


def _source(checkup: Checkup, stack: ExitStack, command_job: CommandJob) -> None:
    job = command_job.job
    context = checkup.ask(
        "source and mapping",
        lambda: stack.enter_context(job_wiring.open_job(job, "doctor")),
        "they fit each other",
    )
    if context is None:
        return
    check_server(checkup, lambda: job_wiring.health_of(context))
    check_entities(checkup, context.source, context.checked.entities)
    if context.source.hides_rows:
        check_hidden_rows(checkup, context.checked.entities, context.source.hidden_fault)
    check_statements(checkup, context.source, context.checked.mapping)
    captured = check_capture(
        checkup,
        lambda: live.capture_status(context),
        lambda: live.capture_refusals(context),
        lambda: len(live.registry_of(job, command_job.journal()).marking),
        str(job.path),
    )
    check_revision(
        checkup, lambda: live.revisions_of(context, command_job.journal()).standing(), str(job.path)
    )
    check_verified(checkup, lambda: _unverified(context, command_job.journal()))
    if captured:
        checkup.ask("marks", lambda: live.try_marks(context), "they can be taken and finished")
        fine = "they can be drawn, and are not behind those that the journal and the table know"
        checkup.ask("tickets", lambda: adoption_wiring.try_tickets(context, command_job.journal), fine)


def _unverified(context: JobContext, journal: SqlJournal) -> str:
    return live.unverified(journal, context.job, live.capture_status(context).installation)


def _target(checkup: Checkup, job: Job, design: TableDesign, *, write: bool) -> None:
    target = checkup.ask(
        "target",
        lambda: job_wiring.open_target(job, design, lambda: False),
        "region and credentials are there",
    )
    if target is None or not check_table(checkup, target.admin, target.design, str(job.path)):
        return
    check_jobs(checkup, lambda: job_wiring.jobs_of(target), job.name)
    check_clock(checkup, "clock of DynamoDB", lambda: target.admin.clock(target.design))
    check_permissions(checkup, target.admin.probe(target.design, write=write), str(job.path), written=write)
    if target.objects is not None:
        objects = target.objects
        probes = checkup.ask("bucket", lambda: objects.probe(write=write))
        check_bucket(checkup, probes or [])


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
