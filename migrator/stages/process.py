"""Start of a run by a command: its edges, resuming and joining, its share of budgets, its write path."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from migrator.dynamodb.control import control_state
from migrator.journal.operations import SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import newest_of
from migrator.mapping.difference.difference import MappingDifference, difference, refusals
from migrator.mapping.difference.difference import PlannedRevision as Mapped
from migrator.mapping.difference.steps import ANSWERED
from migrator.mapping.items.encoder import compile_encoder
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.native import IS_NATIVE, PYTHON_ADVICE
from migrator.mapping.items.program import python_alone
from migrator.mapping.language.document import Document
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.edges import ObjectStore, Rows
from migrator.mapping.model.evidence import State
from migrator.mapping.model.instances import Answered, Revision, Standing
from migrator.mapping.model.journal import SCANS, Run, RunIdentity, RunKind
from migrator.mapping.model.live import Installation
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import (
    Interrupted,
    MappingError,
    MigratorError,
    OldRevisionError,
    RefusedError,
    SettingsError,
    StoppedError,
    TargetError,
)
from migrator.runtime.values import replace
from migrator.settings.job import IN_SOURCE, Job
from migrator.settings.transforms import checked_on, read_mapping
from migrator.stages.backfill.stage import DryStore, sends_nothing
from migrator.stages.backfill.write import (
    Claims,
    ConditionalPath,
    FastPath,
    PagePath,
    Puts,
    PutsAmongOthers,
    encoders_of,
)
from migrator.stages.live.capture import NAME_TTL
from migrator.stages.live.relay import remembered as remembered_entities
from migrator.stages.live.writers import WriterLease, both, outlive
from migrator.stages.session.job import JOURNAL_CONNECTIONS, Target
from migrator.stages.session.session import ConcurrentEdges, Held, JobSession

# ── Runs as commands begin them: the table is there and fits, one run a job, resumed where one was left ──

DRY_TABLE = "dry-run"


class RunEdges(Struct, frozen=True):
    """`check`: raises when the run has lost its lease.
    `is_shared`: the table contains, or may contain, other jobs' items.
    """

    journal: SqlJournal
    store: Puts
    table_id: str
    check: Callable[[], None]
    objects: ObjectStore | None = None
    target: Target | None = None
    is_shared: bool = False


def dry_edges(stack: ExitStack, design: TableDesign) -> RunEdges:
    journal = SqlJournal.in_memory()
    stack.callback(journal.close)
    return RunEdges(journal, DryStore(design), DRY_TABLE, sends_nothing)


def leased_edges(stack: ExitStack, session: JobSession, *, into_existing: bool) -> RunEdges:
    """Edges of a run that holds the job's lease until the stack unwinds.

    Raises: TargetError if the table is missing or another job's; SettingsError if another run is active.
    """
    table_id = session.table_id
    lease = stack.enter_context(session.lease())
    if into_existing:
        # For good: a run that continues without the option finds the same items there.
        session.journal.keep_shared(table_id)
    else:
        _refuse_foreign(session)
    return run_edges(session, lease.check)


def run_edges(session: JobSession, check: Callable[[], None]) -> RunEdges:
    """`check` verifies the run's lease. Raises: TargetError if the table is missing or is another one."""
    target, journal, table_id = session.target, session.journal, session.table_id
    is_shared = journal.is_shared(table_id)
    return RunEdges(journal, target.store, table_id, check, target.objects, target, is_shared)


def chosen(compiled: tuple[CompiledEntity, ...], names: tuple[str, ...]) -> list[CompiledEntity]:
    """Return the named entities in the mapping's order; all if none is named."""
    names_known = {entity.name for entity in compiled}
    unknown = sorted(set(names) - names_known)
    if unknown:
        raise SettingsError(
            f"the mapping has no entity '{unknown[0]}'; it has: {', '.join(sorted(names_known))}"
        )
    return [entity for entity in compiled if not names or entity.name in names]


