"""`migrator status`: how a job gets on, who is at work, what failed last, its runs; once, or again and again."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import instances_data
from migrator.cli.inert import plain
from migrator.cli.lag import Lag, lag_of
from migrator.cli.options import belonging, console_on, print_folded, shown_path, stdout, stop_on_signals
from migrator.cli.relay_text import lag_line
from migrator.cli.runs import known_revision, print_findings, print_instances
from migrator.cli.tables import FittedTable
from migrator.commands.status_text import (
    ProcessStanding,
    operations_data,
    pace_line,
    process_line,
    standings,
    status_lines,
)
from migrator.mapping.model.durations import moment
from migrator.mapping.model.instances import Operations, ProcessState, ServiceRegistry, Throttle
from migrator.mapping.model.journal import SCANS, Run
from migrator.runtime.errors import MigratorError, SettingsError
from migrator.runtime.system import is_alive, visible_processes
from migrator.stages.live.capture import CAPTURED
from migrator.stages.session.live import ONCE
from migrator.stages.session.session import JobSession

# ── `migrator pace`: how fast a job's backfills and relays may go ──


LONGEST = 200
WITHIN_S = 10
"""By when a process that is at work has heard of it: two of its heartbeats."""


@belonging()
def pace(
    session: JobSession,
    pause: bool | None,
    max_write_units: int | None,
    off: bool,
    reason: str,
    who: str,
    as_json: bool,
) -> int:
    """The exit code of `migrator pace`."""
    if off and max_write_units is not None:
        raise click.UsageError("--off goes without --max-write-units")
    asked: dict[str, Any] = {} if pause is None else {"paused": pause}
    if off or max_write_units is not None:
        asked["max_write_units"] = max_write_units
    job, processes = session.job, session.processes
    if not (who + reason).isprintable() or max(len(who), len(reason)) > LONGEST:
        raise SettingsError(f"--who and --reason are one line of {LONGEST} letters at most")
    if asked:
        processes.ask(who, reason, **asked)
    operations = processes.read()
    return _print_pace(operations.throttle, operations, job.name, as_json=as_json)


def _print_pace(throttle: Throttle, operations: Operations, job: str, *, as_json: bool) -> int:
    at_work = sum(one.is_at_work for one in standings(operations, dead_here()))
    if as_json:
        about = {"job": job, "throttle": asdict(throttle), "processes": at_work}
        print_json(about)
        return 0
    print_folded(pace_line(throttle, operations.now_s))
    if at_work:
        hears = f"{at_work} process(es) at work hear of it within {WITHIN_S} s"
    else:
        hears = "no backfill or relay is at work; the next one begins with it"
    print_folded(f"{hears}; `migrator status` says how they get on")
    return 0


# ── One look ──


@dataclass(frozen=True)
class Look:
    """What the stores said at one moment of the work."""

    lag: Lag
    operations: Operations
    standing: list[ProcessStanding]
    ended_at: dict[str, float]
    uncaptured: str
    """Why changes may leave no mark."""
    unwritable: str
    """Why nothing can be kept in the journal: what failed lately may not be in it."""

    def lines(self) -> Iterator[str]:
        return status_lines(self._behind(), self.operations, self.standing, self.ended_at, self.unwritable)

    def _behind(self) -> str:
        if self.lag.reason:
            return f"not known: {re.split('[:,]', self.lag.reason)[0]}"
        if self.lag.marks is None:
            return "capture is not installed"
        if self.uncaptured:
            marks = self.lag.marks
            known = lag_line(marks, self.lag.open_findings) if marks.waiting + marks.unripe else ""
            return f"not known: {'; '.join(filter(None, (self.uncaptured, known)))}"
        if self.lag.marks.waiting and not any(one.is_at_work for one in self.standing):
            advice = "one needs the journal" if self.unwritable else "run `migrator relay`"
            return f"{lag_line(self.lag.marks, self.lag.open_findings)}; no relay is at work: {advice}"
        return lag_line(self.lag.marks, self.lag.open_findings)


def look_at(session: JobSession) -> Look:
    operations, lag, journal = session.processes.read(), lag_of(session), session.journal
    waiting = None if lag.marks is None else lag.marks.waiting
    standing, ended_at = (
        standings(operations, dead_here(), waiting),
        _ended_at(journal.runs(session.job.name)),
    )
    uncaptured, rows = _in_source(session, lag)
    if lag.marks is not None:
        lag = replace(lag, marks=replace(lag.marks, rows=rows))
    return Look(lag, operations, standing, ended_at, uncaptured, journal.unwritable())


def _ended_at(runs: Sequence[Run]) -> dict[str, float]:
    """When a run of each kind last came to its end, in seconds."""
    ended = (run for run in runs if run.state == "done" and run.ended_at)
    return {run.identity.kind: datetime.fromisoformat(str(run.ended_at)).timestamp() for run in ended}


def _in_source(session: JobSession, lag: Lag) -> tuple[str, int | None]:
    """Return why changes may leave no mark ('' if each leaves one), and how many rows the pending marks name."""
    if lag.marks is None:
        return "", None
    try:
        with session.another("status", live_patience=ONCE) as reading:
            tables = reading.capture.status(reading.plans).tables
            rows = reading.waiting_rows() if lag.marks.waiting else 0
    except MigratorError as error:
        return f"mapping and source do not fit each other: {error}", None
    open_ = [table.table for table in tables if table.state not in CAPTURED]
    what = f"changes of {', '.join(open_)} may leave no mark; run `migrator capture status`"
    return what if open_ else "", rows


def dead_here() -> Callable[[ProcessState], bool]:
    """Whether this machine knows that a process has ended."""
    sees = visible_processes()

    def is_dead(process: ProcessState) -> bool:
        is_here = bool(process.born and process.sees) and process.sees == sees
        return is_here and not is_alive(process.pid, process.born)

    return is_dead


@dataclass(frozen=True)
class JobStatus:
    """What is known of a job. `revision`: of its mapping file, where it was asked for and can be read; `table_away`: why
    DynamoDB cannot be asked, '' where it can."""

    job: str
    journal: str
    runs: list[dict[str, Any]]
    look: Look
    instances: ServiceRegistry
    revision: str | None
    table_away: str

    def data(self) -> dict[str, Any]:
        live = self.look.lag.data() | {
            "instances": instances_data(self.instances, self.revision),
            "table_away": self.table_away,
            "uncaptured": self.look.uncaptured,
        }
        operations = operations_data(self.look.operations, self.look.standing)
        return {
            "job": self.job,
            "journal": self.journal,
            "runs": self.runs,
            "live": live,
            "operations": operations,
        }

    def warnings(self) -> Iterator[str]:
        """For people, after the first lines."""
        if self.table_away:
            yield f"table: DynamoDB cannot be asked: {self.table_away}"
        yield from self.look.lag.warnings(self.revision)
        if not self.runs:
            elsewhere = "if something has, MIGRATOR_HOME was another, or the job file stood elsewhere"
            yield f"job {self.job}: nothing has run yet by this journal; {elsewhere}"


def status_of(session: JobSession, table_away: str = "") -> JobStatus:
    look, instances = look_at(session), session.service_registry()
    job, journal = session.job, session.journal
    relays_work = any(one.is_at_work and one.process.kind == "relay" for one in look.standing)
    runs = [_run_data(session, run) for run in session.runs_as_they_stand(relays_work=relays_work)]
    revision = known_revision(job) if instances.known or look.lag.newest is not None else None
    return JobStatus(job.name, journal.name, runs, look, instances, revision, table_away)


# ── The command ──


def status(
    job: Path, findings: bool, number: int | None, everything: bool, whole_keys: bool, **asked: Any
) -> int:
    """The exit code of `migrator status`."""
    if findings:
        if asked["every_s"] or asked["runs"]:
            raise click.UsageError("--findings goes without --watch and --runs")
        return print_findings(job, number, everything, whole_keys, asked["as_json"])
    if number is not None or everything or whole_keys:
        raise click.UsageError("--run, --all and --show-keys go with --findings")
    return _status(job=job, **asked)


@belonging(tells=True)
def _status(
    session: JobSession,
    as_json: bool,
    runs: bool,
    every_s: float | None,
    table_away: str = "",
) -> int:
    if every_s is not None and (as_json or runs):
        raise click.UsageError(
            "--watch goes alone; for programs, give `migrator status --json` again and again"
        )
    if every_s is not None:
        return _watch(session, every_s)
    found = status_of(session, table_away)
    if as_json:
        click.echo(json.dumps(found.data(), sort_keys=True))
    else:
        _print(found, runs=runs)
    return 0


def _print(found: JobStatus, *, runs: bool) -> None:
    for line in (*found.look.lines(), *found.warnings()):
        print_folded(line)
    if not runs:
        return
    print_folded(f"journal: {shown_path(found.journal)}")
    if found.runs:
        stdout().print(_runs_table(found.runs))
    for one in found.look.standing:
        if one.replaced:
            print_folded(process_line(one, found.look.operations.now_s))
    for line in found.look.lag.writer_lines():
        print_folded(line)
    print_instances(found.instances, found.revision)


# ── Again and again ──


def _watch(session: JobSession, every_s: float) -> int:
    """Until Ctrl-C: on a terminal at one place, elsewhere one block after the other."""
    with stop_on_signals() as stop:
        if not sys.stdout.isatty():
            while not stop.is_set():
                print_folded("\n".join([*_watched(session), ""]))
                stop.wait(every_s)
            return 0
        with Live(console=console_on(sys.stdout), auto_refresh=False, vertical_overflow="visible") as live:
            while not stop.is_set():
                live.update(Group(*(Text(plain(line)) for line in _watched(session))), refresh=True)
                stop.wait(every_s)
    return 0


def _watched(session: JobSession) -> list[str]:
    """A journal that is away for a moment ends no watch."""
    head = f"job {session.job.name}, {moment(time.time())}; Ctrl-C ends"
    try:
        return [head, *look_at(session).lines()]
    except MigratorError as error:
        return [head, f"not known just now: {error}"]


# ── Runs ──


def _runs_table(runs: list[dict[str, Any]]) -> Table:
    table = FittedTable(box=None, pad_edge=False)
    for column in ("run", "kind", "state", "scope", "started", "pages", "rows", "items", "findings"):
        table.add_column(column)
    for run in runs:
        begun = str(run["started"]).replace("+00:00", "Z")
        table.add_row(
            *(str(run[column]) for column in ("run", "kind", "state", "scope")), begun, *_counts(run)
        )
    return table


def _counts(run: dict[str, Any]) -> tuple[str, str, str, str]:
    findings_text = ", ".join(f"{number} {kind}" for kind, number in sorted(run["findings"].items()))
    tally = run["tally"]
    return (
        f"{run['pages_done']}/{run['pages_planned']}",
        f"{tally['rows']:,}",
        f"{tally['items']:,}",
        findings_text or "none",
    )


def _run_data(session: JobSession, run: Run) -> dict[str, Any]:
    journal = session.journal
    # A relay has no pages; it keeps its counts as if they were of one.
    planned = () if run.identity.kind == "relay" else journal.planned(run) - SCANS
    pages = [journal.page_counts(run, entity) for entity in planned]
    return {
        "run": run.id,
        "kind": run.identity.kind,
        "state": run.state,
        "scope": run.identity.scope or "all",
        "started": run.started_at,
        "ended": run.ended_at,
        "pages_done": sum(done for done, _ in pages),
        "pages_planned": sum(planned for _, planned in pages),
        "tally": asdict(journal.tally(run)),
        "findings": journal.finding_counts(run),
    }
