"""Opens what live change needs: capture, marks and tickets, remembered keys, a writer beside others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from migrator.journal.evidence import unverified_run
from migrator.journal.findings import SqlOpenFindings
from migrator.journal.identity import SqlIdentity
from migrator.journal.memory import SqlMemory
from migrator.journal.revisions import OLD, SqlRevisions
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances, SqlWriters
from migrator.mapping.heart.changes import needs_memory
from migrator.mapping.live.reach import compile_image_keys, no_keys
from migrator.mapping.plan import columns_digest
from migrator.model.capture import Installation
from migrator.model.edges import UNREPAIRED
from migrator.model.errors import MigratorError, OldRevisionError, SettingsError, TargetError
from migrator.model.facts import EntityPlan
from migrator.model.instances import Revision, Revisions, ServiceRegistry
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.job import Job
from migrator.source.capture.install import SqlCapture
from migrator.source.capture.marks import SqlMarks, SqlTickets
from migrator.source.capture.writing import Writing
from migrator.source.connect import address_of
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.reader import SqlSource
from migrator.stages.live.capture import CaptureStage, CaptureStatus, owned
from migrator.stages.live.refresh import LiveEntity, Refresh, behind
from migrator.stages.live.relay import Relay, RelayOptions, live_entities
from migrator.stages.live.writers import Lifetimes, WriterHeartbeats
from migrator.stages.ownership import OlderError, UnaskedSourceError, refuse_renamed_job, refuse_unknown_job
from migrator.target.conditional import ConditionalWrites
from migrator.target.control import ControlItem, control_state
from migrator.wiring import job as job_wiring
from migrator.wiring import ownership
from migrator.wiring.job import JobContext, Target, secret_providers

DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)
ONCE = Backoff(attempts=1)


@dataclass(frozen=True)
class Live:
    """Capture's edges in one source."""

    capture: SqlCapture
    marks: SqlMarks
    tickets: SqlTickets


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    source: SqlSource | None = None,
    asked_s: float | None = None,
) -> Iterator[Live]:
    """`source`: by whose connections capture is looked at; None: by one of its own. Nothing connects to write before
    something is written. `asked_s`: how long a statement may take, and a server say nothing past that; None: as the job
    says."""
    settings = job.source
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    connection_options = ConnectionOptions(
        name=name_of(job.name, command),
        pool_size=settings.connections_apart(job.tuning.workers + 1),
        lock_wait_s=DDL_LOCK_WAIT_S,
        statement_timeout_s=settings.statement_timeout_s,
    )
    if asked_s is not None:
        limit_s = min(settings.statement_timeout_s or asked_s, asked_s)
        connection_options = replace(connection_options, statement_timeout_s=limit_s, silence_s=asked_s)
    writing = Writing(address, connection_options, Retry(patience, stop), source.engine if source else None)
    try:
        yield Live(SqlCapture(writing), SqlMarks(writing), SqlTickets(writing))
    finally:
        writing.close()


def refuse_unknown(
    job: Job, journal: SqlJournal, *, begins: bool = False, unless: Callable[[], bool] = lambda: False
) -> None:
    """Raises: AnotherJournalError where the journal knows nothing of the job, and its source is captured for it,
    AnotherJobError where it is captured for another one, UnaskedSourceError where that cannot be asked. `begins`: this may
    be the first of a job beside that one. `unless`: what makes it right that the journal does not know of its own."""
    if SqlIdentity(journal.database, job.name).knows_job():
        return
    try:
        with open_live(job, "journal", patience=ONCE) as live:
            found = live.capture.installation()
    except MigratorError as error:
        what = f"journal {journal.name} knows nothing of job {job.name}, and the source cannot be asked"
        raise UnaskedSourceError(f"{what} whether it is captured for the job: {error}", error) from None
    if found is None:
        return
    if found.job != job.name and not begins:
        refuse_renamed_job(job.name, found.job, journal.name)
    if found.job == job.name and not unless():
        refuse_unknown_job(job.name, journal.name)


def found_installation(live: Live, context: JobContext) -> Installation | None:
    """The job's installation of capture, None where there is none. Raises: as need_installation does."""
    found = live.capture.installation()
    return (
        None
        if found is None
        else capture_stage(live, context).need_captured(_plans(context), found).installation
    )


def need_installation(live: Live, context: JobContext) -> Installation:
    """The job's installation of capture.

    Raises: SettingsError where there is none, where it is another job's, or where it does not capture all that the
    mapping reads.
    """
    found = owned(live.capture.installation(), context.job.name)
    capture_stage(live, context).need_captured(_plans(context), found)
    return found


