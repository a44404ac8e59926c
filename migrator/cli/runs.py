"""`migrator status` and `migrator findings`, and how commands begin, resume and end a run of the journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

import click
from rich.table import Table

from migrator.cli.command_line import print_json
from migrator.cli.lag import Lag, lag_of
from migrator.cli.options import (
    belonging,
    findings_to_print,
    mapping_of,
    read_job,
    shown_path,
    stdout,
    tell_masked,
)
from migrator.journal.lease import RunLease
from migrator.journal.memory import SqlMemory
from migrator.journal.runs import SqlJournal
from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.plan import columns_digest
from migrator.model.capture import Installation
from migrator.model.edges import ItemStore, ObjectStore
from migrator.model.errors import Interrupted, MigratorError, SettingsError, TargetError
from migrator.model.instances import ServiceRegistry
from migrator.model.journal import Finding, Journal, Run, RunIdentity, RunKind
from migrator.model.table import TableDesign
from migrator.output.cutover import instance_label, instances_data, instances_lines, instances_table
from migrator.output.text import finding_line
from migrator.runtime import logs
from migrator.settings.job import Hook, Job
from migrator.settings.transforms import load_transforms, sound_mapping
from migrator.stages.backfill.estimate import DryStore, sends_nothing
from migrator.stages.cutover.watch import tell
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring.job import CommandJob, JobContext, Target

# ── Runs as commands begin them: the table is there and fits, one run a job, resumed where one was left ──

DRY_TABLE = "dry-run"


@dataclass(frozen=True)
class Session:
    """The edges of one command's run. `check` raises when the run has lost its lease. `is_shared`: the table holds, or may
    hold, items that are not of this job."""

    journal: SqlJournal
    store: ItemStore
    table_id: str
    check: Callable[[], None]
    objects: ObjectStore | None = None
    target: Target | None = None
    is_shared: bool = False


def dry_session(stack: ExitStack, design: TableDesign) -> Session:
    """A session that writes nowhere."""
    journal = SqlJournal.in_memory()
    stack.callback(journal.close)
    return Session(journal, DryStore(design), DRY_TABLE, sends_nothing)


def live_session(
    stack: ExitStack,
    job: Job,
    design: TableDesign,
    command_job: CommandJob,
    stop: Event,
    *,
    into_existing: bool,
) -> Session:
    """A session on the job's table, holding the job's lease until the stack unwinds.

    Raises: TargetError when the table is not there, is another one or belongs to another job; SettingsError when
    another run of the job is at work.
    """
    target = job_wiring.open_target(job, design, stop.is_set)
    table_id = target.table_id()
    journal = command_job.journal(stop.is_set)
    lease = stack.enter_context(RunLease(journal, job.name))
    if into_existing:
        # For good: a run that goes on without the option finds the same items there.
        journal.keep_shared(table_id)
    else:
        _refuse_foreign(job, target, journal, table_id)
    is_shared = journal.is_shared(table_id)
    return Session(journal, target.store, table_id, lease.check, target.objects, target, is_shared)


def need_bucket(job: Job, entities: Sequence[CompiledEntity]) -> None:
    """Raises SettingsError where the mapping keeps attributes in S3 and the job names no bucket."""
    keeping = [entity.name for entity in entities if entity.contents]
    if keeping and job.target.bucket is None:
        what = f"{job.path}: {', '.join(keeping)} keeps attributes in S3; write target: {{bucket: …}}"
        raise SettingsError(what)


def _refuse_foreign(job: Job, target: Target, journal: SqlJournal, table_id: str) -> None:
    """Raises TargetError when the table holds items though this job has not begun to write to it."""
    if table_id in journal.written_tables(job.name):
        return
    # A strict service, or one that flushes, has no run; but every ticket that it wrote with is known here.
    if SqlMemory(journal.database, table_id).highest():
        return
    for page in target.store.scan(0, 1):
        # A relay that has just begun has written its journal into the table, and not yet its run into the journal.
        if any(not target.design.is_hidden(item) for item in page.items):
            what = "holds items that this job's journal knows nothing of"
            raise TargetError(
                f"table {target.design.name} {what}; take an empty table, or say --into-existing"
            )


def identity_of(
    kind: RunKind,
    context: JobContext,
    table_id: str,
    entities: Sequence[CompiledEntity],
    scope: str = "",
    *,
    installation: str = "",
) -> RunIdentity:
    """Columns that changed make another run: it begins anew, since half of the items would be made of the old ones.

    So does another `installation` of capture: what changed before it left no mark.
    """
    revision = columns_digest(
        context.checked.mapping.revision + installation, [entity.plan for entity in entities]
    )
    return RunIdentity(kind, context.job.name, table_id, revision, scope)


def scope_of(entities: Sequence[CompiledEntity], limit: int | None, *, named: bool) -> str:
    """What a run covers, as text: two runs of one scope are the same work."""
    names = ",".join(entity.name for entity in entities) if named else ""
    return f"{names};limit={limit}" if limit is not None else names


def begin(journal: Journal, identity: RunIdentity, *, again: bool, after: int) -> Run:
    """The run to work on: an unfinished one resumed, or a new one; a finished one as it is unless `again`.

    `after`: the last run whose work is of no use any more, since the job went on to another mapping and back.
    """
    latest = journal.find_run(identity)
    if latest is None or latest.id <= after or (latest.state == "done" and again):
        return journal.start_run(identity)
    return latest if latest.state == "done" else journal.resume_run(latest)


def pages_of(journal: Journal, run: Run) -> tuple[int, int]:
    """(done, planned by now)."""
    counts = [journal.page_counts(run, entity) for entity in journal.planned(run)]
    return sum(done for done, _ in counts), sum(planned for _, planned in counts)


class RunEnd:
    """Writes into the journal how a run ended, whatever ended it; the log's lines carry the run. `hooks` are called for a
    failure."""

    def __init__(self, journal: Journal, run: Run, hooks: Sequence[Hook] = ()) -> None:
        self.journal = journal
        self.run = run
        self.hooks = hooks

    def __enter__(self) -> None:
        logs.bind_run(self.run.id)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.journal.end_run(self.run, "done")
        elif isinstance(error, (Interrupted, KeyboardInterrupt)):
            self.journal.end_run(self.run, "interrupted")
        elif isinstance(error, MigratorError):
            identity = self.run.identity
            failed = {"run": self.run.id, "kind": identity.kind, "reason": str(error)}
            try:
                self.journal.end_run(self.run, "failed")
            finally:
                tell(self.hooks, "run_failed", identity.job, **failed)


# ──
# Instances of services, as commands see them: listed, counted where they mark changes, and in the way of
# an uninstall.


def known_revision(job: Job) -> str | None:
    """The revision of the job's mapping; None where it has faults, which other commands report."""
    try:
        return load_transforms(sound_mapping(job.mapping))[0].mapping.revision
    except MigratorError:
        return None