def need_bucket(job: Job, entities: Sequence[CompiledEntity]) -> None:
    keeping = [entity.name for entity in entities if entity.contents]
    if keeping and job.target.bucket is None:
        what = f"{job.path}: {', '.join(keeping)} keeps attributes in S3; write target: {{bucket: …}}"
        raise SettingsError(what)


def _refuse_foreign(session: JobSession) -> None:
    """Raises: TargetError if the table has items although this job has not begun."""
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
                f"table {target.design.name} {what}; take an empty table, or pass --into-existing"
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
    """Return the run's identity. Changed columns, or another `installation` of capture, make a new run."""
    revision = columns_digest(
        session.checked.mapping.revision + installation, [entity.plan for entity in entities]
    )
    return RunIdentity(kind, session.job.name, table_id, revision, scope)


def scope_of(entities: Sequence[CompiledEntity], limit: int | None, *, named: bool) -> str:
    names = ",".join(entity.name for entity in entities) if named else ""
    return f"{names};limit={limit}" if limit is not None else names


def begin(journal: SqlJournal, identity: RunIdentity, *, again: bool, after: int) -> Run:
    """Resume the unfinished run, or begin a new one. A finished run is returned as it is unless `again`.

    `after`: the last run whose work is void, because the job changed its mapping and returned.
    """
    latest = journal.find_run(identity)
    if latest is None or latest.id <= after or (latest.state == "done" and again):
        return journal.start_run(identity)
    return latest if latest.state == "done" else journal.resume_run(latest)


def runs_before(journal: SqlJournal, job: str) -> int:
    """Return the last run before the job changed, or returned, to its present mapping; 0 for none."""
    newest = newest_of(journal.database, job)
    return 0 if newest is None else newest.runs_before


def pages_of(journal: SqlJournal, run: Run) -> tuple[int, int]:
    """Return (pages done, pages planned so far)."""
    counts = [journal.page_counts(run, entity) for entity in journal.planned(run) - SCANS]
    return sum(done for done, _ in counts), sum(planned for _, planned in counts)


# ── A process that joins a run of another one ──


def joined_run(journal: SqlJournal, identity: RunIdentity) -> Run:
    run = journal.find_run(identity)
    if run is None or run.state != "running":
        what = f"the current run is not a {identity.kind} by this mapping with these options"
        raise SettingsError(f"job {identity.job}: {what}; give --join what its command was given")
    return replace(run, resumed=True)


def is_over(journal: SqlJournal, lease: Held, identity: RunIdentity) -> bool:
    """Raises: StoppedError if the process that began the run is gone."""
    run = journal.find_run(identity)
    if run is None or run.state != "running":
        return True
    lease.check()
    return False


def need_done(journal: SqlJournal, identity: RunIdentity) -> None:
    run = journal.find_run(identity)
    if run is None or run.state != "done":
        raise StoppedError("the run has been stopped before its end; run its command again to resume")


# ── How many processes, and what each of them may take of the job's limits ──

WORTH_ROWS = 200_000
"""A process takes some seconds of CPU to start, and some 150 MB; below that one is nearly as fast."""
MOST_UNASKED = 8
UNITS_OF_ONE = 2_000
"""Write units, or rows, per second that one process reaches anywhere: below its limit another one gains nothing."""


