"""`migrator status`: a job's progress, processes, last failures and runs; once, or repeatedly."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click
from msgspec import Struct
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli import options as cli
from migrator.cli.command_line import print_json
from migrator.cli.cutover_text import instances_data
from migrator.cli.inert import plain
from migrator.cli.lag import Lag, lag_line, lag_of
from migrator.cli.runs import known_revision, print_findings, print_instances
from migrator.cli.text import table_of, unkept_data, unkept_lines
from migrator.mapping.model.durations import age_text, moment
from migrator.mapping.model.instances import Failure, Operations, ProcessState, ServiceRegistry, Throttle
from migrator.mapping.model.journal import SCANS, Run
from migrator.mapping.model.live import Unkept
from migrator.runtime.errors import MigratorError, SettingsError, amount, verb
from migrator.runtime.system import has_ended
from migrator.runtime.values import asdict, picked, replace
from migrator.stages.live.capture import CAPTURED
from migrator.stages.session.job import ONCE
from migrator.stages.session.session import JobSession

Standing = Literal["works", "idle", "slow", "stalled", "tries again", "held", "silent", "dead"]
HEARD_S = 20.0
"""A process beats every five seconds; after so long it has failed to several times."""
STALLED_S = 60.0
SLOW = 0.5
"""A rate of less than this part of the usual one is slow."""
KNOWN_S = 120.0
"""A process younger than that has no usual rate."""


class ProcessStanding(Struct, frozen=True):
    process: ProcessState
    standing: Standing
    why: str = ""
    replaced: bool = False
    """It has ended, and a later process of its kind is alive."""

    @property
    def is_at_work(self) -> bool:
        return self.standing not in ("silent", "dead")


def standing_of(process: ProcessState, now_s: float, *, is_dead: bool) -> ProcessStanding:
    """`is_dead`: ended, as this machine knows. A slow process makes progress; a stalled one has work and
    makes none."""
    return ProcessStanding(process, *_judged(process, now_s, is_dead=is_dead))


def _judged(process: ProcessState, now_s: float, *, is_dead: bool) -> tuple[Standing, str]:
    heard_s, waiting = now_s - process.alive_at, f"{process.left:,} {process.unit} wait"
    if is_dead:
        return "dead", f"{_ended(process, now_s)}; start it again"
    if heard_s > HEARD_S:
        return "silent", f"not heard of for {age_text(heard_s)}: killed, frozen, or cut off from the journal"
    if process.held:
        return "held", process.held
    if process.trouble:
        return "tries again", process.trouble
    if not process.left:
        return "idle", f"no {process.unit} wait"
    if process.silent_s >= STALLED_S:
        return "stalled", f"{waiting}, and none was done for {age_text(process.silent_s)}"
    if process.alive_at - process.since >= KNOWN_S and process.rate < SLOW * process.usual_rate:
        return "slow", f"{_rate(process.rate, process)}, {_rate(process.usual_rate, process)} since it began"
    return "works", _rate(process.rate, process)


def standings(
    operations: Operations, is_dead: Callable[[ProcessState], bool], waiting: int | None = None
) -> list[ProcessStanding]:
    """`waiting`: marks in the source now. A relay blocked by one request only knows the earlier ones."""
    all_ = []
    for process in operations.processes:
        if waiting is not None and process.kind == "relay":
            fall = process.fall if waiting <= process.left else min(process.fall, 0.0)
            process = replace(process, left=waiting, fall=fall)
        all_.append(standing_of(process, operations.now_s, is_dead=is_dead(process)))
    return [_succeeded(one, all_, operations.now_s) for one in all_]


def _succeeded(dead: ProcessStanding, others: Sequence[ProcessStanding], now_s: float) -> ProcessStanding:
    """The standing; of a dead process also whether it has a successor."""
    kind, end = dead.process.kind, dead.process.alive_at
    later = (one for one in others if one.is_at_work and one.process.kind == kind)
    if dead.standing != "dead" or not any(one.process.since > end for one in later):
        return dead
    return replace(dead, why=f"{_ended(dead.process, now_s)}; a later {kind} runs", replaced=True)


def _ended(process: ProcessState, now_s: float) -> str:
    return f"did not deregister; last heard of {age_text(now_s - process.alive_at)} ago"


# ── For people ──


def status_lines(
    lag: str,
    operations: Operations,
    standing: Sequence[ProcessStanding],
    ended_at: Mapping[str, float] | None = None,
    unwritable: str = "",
) -> Iterator[str]:
    """`lag`: how far items are behind rows.
    `ended_at`: the last end of a run of each kind.
    `unwritable`: why the journal takes no failure.
    """
    at_work = [one for one in standing if one.is_at_work]
    yield f"lag      {lag}"
    yield f"rate     {_rates(at_work)}"
    yield f"left     {_left(at_work)}"
    yield f"failure  {f'now: {unwritable}' if unwritable else _failure(operations, at_work, ended_at or {})}"
    yield f"pace     {pace_line(operations.throttle, operations.now_s)}"
    label = "alive   "
    for one in (one for one in standing if not one.replaced):
        yield f"{label} {process_line(one, operations.now_s)}"
        label = " " * 8
    if not standing:
        yield f"{label} no backfill and no relay is running"


def pace_line(throttle: Throttle, now_s: float) -> str:
    units = throttle.max_write_units
    limit = (
        "write units as set in the job"
        if units is None
        else f"at most {units:,} write units a second for a run, and for all relays"
    )
    since = f"by {throttle.who}, {age_text(now_s - throttle.since)} ago"
    why = f" ({throttle.reason})" if throttle.reason else ""
    if throttle.paused:
        return f"paused {since}{why}; `migrator pace --resume` resumes; {limit} then"
    return f"{limit}, {since}{why}" if throttle.who else "as set in the job"


def _rate(rate: float, process: ProcessState) -> str:
    return f"{rate:,.0f} {process.unit}/s" if rate >= 10 or not rate else f"{rate:.1f} {process.unit}/s"


def _rates(at_work: Sequence[ProcessStanding]) -> str:
    by_kind: dict[str, list[ProcessState]] = defaultdict(list)
    for one in at_work:
        by_kind[one.process.kind].append(one.process)
    rates = (f"{kind} {_rate(sum(one.rate for one in of), of[0])}" for kind, of in by_kind.items())
    return ", ".join(rates) or "nothing is running"


def _left(at_work: Sequence[ProcessStanding]) -> str:
    left = (f"{one.process.kind} {left_text(one.process)}" for one in at_work)
    return "; ".join(left) or "nothing is running"


def left_text(process: ProcessState) -> str:
    if not process.left:
        return "unknown while it retries" if process.trouble else "has nothing left"
    what = f"has {process.left:,} {process.unit} left"
    eta = eta_s(process)
    if eta is not None:
        return f"{what}, done in about {age_text(eta)}"
    if process.held:
        return f"{what}, and is paused"
    if process.trouble:
        return f"{what}, and tries again"
    if process.fall < 0:
        return f"{what}, and they grow by {_rate(-process.fall, process)}"
    is_young = process.alive_at - process.since < STALLED_S
    return f"{what}, done when is not known yet" if is_young else f"{what}, no end in sight"


def eta_s(process: ProcessState) -> float | None:
    """Seconds until nothing is left, at the pace of the last minute; None if no end is in sight."""
    if process.held or process.trouble or process.fall <= 0:
        return None
    return process.left / process.fall


def _failure(
    operations: Operations, at_work: Sequence[ProcessStanding], ended_at: Mapping[str, float]
) -> str:
    if not operations.failures:
        return "none on record"
    going_on = [one for one in operations.failures if not _is_over(one, at_work, ended_at)]
    last = (going_on or operations.failures)[0]
    over = "" if going_on else "none now; last "
    ago = age_text(operations.now_s - last.at)
    return f"{over}{ago} ago, {last.kind} on {last.host}:{last.pid}: {last.reason}"


def _is_over(failure: Failure, at_work: Sequence[ProcessStanding], ended_at: Mapping[str, float]) -> bool:
    same_kind = [one.process for one in at_work if one.process.kind == failure.kind]
    if any(process.trouble for process in same_kind):
        return False
    return ended_at.get(failure.kind, 0.0) > failure.at or any(
        (process.host, process.pid) == (failure.host, failure.pid)
        or (process.since > failure.at and process.done > 0)
        for process in same_kind
    )


def process_line(one: ProcessStanding, now_s: float) -> str:
    process = one.process
    where = f"{process.kind} on {process.host}:{process.pid}"
    since = age_text(now_s - process.since)
    return f"{where} (migrator {process.version}, for {since}): {one.standing}; {one.why}"


# ── For programs ──


def operations_data(operations: Operations, standing: Sequence[ProcessStanding]) -> dict[str, Any]:
    hidden = ("sees", "born", "id")
    processes = [
        {name: value for name, value in asdict(one.process).items() if name not in hidden}
        | {"standing": one.standing, "why": one.why, "eta_s": eta_s(one.process), "unit": one.process.unit}
        for one in standing
    ]
    return {
        "processes": processes,
        "failures": [asdict(failure) for failure in operations.failures],
        "throttle": asdict(operations.throttle),
    }


# ── `migrator pace`: how fast a job's backfills and relays may go ──


LONGEST = 200
WITHIN_S = 10
"""The time within which a running process reads it: two of its heartbeats."""


@cli.belonging()
def pace(
    session: JobSession,
    pause: bool | None,
    max_write_units: int | None,
    off: bool,
    reason: str,
    who: str,
    as_json: bool,
) -> int:
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
    throttle, at_work = operations.throttle, sum(one.is_at_work for one in standings(operations, is_dead))
    hears = "no backfill or relay is running; the next one starts with it"
    if at_work:
        hears = f"{amount(at_work, 'running process')} {verb(at_work, 'follow')} it within {WITHIN_S} s"
    cli.print_result(
        {"job": job.name, "throttle": asdict(throttle), "processes": at_work},
        [pace_line(throttle, operations.now_s), f"{hears}; `migrator status` shows their progress"],
        as_json=as_json,
    )
    return 0


# ── One look ──


class StatusSnapshot(Struct, frozen=True):
    lag: Lag
    operations: Operations
    standing: list[ProcessStanding]
    ended_at: dict[str, float]
    uncaptured: str
    """Why changes may not be captured."""
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
            return f"{lag_line(self.lag.marks, self.lag.open_findings)}; no relay is running: {advice}"
        return lag_line(self.lag.marks, self.lag.open_findings)


def look_at(session: JobSession) -> StatusSnapshot:
    operations, lag, journal = session.processes.read(), lag_of(session), session.journal
    waiting = None if lag.marks is None else lag.marks.waiting
    standing = standings(operations, is_dead, waiting)
    ended_at = {
        str(run.identity.kind): datetime.fromisoformat(run.ended_at).timestamp()
        for run in journal.runs(session.job.name)
        if run.state == "done" and run.ended_at
    }
    uncaptured, rows = _in_source(session, lag)
    if lag.marks is not None:
        lag = replace(lag, marks=replace(lag.marks, rows=rows))
    return StatusSnapshot(lag, operations, standing, ended_at, uncaptured, journal.unwritable())


def _in_source(session: JobSession, lag: Lag) -> tuple[str, int | None]:
    """Return why changes may not be captured ('' if all are), and how many rows the pending marks name."""
    if lag.marks is None:
        return "", None
    try:
        with session.another("status", live_patience=ONCE) as reading:
            tables = reading.capture.status(reading.plans).tables
            rows = reading.waiting_rows() if lag.marks.waiting else 0
    except MigratorError as error:
        return f"mapping and source do not fit each other: {error}", None
    open_ = [table.table for table in tables if table.state not in CAPTURED]
    what = f"changes of {', '.join(open_)} may not be captured; run `migrator capture status`"
    return what if open_ else "", rows


def is_dead(process: ProcessState) -> bool:
    return has_ended(process.sees, process.pid, process.born)


class JobStatus(Struct, frozen=True):
    """`revision`: of the mapping file, if requested and readable.
    `table_away`: why DynamoDB is unreachable, '' if it is not.
    """

    job: str
    journal: str
    runs: list[dict[str, Any]]
    look: StatusSnapshot
    instances: ServiceRegistry
    revision: str | None
    table_away: str
    unkept: Unkept
    """Attributes of items that no row keeps, as the last `reverse check` or `reverse verify` counted them."""
    unkept_age_s: float

    def data(self) -> dict[str, Any]:
        live = self.look.lag.data() | {
            "instances": instances_data(self.instances, self.revision),
            "table_away": self.table_away,
            "uncaptured": self.look.uncaptured,
            "unkept": unkept_data(self.unkept),
        }
        operations = operations_data(self.look.operations, self.look.standing)
        return picked(self, "job", "journal", "runs") | {"live": live, "operations": operations}

    def warnings(self) -> Iterator[str]:
        if self.table_away:
            yield f"table: DynamoDB cannot be asked: {self.table_away}"
        yield from self.look.lag.warnings(self.revision)
        if self.unkept:
            ago = age_text(self.unkept_age_s)
            yield f"attributes that no row keeps, counted {ago} ago; `migrator reverse check` counts them again:"
            yield from unkept_lines(self.unkept)
        if not self.runs:
            elsewhere = "if something has, MIGRATOR_HOME was another, or the job file stood elsewhere"
            yield f"job {self.job}: nothing has run yet by this journal; {elsewhere}"


def status_of(session: JobSession, table_away: str = "") -> JobStatus:
    look, instances = look_at(session), session.service_registry()
    job, journal = session.job, session.journal
    relays_work = any(one.is_at_work and one.process.kind == "relay" for one in look.standing)
    runs = journal.database.snapshot(
        lambda: [_run_data(session, run) for run in session.runs_as_they_stand(relays_work=relays_work)]
    )
    revision = known_revision(job) if instances.known or look.lag.newest is not None else None
    # Without direct entities rows are the truth, and each item is made from its row.
    unkept = session.unkept.last() if session.on_record().direct else (Unkept(), 0.0)
    return JobStatus(job.name, journal.name, runs, look, instances, revision, table_away, *unkept)


# ── The command ──


def status(
    job: Path, findings: bool, number: int | None, everything: bool, whole_keys: bool, **asked: Any
) -> int:
    if findings:
        if asked["every_s"]:
            raise click.UsageError("--findings goes without --watch")
        return print_findings(job, number, everything, whole_keys, asked["as_json"])
    if number is not None or whole_keys:
        raise click.UsageError("--run and --show-keys go with --findings")
    return _status(job=job, everything=everything, **asked)


@cli.belonging(tells=True)
def _status(
    session: JobSession, as_json: bool, everything: bool, every_s: float | None, table_away: str = ""
) -> int:
    if every_s is not None and (as_json or everything):
        raise click.UsageError(
            "--watch goes alone; for programs, give `migrator status --json` again and again"
        )
    if every_s is not None:
        return _watch(session, every_s)
    found = status_of(session, table_away)
    if as_json:
        print_json(found.data())
    else:
        _print(found, everything=everything)
    return 0


def _print(found: JobStatus, *, everything: bool) -> None:
    for line in (*found.look.lines(), *found.warnings()):
        cli.print_folded(line)
    if not everything:
        return
    cli.print_folded(f"journal: {cli.shown_path(found.journal)}")
    if found.runs:
        cli.stdout().print(_runs_table(found.runs))
    for one in found.look.standing:
        if one.replaced:
            cli.print_folded(process_line(one, found.look.operations.now_s))
    for line in found.look.lag.writer_lines():
        cli.print_folded(line)
    print_instances(found.instances, found.revision)


# ── Again and again ──


def _watch(session: JobSession, every_s: float) -> int:
    """Repeat until Ctrl-C: in place on a terminal, else one block after the other."""
    with cli.stop_on_signals() as stop:
        if not sys.stdout.isatty():
            while not stop.is_set():
                cli.print_folded("\n".join([*_watched(session), ""]))
                stop.wait(every_s)
            return 0
        with Live(
            console=cli.console_on(sys.stdout), auto_refresh=False, vertical_overflow="visible"
        ) as live:
            while not stop.is_set():
                live.update(Group(*(Text(plain(line)) for line in _watched(session))), refresh=True)
                stop.wait(every_s)
    return 0


def _watched(session: JobSession) -> list[str]:
    """A temporarily unreachable journal does not end a watch."""
    head = f"job {session.job.name}, {moment(time.time())}; Ctrl-C ends"
    try:
        return [head, *look_at(session).lines()]
    except MigratorError as error:
        return [head, f"not known just now: {error}"]


# ── Runs ──


def _runs_table(runs: list[dict[str, Any]]) -> Table:
    columns = ("run", "kind", "state", "scope", "started", "pages", "rows", "items", "findings")
    return table_of(columns, map(_run_cells, runs))


def _run_cells(run: dict[str, Any]) -> tuple[object, ...]:
    findings, tally = sorted(run["findings"].items()), run["tally"]
    return (
        *(run[column] for column in ("run", "kind", "state", "scope")),
        str(run["started"]).replace("+00:00", "Z"),
        f"{run['pages_done']}/{run['pages_planned']}",
        f"{tally['rows']:,}",
        f"{tally['items']:,}",
        ", ".join(f"{number} {kind}" for kind, number in findings) or "none",
    )


def _run_data(session: JobSession, run: Run) -> dict[str, Any]:
    journal = session.journal
    # A relay has no pages; it keeps its counts as if in one page.
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