def print_instances(service_registry: ServiceRegistry, revision: str | None) -> None:
    if service_registry.living:
        stdout().print(instances_table(service_registry, revision))
    for line in instances_lines(service_registry, revision, version("single-table-migrator")):
        click.echo(line)


def tell_unmarked(job: Job, journal: SqlJournal, installation: Installation) -> None:
    """Warns where services are to leave the marks, and none is there that would."""
    if installation.marked_by == "triggers":
        return
    service_registry = live_wiring.registry_of(job, journal)
    if not service_registry.marking:
        what = "warning: changes are marked by services, and no instance of one is alive: what is written now is missed"
        click.echo(f"{what}; start the services with the adapter first (see `migrator status`)", err=True)


def refuse_living(service_registry: ServiceRegistry) -> None:
    """Raises: SettingsError, naming them, where instances live whose next write would fail or leave no mark."""
    if living := service_registry.marking:
        named = "\n".join(f"  {instance_label(instance)}" for instance in living)
        what = f"{len(living)} instance(s) of services still mark changes, or count on triggers that do:\n{named}"
        advice = "stop them first; or say --force, and their writes fail, or are missed"
        raise SettingsError(f"{what}\n{advice}")


# ── `migrator status` and `migrator findings`: what the journal of a job holds ──


@belonging(applies=lambda options: not options["same_job"], tells=True)
def status(command_job: CommandJob, as_json: bool, same_job: bool, table_away: str = "") -> int:
    """The exit code of `migrator status`."""
    read = command_job.job
    if same_job:
        for kind, name in job_wiring.keep_names(read).items():
            click.echo(f"on record as job {read.name}'s {kind}: {name}", err=True)
    found = status_of(read, command_job.journal(), table_away)
    if as_json:
        click.echo(json.dumps(found.data(), sort_keys=True))
        return 0
    click.echo(f"journal: {shown_path(found.journal)}")
    if found.runs:
        _print_runs(found.runs)
    else:
        click.echo(f"job {read.name}: nothing has run yet")
    for line in found.lines():
        click.echo(line)
    print_instances(found.instances, found.revision)
    return 0


