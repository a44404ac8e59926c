"""A run as commands begin it: what it writes to, begun, resumed or joined, and the part of the budgets of each process."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec import Struct

from migrator.journal.operations import SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import newest_of
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.edges import ObjectStore
from migrator.mapping.model.journal import SCANS, Run, RunIdentity, RunKind
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import SettingsError, StoppedError, TargetError
from migrator.runtime.values import replace
from migrator.settings.job import IN_SOURCE, Job
from migrator.stages.backfill.stage import DryStore, sends_nothing
from migrator.stages.backfill.write import Puts
from migrator.stages.session.job import JOURNAL_CONNECTIONS, Target
from migrator.stages.session.session import Held, JobSession

# ── Runs as commands begin them: the table is there and fits, one run a job, resumed where one was left ──

DRY_TABLE = "dry-run"


class RunEdges(Struct, frozen=True):
    """What a run writes to. `check` raises when the run has lost its lease. `target`: None where nothing is written.
    `is_shared`: the table holds, or may hold, items that are not of this job."""

    journal: SqlJournal
    store: Puts
    table_id: str
    check: Callable[[], None]
    objects: ObjectStore | None = None
    target: Target | None = None
    is_shared: bool = False


def dry_edges(stack: ExitStack, design: TableDesign) -> RunEdges:
    """They write nowhere."""
    journal = SqlJournal.in_memory()
    stack.callback(journal.close)
    return RunEdges(journal, DryStore(design), DRY_TABLE, sends_nothing)


def leased_edges(stack: ExitStack, session: JobSession, *, into_existing: bool) -> RunEdges:
    """Those of a run that holds the job's lease until the stack unwinds.

    Raises: TargetError when the table is not there, is another one or belongs to another job; SettingsError when
    another run of the job is at work.
    """
    table_id = session.table_id
    lease = stack.enter_context(session.lease())
    if into_existing:
        # For good: a run that goes on without the option finds the same items there.
        session.journal.keep_shared(table_id)
    else:
        _refuse_foreign(session)
    return run_edges(session, lease.check)


def run_edges(session: JobSession, check: Callable[[], None]) -> RunEdges:
    """Of a run whose lease `check` asks for. Raises: TargetError when the table is not there, or is another one."""
    target, journal, table_id = session.target, session.journal, session.table_id
    is_shared = journal.is_shared(table_id)
    return RunEdges(journal, target.store, table_id, check, target.objects, target, is_shared)


def chosen(compiled: tuple[CompiledEntity, ...], names: tuple[str, ...]) -> list[CompiledEntity]:
    """The named entities in the mapping's order; all where none is named."""
    names_known = {entity.name for entity in compiled}
    unknown = sorted(set(names) - names_known)
    if unknown:
        raise SettingsError(
            f"the mapping has no entity '{unknown[0]}'; it has: {', '.join(sorted(names_known))}"
        )
    return [entity for entity in compiled if not names or entity.name in names]


def need_bucket(job: Job, entities: Sequence[CompiledEntity]) -> None:
    """Raises SettingsError where the mapping keeps attributes in S3 and the job names no bucket."""
    keeping = [entity.name for entity in entities if entity.contents]
    if keeping and job.target.bucket is None:
        what = f"{job.path}: {', '.join(keeping)} keeps attributes in S3; write target: {{bucket: …}}"
        raise SettingsError(what)


def _refuse_foreign(session: JobSession) -> None:
    """Raises TargetError when the table holds items though this job has not begun to write to it."""
    target = session.target
    if session.table_id in session.journal.written_tables(session.job.name):
        return
    # A strict service, or one that flushes, has no run; but every ticket that it wrote with is known here.
    if session.memory.highest():
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
    session: JobSession,
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
        session.checked.mapping.revision + installation, [entity.plan for entity in entities]
    )
    return RunIdentity(kind, session.job.name, table_id, revision, scope)


def scope_of(entities: Sequence[CompiledEntity], limit: int | None, *, named: bool) -> str:
    """What a run covers, as text: two runs of one scope are the same work."""
    names = ",".join(entity.name for entity in entities) if named else ""
    return f"{names};limit={limit}" if limit is not None else names


def begin(journal: SqlJournal, identity: RunIdentity, *, again: bool, after: int) -> Run:
    """The run to work on: an unfinished one resumed, or a new one; a finished one as it is unless `again`.

    `after`: the last run whose work is of no use any more, since the job went on to another mapping and back.
    """
    latest = journal.find_run(identity)
    if latest is None or latest.id <= after or (latest.state == "done" and again):
        return journal.start_run(identity)
    return latest if latest.state == "done" else journal.resume_run(latest)


def runs_before(journal: SqlJournal, job: str) -> int:
    """The last run before the job went on, or back, to the mapping that it works by now; 0 for none."""
    newest = newest_of(journal.database, job)
    return 0 if newest is None else newest.runs_before