def capture_stage(live: Live, context: JobContext) -> CaptureStage:
    return CaptureStage(live.capture, context.job.name, context.checked.mapping.table)


def unverified(journal: SqlJournal, job: Job, installation: Installation | None) -> str:
    """What the table may miss because a backfill began before capture was what it is now, and what to do; '' for nothing."""
    run = installation and unverified_run(journal.database, job.name, installation.id)
    if not run:
        return ""
    what = f"backfill {run} began before capture was installed as it is now"
    lost = "rows that were changed or deleted in between left no mark, and items of deleted ones stay"
    return f"{what}: {lost}; run `migrator verify --repair`, then `migrator relay`"


def capture_status(context: JobContext) -> CaptureStatus:
    """What is captured in the job's source, by whom."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        return capture_stage(live, context).status(_plans(context))


def capture_refusals(context: JobContext) -> list[str]:
    """Why capture cannot be installed in the job's source by its user."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        return capture_stage(live, context).refusals(_plans(context))


def try_marks(context: JobContext) -> None:
    """Raises: SourceError where this user may not do with marks what a relay does."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        live.marks.probe()


def try_tickets(context: JobContext) -> None:
    """Raises: SourceError where this user may not draw tickets; SettingsError where the source went back (rule 8)."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        live.tickets.probe()
        counter = live.tickets.highest()
    known = max(known_tickets(context.job), default=0)
    if known > counter:
        raise SettingsError(behind(counter, known))


def _plans(context: JobContext) -> list[EntityPlan]:
    return [entity.plan for entity in context.checked.entities]


@dataclass(frozen=True)
class ConcurrentEdges:
    """The edges of whoever writes items while others may."""

    context: JobContext
    live: Live
    target: Target
    journal: SqlJournal
    memory: SqlMemory
    heartbeats: WriterHeartbeats

    @property
    def lifetimes(self) -> Lifetimes:
        return self.heartbeats.lifetimes

    @cached_property
    def entities(self) -> dict[str, LiveEntity]:
        return live_entities(self.context.checked.mapping, self.context.checked.entities)

    @cached_property
    def store(self) -> ConditionalWrites:
        return ConditionalWrites(self.target.store)

    @cached_property
    def control(self) -> ControlItem:
        return ownership.control_of(self.context.job, self.target, self.journal)

    @cached_property
    def open_findings(self) -> SqlOpenFindings:
        return SqlOpenFindings(self.journal.database, self.context.job.name, self.memory.table_id)

    def under(self, check: Callable[[], None]) -> ConcurrentEdges:
        """The same, every request of which asks `check` as well as the heartbeat."""
        return replace(self, target=self.target.fenced(both(self.heartbeats.check, check)))

    def guard(self) -> None:
        """Raises: SettingsError where source, journal and table do not belong together any more (rule 8)."""
        job, tickets, table_id = self.context.job, self.live.tickets, self.memory.table_id
        if existing_table(job, self.target) != table_id:
            what = f"another table has the name {self.target.design.name} now: it was restored, or made anew"
            raise OlderError(f"{what}; start this command again, which says what to do")
        ownership.keeping_of(job, self.target, self.journal, table_id, tickets, self.control).guard()

    def refresh(self, check: Callable[[], None]) -> Refresh:
        return Refresh(
            rows=self.context.source,
            store=self.store,
            tickets=self.live.tickets,
            memory=self.memory,
            control=self.control,
            entities=self.entities,
            table=self.target.design,
            revision=self.context.checked.mapping.revision,
            clock=self.heartbeats.now_s,
            check=check,
            objects=self.target.objects,
        )

    def relay(self, check: Callable[[], None]) -> Relay:
        plans = [one.compiled.plan for one in self.entities.values()]
        captured = {one.name: one for one in self.live.capture.captured(plans)}
        mapping = self.context.checked.mapping
        # Keys that an image cannot tell are remembered; the image may be of another row (see changes: in the mapping).
        keys = {
            name: no_keys
            if needs_memory(one.compiled.plan)
            else compile_image_keys(mapping, one.compiled.plan)
            for name, one in self.entities.items()
        }
        options = RelayOptions(lease_s=self.context.job.tuning.lease_s)
        return Relay(
            *(self.live.marks, self.context.source, self.refresh(check), self.open_findings),
            *(captured, keys, options),
        )


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """A check that is made of two."""

    def check() -> None:
        one()
        other()

    return check