def processes_of(job: Job, rows: int, limits: Sequence[float | None]) -> int:
    """Return the job's number of processes, else one per core if the rows justify it and connections suffice.

    `limits`: for all processes together, in units or rows per second.
    """
    if job.tuning.processes is not None:
        return job.tuning.processes
    bounds = [max(1, math.floor(limit / UNITS_OF_ONE)) for limit in limits if limit is not None]
    if (connections := job.source.max_connections) is not None:
        bounds.append(max(1, connections // _wanted(job)))
    return 1 if rows < WORTH_ROWS else min(usable_cores(), MOST_UNASKED, *bounds)


def divided(job: Job, processes: int, *, writes: bool = True) -> Job:
    """Return the job as one of `processes` sees it. Raises: SettingsError if its limits are too low."""
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
    source = job.source.model_copy(update={"max_connections": connections})
    return replace(job, source=source) if connections else job


def left_to_join(job: Job, processes: SqlProcesses, scope: str) -> int:
    """Return the connections left for a joining process; 0 without a limit. Raises: SettingsError."""
    limit, least = job.source.max_connections, least_connections(job)
    if limit is None:
        return 0
    taken = processes.connections_taken(scope)
    if limit - taken < least:
        what = f"{job.path}: of source.max_connections {limit} the run's processes have {taken}, and this one needs {least}"
        raise SettingsError(f"{what}; raise the limit, or begin the run with fewer workers or processes")
    return limit - taken


def taken_by(job: Job, workers: int) -> int:
    """Return one process's connections within the job's limit; 0 without a limit."""
    limit = job.source.max_connections
    return 0 if limit is None else min(limit, _wanted(job, workers))


def least_connections(job: Job) -> int:
    """One connection each for reads, marks and tickets; two for a journal in the source."""
    return 4 if job.journal == IN_SOURCE else 2


def _wanted(job: Job, workers: int | None = None) -> int:
    return 2 * ((workers or job.tuning.workers) + 1) + (
        JOURNAL_CONNECTIONS if job.journal == IN_SOURCE else 0
    )


def usable_cores() -> int:
    """Cores available to this process, by affinity and container quota. Source: cgroup v2, "cpu.max"."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def scope_of_run(run: Run) -> str:
    return f"run {run.id}"


# ── The path of a backfill: alone, alone while changes leave marks (fast), or with other writers running
# (conditional) ──


Tell: TypeAlias = Callable[[str], None]
"""Takes a line for the operator."""

_PATH_MESSAGES = {
    "fast": "path: fast; nothing else writes items yet, and every change since is captured for the relay",
    "conditional": "path: conditional; a relay (or a strict service) writes too, so nothing newer is replaced",
}


_UNCAPTURED = (
    "{why}: right if nothing writes to the source. What changes from now on is not captured, and items of rows that are"
    " deleted stay; if services write, {advice}"
)
_INSTALL_FIRST = "run `migrator capture install` first, or `migrator verify --repair` after it"
_OF_ANOTHER = "give this job a copy of the source, or run `migrator verify --repair` again after changes"


@dataclass
class PathChoice:
    """How a backfill writes. `installation`: of capture; '' if changes leave no marks."""

    installation: str = ""
    edges: ConcurrentEdges | None = None
    writer_lease: WriterLease | None = None

    def path(self, session: JobSession, run: RunEdges) -> PagePath:
        store, check, memory = run.store, run.check, None
        remembered = frozenset[str]()
        if self.edges is not None and self.writer_lease is not None:
            check = both(run.check, self.writer_lease.check)
            if self.writer_lease.writer.kind == "conditional":
                return ConditionalPath(self.edges.refresh(check), self.edges.open_findings, {})
            store = PutsAmongOthers(self.edges.store) if run.is_shared else self.edges.target.store
            memory = session.memory if self.installation else None
            remembered = remembered_entities(self.edges.entities)
        source, checked = session.source, session.checked
        entities = {entity.name: entity for entity in checked.entities}
        claims = Claims(run.journal, source, entities, checked.unproved, run.table_id, memory=memory)
        encoders = encoders_of(source, checked.entities, compile_encoder)
        return FastPath(store, claims, encoders, time.time, check, run.objects, memory, remembered)

    def source(self, session: JobSession) -> Rows:
        """Page reader. It reads in parallel only if every ticket is already known."""
        conditional = self.writer_lease is not None and self.writer_lease.writer.kind == "conditional"
        return session.source.at_primary() if conditional else session.source


def choose_path(
    stack: ExitStack, session: JobSession, run: RunEdges, tell: Tell, *, force: bool
) -> PathChoice:
    """Register the run as a writer until the stack unwinds, so that a starting relay waits for it.

    Raises: SettingsError if others write and changes are not captured; as begin_revision.
    """
    if run.target is None:
        return PathChoice()
    edges = stack.enter_context(session.open_concurrent())
    session.revisions.refuse_old()
    ttl = "" if session.mapping.table.ttl else f"{NAME_TTL} in the mapping, then "
    unmarked = "capture is not installed", f"{ttl}{_INSTALL_FIRST}"
    installation = edges.live.capture.installation()
    if installation is not None and _is_of_other_table(installation, session):
        unmarked = (
            f"capture in this source is for job {installation.job}, which has never written this table",
            _OF_ANOTHER,
        )
        installation = None
    if installation is not None:
        capture = session.capture_by(edges.live)
        installation = capture.need_captured(session.plans, installation).installation
    if installation is not None:
        edges.guard()
        tell_unmarked(session, installation, tell)
    begin_revision(edges, tell, force=force)
    if session.job.keep and installation is None:
        raise SettingsError(
            "writes.keep: attributes of services are kept by conditional writes, which need capture; run `migrator capture"
            " install` first"
        )
    # A batch of puts would take the attributes of services away.
    writer_lease = edges.heartbeats.enter("conditional" if session.job.keep else "fast")
    # A run that was refused since another mapping is the newest has no pending request.
    stack.push(
        lambda kind, *_: edges.heartbeats.leave(
            writer_lease, clean=kind is None or issubclass(kind, OldRevisionError)
        )
    )
    if installation is not None:
        tell(_PATH_MESSAGES[writer_lease.writer.kind])
        tell_unverified(session, installation, tell)
    elif writer_lease.writer.kind != "fast":
        what = "a relay or a strict service has written to this table, and capture is no longer installed"
        raise SettingsError(f"{what}: what changes would be missed; run `migrator capture install` first")
    else:
        tell(_UNCAPTURED.format(why=unmarked[0], advice=unmarked[1]))
    tell_by_python(session.checked.entities, tell)
    return PathChoice("" if installation is None else installation.id, edges, writer_lease)


def _is_of_other_table(installation: Installation, session: JobSession) -> bool:
    job = installation.job
    return job != session.job.name and job not in control_state(session.target.store).jobs


def tell_by_python(entities: Iterable[CompiledEntity], tell: Tell) -> None:
    if not IS_NATIVE:
        tell(f"items: made by Python, {PYTHON_ADVICE}")
        return
    for entity in entities:
        if why := python_alone(entity.mapping, entity.plan):
            tell(f"items of {entity.name}: made by Python, because {why}")


def tell_unverified(session: JobSession, installation: Installation, tell: Tell) -> None:
    if what := session.unverified(installation):
        tell(f"warning: {what}")


def begin_revision(edges: ConcurrentEdges, tell: Tell, *, force: bool) -> None:
    """Make this mapping the job's current one, and wait for writers that use another.

    Raises: OldRevisionError if the job has moved on from it; as need_unanswered does; Interrupted.
    """
    need_unanswered(edges.session, tell, goes_back=False, force=force)
    heartbeats = edges.heartbeats
    tell_registered(edges.session.revisions.register(), tell)
    if heartbeats.revisions.old(heartbeats.writers.living(heartbeats.lifetimes.gone_s)):
        tell(f"waiting for writers by another mapping, {heartbeats.lifetimes.gone_s:g} s at most")

    def wait(wait_s: float) -> None:
        if edges.session.stop.wait(wait_s):
            raise Interrupted("stopped before it began")

    outlive(heartbeats.writers, heartbeats.revisions, heartbeats.lifetimes, wait)


def need_unanswered(session: JobSession, tell: Tell, *, goes_back: bool, force: bool) -> None:
    """Check before the job changes to this mapping. With `force`, objections are only reported.

    Raises: RefusedError if a pattern would mix old and new answers until all items are rewritten;
    MappingError if writers of both mappings cannot share a table.
    """
    revisions = session.revisions
    standing = revisions.standing()
    if standing == "new" or (standing == "old" and goes_back):
        _refuse_unfit(session, tell)
        phases = session.phases.all()
        answered = {name: phase.state for name, phase in phases.items() if phase.state.phase in ANSWERED}
        newest = session.newest()
        known = {} if newest is None else newest.answers
        refuse_changed(list(_changed(answered, known, revisions.own)), tell, force=force)


def need_known(session: JobSession, tell: Tell) -> None:
    """Check before rows are marked with this mapping's entity names, which relays have to know.

    Raises: OldRevisionError, SettingsError if the job's writers use another mapping; as need_unanswered does.
    """
    session.revisions.refuse_old()
    if session.revisions.standing() == "new":
        _refuse_unfit(session, tell)
        raise SettingsError(
            f"{session.job.mapping}: the job's writers work by another mapping (or other columns), and may not know the rows"
            f" that this one would queue; run `migrator capture install {session.job.path}` first"
        )


def need_both(old: Mapped, new: Mapped, document: Document, tell: Tell) -> MappingDifference:
    """Return the difference of two mappings, and print the warnings of `mapping diff`.

    `document`: of the new mapping's file.
    Raises: MappingError if writers of both cannot share a table.
    """
    found = difference(old, new)
    faults = refusals(old, new, found, document)
    if any(not fault.warning for fault in faults):
        raise MappingError(faults)
    for fault in faults:
        tell(str(fault))
    return found


def _refuse_unfit(session: JobSession, tell: Tell) -> None:
    """Compare with the job's current mapping, if its text is known.

    Raises: as need_both does; SettingsError if only `migrate-mapping` can make the change.
    """
    job, newest = session.job, session.newest()
    text = None if newest is None else session.changes.text(newest.revision.mapping)
    if text is None:
        return
    before = examine_mapping(text, "the mapping that the job works by")
    if before.faults:
        return
    now, document = session.checked.mapping, read_mapping(job.mapping).document
    try:
        plans = checked_on(session.source, before).read_plans, session.checked.read_plans
    except MigratorError:
        # The source has changed since: the mappings are compared without it.
        plans = (), ()
    sides = Mapped(before.mapping, plans[0]), Mapped(now, plans[1])
    if renamed := need_both(*sides, document, tell).renamed:
        names = ", ".join(f"{former} to {name}" for name, former in renamed.items())
        raise SettingsError(
            f"{job.mapping}: the mapping renames {names}, and items of the former name would refuse those of the new one;"
            f" run `migrator migrate-mapping {job.path}`"
        )


def _changed(
    answered: Mapping[str, State], known: Mapping[str, Answered], own: Revision
) -> Iterator[tuple[str, str]]:
    """Yield each pattern that the table answers, with the reason why its answer would change."""
    for name, state in sorted(answered.items()):
        if name in known and name not in own.answers:
            yield name, f"it is in {state.word}, and it is not in this mapping"
        elif name in known and known[name].digest != own.answers[name]:
            yield name, f"it is in {state.word}, and its answer changes"


def refuse_changed(changed: Sequence[tuple[str, str]], tell: Tell, *, force: bool) -> None:
    if not changed:
        return
    lines = [f"pattern {name}: {why}" for name, why in changed]
    what = "items that are not yet written again would answer it as before, or not at all"
    if force:
        tell("\n".join(f"warning: {line}; {what}" for line in lines))
        return
    lines += [
        f"the job cannot use this mapping: {what}. Let SQL answer first (then run `migrator cutover advance` again):",
        *(f"    `migrator cutover rollback JOB {name}`" for name, _ in changed),
        "or pass --force, and callers get what is there; `migrator mapping diff` prints what changes",
    ]
    raise RefusedError("\n".join(lines))


def tell_registered(before: Standing, tell: Tell) -> None:
    if before in ("new", "old"):
        verb = "switches" if before == "new" else "goes back"
        what = f"the job {verb} to this mapping (or to these columns)"
        rest = "rows that do not change keep their items until `migrator backfill`"
        tell(f"{what}: processes that write by another one stop; restart relays and services; {rest}")


def tell_unmarked(session: JobSession, installation: Installation, tell: Tell) -> None:
    if installation.marked_by != "services":
        return
    if not session.service_registry().marking:
        what = "warning: changes are captured by services, and no instance of one is running: what is written now is missed"
        tell(f"{what}; start the services with the adapter first (see `migrator status`)")
