"""`migrator doctor`: everything that a run needs, looked at one by one before it starts."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from migrator import keeping_wiring, live_wiring, wiring
from migrator.cli.belonging import refuse_strange
from migrator.cli.command_line import whole
from migrator.cli.instances import read_roster
from migrator.cli.options import read_job, shown_path, stdout
from migrator.cli.packages import packages_for
from migrator.errors import CLEAN, DIFFERENT
from migrator.model import TableDesign
from migrator.ports.revisions import Standing
from migrator.results import Check, CheckState
from migrator.settings import Job
from migrator.stages.checkup import (
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
from migrator.wiring import Laid

_COLOURS: dict[CheckState, str] = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(job: Path, write: bool, as_json: bool) -> int:
    """The exit code of `migrator doctor`."""
    found, journal = Checkup(), None
    with ExitStack() as stack:
        read = found.ask("job", lambda: read_job(job), "the job file is right")
        check_packages(found, packages_for(read))
        if read is not None:
            parsed = found.ask(
                "mapping file", lambda: wiring.sound_mapping(read.mapping), "its form is right"
            )
            _source(found, stack, read)
            if parsed is not None:
                _target(found, read, parsed.mapping.table, write=write)
            journal = check_journal(found, lambda: wiring.try_journal(read))
            if journal is not None:
                found.ask(
                    "journal's job", lambda: refuse_strange(read, older=True, is_told=False, begins=True)
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
    laid = found.ask(
        "source and mapping", lambda: stack.enter_context(wiring.lay(job, "doctor")), "they fit each other"
    )
    if laid is None:
        return
    check_server(found, lambda: wiring.health_of(laid))
    check_entities(found, laid.source, laid.checked.entities)
    if laid.source.hides_rows:
        check_hidden_rows(found, laid.checked.entities, laid.source.hidden_fault)
    check_statements(found, laid.source, laid.checked.mapping)
    captured = check_capture(
        found,
        lambda: live_wiring.capture_status(laid),
        lambda: live_wiring.capture_refusals(laid),
        lambda: len(read_roster(job).marking),
        str(job.path),
    )
    check_revision(found, lambda: _standing(laid), str(job.path))
    check_verified(found, lambda: _unverified(laid))
    if captured:
        found.ask("marks", lambda: live_wiring.try_marks(laid), "they can be taken and finished")
        fine = "they can be drawn, and are not behind those that the journal and the table know"
        found.ask("tickets", lambda: live_wiring.try_tickets(laid), fine)


def _unverified(laid: Laid) -> str:
    with wiring.open_journal(laid.job) as journal:
        return live_wiring.unverified(journal, laid.job, live_wiring.capture_status(laid).installation)


def _standing(laid: Laid) -> Standing:
    with wiring.open_journal(laid.job) as journal:
        return live_wiring.revisions_of(laid, journal).standing()


def _target(found: Checkup, job: Job, design: TableDesign, *, write: bool) -> None:
    target = found.ask(
        "target",
        lambda: wiring.open_target(job, design, lambda: False),
        "region and credentials are there",
    )
    if target is None or not check_table(found, target.admin, target.design, str(job.path)):
        return
    check_jobs(found, lambda: keeping_wiring.jobs_of(target), job.name)
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