def pages_of(journal: SqlJournal, run: Run) -> tuple[int, int]:
    """(done, planned by now)."""
    counts = [journal.page_counts(run, entity) for entity in journal.planned(run) - SCANS]
    return sum(done for done, _ in counts), sum(planned for _, planned in counts)


# ── A process that works on a run that another one has begun ──


def joined_run(journal: SqlJournal, identity: RunIdentity) -> Run:
    """The run that is at work. Raises: SettingsError where it is another one."""
    run = journal.find_run(identity)
    if run is None or run.state != "running":
        what = f"the run that is at work is no {identity.kind} by this mapping with these options"
        raise SettingsError(f"job {identity.job}: {what}; give --join what its command was given")
    return replace(run, resumed=True)


def is_over(journal: SqlJournal, lease: Held, identity: RunIdentity) -> bool:
    """Raises: StoppedError when the process that began the run is gone."""
    run = journal.find_run(identity)
    if run is None or run.state != "running":
        return True
    lease.check()
    return False


def need_done(journal: SqlJournal, identity: RunIdentity) -> None:
    """Raises: StoppedError."""
    run = journal.find_run(identity)
    if run is None or run.state != "done":
        raise StoppedError("the run has been stopped before its end; given again, its command goes on")


# ── How many processes work on a run, and what each may take ──


# ── How many processes, and what each of them may take of the job's limits ──

WORTH_ROWS = 200_000
"""A process takes some seconds of CPU to start, and some 150 MB; below that one is nearly as fast."""
MOST_UNASKED = 8
UNITS_OF_ONE = 2_000
"""Write units, or rows, a second that one process reaches anywhere: below its limit another one gains nothing."""


def processes_of(job: Job, rows: int, limits: Sequence[float | None]) -> int:
    """How many processes work on so many rows: as many as the job says, else what this machine has cores for, where that
    is worth it and takes no connection from any of them. `limits`: of all of them, in units or rows a second."""
    if job.tuning.processes is not None:
        return job.tuning.processes
    bounds = [max(1, math.floor(limit / UNITS_OF_ONE)) for limit in limits if limit is not None]
    if (connections := job.source.max_connections) is not None:
        bounds.append(max(1, connections // _wanted(job)))
    return 1 if rows < WORTH_ROWS else min(usable_cores(), MOST_UNASKED, *bounds)


def divided(job: Job, processes: int, *, writes: bool = True) -> Job:
    """The job as one of so many processes sees it. Raises: SettingsError where its limits do not allow for so many."""
    least = least_connections(job)
    limit = job.source.max_connections
    if limit is not None and limit < processes * least:
        what = f"{job.path}: source.max_connections is {limit}, and each process needs {least}"
        raise SettingsError(
            f"{what}: {max(1, limit // least)} at most; lower tuning.processes, or raise the limit"
        )
    units = job.tuning.max_write_units
    if writes and units is not None and units < processes:
        raise SettingsError(f"{units} write units a second are too few for {processes} processes; take fewer")
    return job if limit is None else with_connections(job, limit // processes)


def with_connections(job: Job, connections: int) -> Job:
    """The job with so many connections to its source; 0: as it is."""
    source = job.source.model_copy(update={"max_connections": connections})
    return replace(job, source=source) if connections else job


def left_to_join(job: Job, processes: SqlProcesses, scope: str) -> int:
    """The connections of one that joins: what the others have left; 0 where there is no limit. Raises: SettingsError."""
    limit, least = job.source.max_connections, least_connections(job)
    if limit is None:
        return 0
    taken = processes.connections_taken(scope)
    if limit - taken < least:
        what = f"{job.path}: of source.max_connections {limit} the run's processes have {taken}, and this one needs {least}"
        raise SettingsError(f"{what}; raise the limit, or begin the run with fewer workers or processes")
    return limit - taken


def taken_by(job: Job, workers: int) -> int:
    """The connections that one process takes of the job's limit; 0 where there is none."""
    limit = job.source.max_connections
    return 0 if limit is None else min(limit, _wanted(job, workers))


def least_connections(job: Job) -> int:
    """Reads, marks and tickets have one each; a journal in the source two."""
    return 4 if job.journal == IN_SOURCE else 2


def _wanted(job: Job, workers: int | None = None) -> int:
    return 2 * ((workers or job.tuning.workers) + 1) + (
        JOURNAL_CONNECTIONS if job.journal == IN_SOURCE else 0
    )


def usable_cores() -> int:
    """As many as this process may use, by its affinity and its container's quota. Source: cgroup v2, "cpu.max"."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


# ── A process's part of the run's budgets ──


def scope_of_run(run: Run) -> str:
    return f"run {run.id}"
