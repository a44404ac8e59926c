"""`migrator status`: how a job gets on, who is at work, what failed last, its runs; once, or again and again."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli.lag import Lag, lag_of
from migrator.cli.options import belonging, console_on, shown_path, stdout, stop_on_signals
from migrator.cli.runs import known_revision, print_instances
from migrator.journal.operations import SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.model.durations import moment
from migrator.model.errors import MigratorError
from migrator.model.instances import Operations, ProcessState, ServiceRegistry
from migrator.model.journal import Journal, Run
from migrator.output.cutover import instances_data
from migrator.output.inert import plain
from migrator.output.relay import lag_line
from migrator.output.status import ProcessStanding, operations_data, standings, status_lines
from migrator.runtime.system import is_alive, visible_processes
from migrator.settings.job import Job
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import CommandJob

# ── One look ──


@dataclass(frozen=True)
class Look:
    """What the stores said at one moment of the work."""

    lag: Lag
    operations: Operations
    standing: list[ProcessStanding]

    def lines(self) -> Iterator[str]:
        return status_lines(self._behind(), self.operations, self.standing)

    def _behind(self) -> str:
        if self.lag.reason:
            return "not known: the source cannot be asked"
        if self.lag.marks is None:
            return "capture is not installed"
        return lag_line(self.lag.marks, self.lag.open_findings)


def look_at(job: Job, journal: SqlJournal) -> Look:
    operations = SqlProcesses(journal.database, job.name).read()
    return Look(lag_of(job, journal), operations, standings(operations, _is_dead()))


def _is_dead() -> Callable[[ProcessState], bool]:
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
        }
        operations = operations_data(self.look.operations, self.look.standing)
        return {
            "job": self.job,
            "journal": self.journal,
            "runs": self.runs,
            "live": live,
            "operations": operations,
        }

    def lines(self) -> Iterator[str]:
        """What it says of the table and of live change, for people."""
        if self.table_away:
            yield f"table: DynamoDB cannot be asked: {self.table_away}"
        yield from self.look.lag.lines(self.revision)

    def lines_behind_the_first(self) -> Iterator[str]:
        """The same behind what a look says first, which has told of the marks, but for why they cannot be counted."""
        lag = self.look.lag
        told = set() if lag.reason else {next(iter(lag.lines(None)))}
        return (line for line in self.lines() if line not in told)


def status_of(job: Job, journal: SqlJournal, table_away: str = "") -> JobStatus:
    runs = [_run_data(journal, run) for run in journal.runs(job.name)]
    look, instances = look_at(job, journal), live_wiring.registry_of(job, journal)
    revision = known_revision(job) if instances.known or look.lag.newest is not None else None
    return JobStatus(job.name, journal.name, runs, look, instances, revision, table_away)


# ── The command ──


@belonging(applies=lambda options: not options["same_job"], tells=True)
def status(
    command_job: CommandJob,
    as_json: bool,
    same_job: bool,
    watch: bool,
    every_s: float,
    table_away: str = "",
) -> int:
    """The exit code of `migrator status`."""
    if watch and (as_json or same_job):
        raise click.UsageError(
            "--watch goes alone; for programs, give `migrator status --json` again and again"
        )
    read = command_job.job
    if same_job:
        for kind, name in job_wiring.keep_names(read).items():
            click.echo(f"on record as job {read.name}'s {kind}: {name}", err=True)
    journal = command_job.journal()
    if watch:
        return _watch(read, journal, every_s)
    found = status_of(read, journal, table_away)
    if as_json:
        click.echo(json.dumps(found.data(), sort_keys=True))
    else:
        _print(found)
    return 0


def _print(found: JobStatus) -> None:
    for line in found.look.lines():
        click.echo(line)
    click.echo(f"journal: {shown_path(found.journal)}")
    if found.runs:
        stdout().print(_runs_table(found.runs))
    else:
        click.echo(f"job {found.job}: nothing has run yet")
    for line in found.lines_behind_the_first():
        click.echo(line)
    print_instances(found.instances, found.revision)


# ── Again and again ──


def _watch(job: Job, journal: SqlJournal, every_s: float) -> int:
    """Until Ctrl-C: on a terminal at one place, elsewhere one block after the other."""
    with stop_on_signals() as stop:
        if not sys.stdout.isatty():
            while not stop.is_set():
                click.echo("\n".join([*_watched(job, journal), ""]))
                stop.wait(every_s)
            return 0
        with Live(console=console_on(sys.stdout), auto_refresh=False, vertical_overflow="visible") as live:
            while not stop.is_set():
                live.update(Group(*(Text(plain(line)) for line in _watched(job, journal))), refresh=True)
                stop.wait(every_s)
    return 0


def _watched(job: Job, journal: SqlJournal) -> list[str]:
    """A journal that is away for a moment ends no watch."""
    head = f"job {job.name}, {moment(time.time())}; Ctrl-C ends"
    try:
        return [head, *look_at(job, journal).lines()]
    except MigratorError as error:
        return [head, f"not known just now: {error}"]


# ── Runs ──


def _runs_table(runs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("run", "kind", "state", "scope", "started", "pages", "rows", "items", "findings"):
        table.add_column(column)
    for run in runs:
        table.add_row(
            *(str(run[column]) for column in ("run", "kind", "state", "scope", "started")), *_counts(run)
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


def _run_data(journal: Journal, run: Run) -> dict[str, Any]:
    # A relay has no pages; it keeps its counts as if they were of one.
    planned = () if run.identity.kind == "relay" else journal.planned(run)
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