@dataclass(frozen=True)
class JobStatus:
    """What is known of a job. `revision`: of its mapping file, where it was asked for and can be read; `table_away`: why
    DynamoDB cannot be asked, '' where it can."""

    job: str
    journal: str
    runs: list[dict[str, Any]]
    lag: Lag
    instances: ServiceRegistry
    revision: str | None
    table_away: str

    def data(self) -> dict[str, Any]:
        live = self.lag.data() | {
            "instances": instances_data(self.instances, self.revision),
            "table_away": self.table_away,
        }
        return {"job": self.job, "journal": self.journal, "runs": self.runs, "live": live}

    def lines(self) -> Iterator[str]:
        """What it says of the table and of live change, for people."""
        if self.table_away:
            yield f"table: DynamoDB cannot be asked: {self.table_away}"
        yield from self.lag.lines(self.revision)


def status_of(job: Job, journal: SqlJournal, table_away: str = "") -> JobStatus:
    runs = [_run_data(journal, run) for run in journal.runs(job.name)]
    lag, instances = lag_of(job, journal), live_wiring.registry_of(job, journal)
    revision = known_revision(job) if instances.known or lag.newest is not None else None
    return JobStatus(job.name, journal.name, runs, lag, instances, revision, table_away)


def _print_runs(runs: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("run", "kind", "state", "scope", "started", "pages", "rows", "items", "findings"):
        table.add_column(column)
    for run in runs:
        table.add_row(
            *(str(run[column]) for column in ("run", "kind", "state", "scope", "started")), *_counts(run)
        )
    stdout().print(table)


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


def findings(job: Path, number: int | None, everything: bool, whole_keys: bool, as_json: bool) -> int:
    """The exit code of `migrator findings`."""
    read = read_job(job)
    with job_wiring.open_journal(read) as journal:
        listed = list(_listed(read, journal, number, None if everything else 100))
    unmasked = [finding for listing in listed for finding in listing.findings]
    printed = findings_to_print(unmasked, mapping_of(read), whole_keys=whole_keys)
    tell_masked(printed, unmasked)
    if as_json:
        lists = [{**listing.about, "total": listing.total} for listing in listed]
        total = sum(listing.total for listing in listed)
        rows = [asdict(finding) for finding in printed]
        print_json({"job": read.name, "lists": lists, "total": total, "findings": rows})
        return 0
    for line in printed:
        click.echo(finding_line(line))
    for listing in listed:
        unlisted = listing.total - len(listing.findings)
        rest = f"; {unlisted:,} more with --all" if unlisted > 0 else ""
        click.echo(f"{listing.of}: {listing.total:,} finding(s){rest}", err=True)
    return 0


@dataclass(frozen=True)
class _Listed:
    """Findings that are listed together, the first of `total`; `about`: the run that they are of; empty for live change."""

    about: dict[str, Any]
    findings: Sequence[Finding]
    total: int

    @property
    def of(self) -> str:
        return "run {run} ({kind}, {state})".format(**self.about) if self.about else "live change, open"


def _listed(job: Job, journal: SqlJournal, number: int | None, limit: int | None) -> Iterator[_Listed]:
    run = _run(journal, job.name, number)
    if number is None and any(other.identity.kind == "relay" for other in journal.runs(job.name)):
        opened = live_wiring.open_findings_of(job, journal)
        yield _Listed({}, opened.read(limit), sum(opened.counts().values()))
    # What a relay found and still holds is open.
    if number is not None or run.identity.kind != "relay":
        about = {"run": run.id, "kind": run.identity.kind, "state": run.state}
        yield _Listed(about, journal.findings(run, limit), sum(journal.finding_counts(run).values()))


def _run(journal: Journal, job: str, number: int | None) -> Run:
    runs = journal.runs(job)
    if not runs:
        raise SettingsError(f"job {job}: nothing has run yet")
    if number is None:
        return runs[-1]
    for run in runs:
        if run.id == number:
            return run
    raise SettingsError(f"job {job} has no run {number}; see `migrator status`")