def own_revision(context: JobContext) -> Revision:
    """What the job's mapping and the columns that it reads are now; entities that are not direct alone."""
    mapping = context.checked.mapping.revision
    return Revision(columns_digest(mapping, _plans(context)), mapping)


def revisions_of(context: JobContext, journal: SqlJournal) -> SqlRevisions:
    return SqlRevisions(journal.database, context.job.name, own_revision(context))


def heartbeats_of(writers: SqlWriters, revisions: Revisions, job: Job, target: Target) -> WriterHeartbeats:
    return WriterHeartbeats(
        writers, revisions, lifetimes_of(job), running_s, lambda: target.store.sent.unanswered
    )


def running_s() -> float:
    """A clock that also runs while the machine sleeps, which time.monotonic does on Windows alone."""
    clock = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def clock_of(now_s: Callable[[], float]) -> Callable[[], float]:
    """A clock that goes on from what `now_s` says now, whatever this machine's own clock says or is set to."""
    then, before = now_s(), running_s()
    return lambda: then + running_s() - before


def now_s() -> float:
    return time.time()


def refuse_old(context: JobContext, journal: SqlJournal) -> None:
    """Asked before capture is: to an old mapping new triggers seem stale, and an install would be the wrong advice.

    Raises: OldRevisionError.
    """
    if revisions_of(context, journal).standing() == "old":
        raise OldRevisionError(OLD)


def lifetimes_of(job: Job) -> Lifetimes:
    return Lifetimes(job.tuning.request_life_s, job.tuning.silent_s)


@contextmanager
def open_concurrent_edges(
    context: JobContext, target: Target, journal: SqlJournal, table_id: str, stop: Callable[[], bool]
) -> Iterator[ConcurrentEdges]:
    """Everything that a writer beside others needs, its heartbeats running."""
    writers = SqlWriters(journal.database, table_id)
    memory = SqlMemory(journal.database, table_id)
    patience = job_wiring.backoff_of(context.job)
    with (
        open_live(context.job, "live", stop=stop, patience=patience, source=context.source) as live,
        heartbeats_of(writers, revisions_of(context, journal), context.job, target) as heartbeats,
    ):
        # Before every single request: a retry may come long after its batch began.
        yield ConcurrentEdges(context, live, target.fenced(heartbeats.check), journal, memory, heartbeats)


def open_findings_of(job: Job, journal: SqlJournal) -> SqlOpenFindings:
    """What the job's relays found and still holds, of the table that the last of them wrote to."""
    tables = [run.identity.table_id for run in journal.runs(job.name) if run.identity.kind == "relay"]
    return SqlOpenFindings(journal.database, job.name, tables[-1] if tables else "")


def registry_of(job: Job, journal: SqlJournal) -> ServiceRegistry:
    """The instances of the job's services, as its journal knows them."""
    instances = SqlInstances(journal.database, job.name)
    return ServiceRegistry(tuple(instances.known()), instances.now_s(), lifetimes_of(job).gone_s)


def known_tickets(job: Job) -> list[int]:
    """The highest tickets that the journal and the table know of."""
    design = job_wiring.sound_mapping(job.mapping).mapping.table
    target = job_wiring.open_target(job, design, lambda: False)
    state = target.admin.state(target.design)
    if state is None:
        return []
    with job_wiring.open_journal(job) as journal:
        highest = SqlMemory(journal.database, state.table_id).highest()
    return [highest, control_state(target.store).ticket]


def want_repair(job: Job) -> None:
    """Nobody writes the job's table before it was repaired. One that nobody wrote with tickets needs no repair."""
    design = job_wiring.sound_mapping(job.mapping).mapping.table
    target = job_wiring.open_target(job, design, lambda: False)
    state = target.admin.state(target.design)
    if state is None or not control_state(target.store).is_there:
        return
    with job_wiring.open_journal(job) as journal:
        SqlIdentity(journal.database, job.name).see(state.table_id, target.design.name, UNREPAIRED)


def existing_table(job: Job, target: Target) -> str:
    """The id of the job's table, which must be there and fit the mapping.

    Raises: TargetError when there is none, or another one.
    """
    state = target.admin.state(target.design)
    name = target.design.name
    if state is None:
        raise TargetError(f"there is no table {name}; run `migrator table create` with this job file")
    if state.differences:
        listed = "; ".join(state.differences)
        what = f"table {name} is not the mapping's: {listed}"
        raise TargetError(f"{what}. Mend one of the two, or name another table in the job")
    return state.table_id
