"""Opens what live change and cutover need: capture, marks, tickets, and a writer beside others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Event

from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.control import ControlItem
from migrator.journal.identity import SqlIdentity
from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.phases import SqlEvidence, SqlPhases
from migrator.journal.run_starts import installation_of, look_before, unverified_run
from migrator.journal.runs import SqlJournal
from migrator.journal.traces import SqlTraces
from migrator.journal.writers import SqlInstances, SqlRevisions, SqlWriters, answers_of, digests_of, newest_of
from migrator.mapping.check.keys import groups_text
from migrator.mapping.difference.answers import answer_digests, items_digest
from migrator.mapping.items.changes import marked_columns
from migrator.mapping.items.reach import image_keys
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.capture import Capture, Installation, MarkedBy, Step
from migrator.mapping.model.instances import Answered, Lifetimes, Newest, Revision, Revisions, ServiceRegistry
from migrator.mapping.model.journal import Run
from migrator.mapping.model.live import (
    MARKS_COUNTED,
    Activity,
    ActivityCounts,
    Root,
    SlotLag,
    TriedMarks,
    TriedTickets,
)
from migrator.runtime.retry import Backoff, Retry, running_s
from migrator.settings.job import Job
from migrator.settings.source import DocumentSettings
from migrator.settings.transforms import sound_mapping
from migrator.source.capture.install import SqlCapture
from migrator.source.capture.log.opening import open_captured
from migrator.source.capture.marks import SqlMarks, SqlTickets
from migrator.source.dynamodb.opening import open_document_live
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import address_of
from migrator.source.engines.reflect import of_kind
from migrator.source.reader import SqlSource
from migrator.source.sql.transactions import Writing
from migrator.stages.core import ownership as owner
from migrator.stages.core.removal import Forget
from migrator.stages.live import capture
from migrator.stages.live.capture import CaptureStage, CaptureStatus
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions, live_entities
from migrator.stages.live.rounds import LiveEntity
from migrator.stages.live.whole import WholeTable
from migrator.stages.live.writers import WriterHeartbeats, both
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import JobContext, JobSource, Target, secret_providers

DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)
ONCE = Backoff(attempts=1)


@dataclass(frozen=True)
class Live:
    """Capture's edges in one source."""

    capture: Capture
    marks: TriedMarks
    tickets: TriedTickets
    activity: Activity

    @property
    def sql_capture(self) -> SqlCapture:
        """Raises: SettingsError where the source is no database."""
        return of_kind(self.capture, SqlCapture)

    @property
    def sql_marks(self) -> SqlMarks:
        """Raises: SettingsError where the source is no database."""
        return of_kind(self.marks, SqlMarks)


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    source: JobSource | None = None,
    answer_within_s: float | None = None,
) -> Iterator[Live]:
    """`source`: by whose connections capture is looked at; None: by one of its own. Nothing connects to write before
    something is written. `answer_within_s`: how long a statement may take, and a server say nothing past that; None: as
    the job says."""
    settings = job.source
    if settings.dynamodb is not None:
        with _open_old_live(job, settings.dynamodb, Retry(patience, stop), source) as live:
            yield live
        return
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    connection_options = ConnectionOptions(
        name=name_of(job.name, command),
        pool_size=settings.connections_apart(job.tuning.workers + 1),
        lock_wait_s=DDL_LOCK_WAIT_S,
        statement_timeout_s=settings.statement_timeout_s,
    )
    connection_options = connection_options.answering_within(answer_within_s)
    retry = Retry(patience, stop)
    writing = Writing(
        address,
        connection_options,
        retry,
        source.engine if isinstance(source, SqlSource) else None,
    )
    capture, marks, activity = open_captured(
        job.name, writing, address, connection_options.name, retry.wait, partial(_is_over, job)
    )
    with closing(marks):
        yield Live(capture, marks, SqlTickets(writing), activity)


def _is_over(job: Job) -> bool:
    """Whether the service writes the table itself, so that no relay needs to read the log."""
    with job_wiring.open_journal(job) as journal:
        return job_wiring.write_ownership(job, sound_mapping(job.mapping).mapping, journal).is_service()


@contextmanager
def _open_old_live(
    job: Job, tables: DocumentSettings, retry: Retry, source: JobSource | None
) -> Iterator[Live]:
    """Of old tables of DynamoDB's, which keep nothing of ours: the journal does."""
    with job_wiring.open_journal(job, retry.stop, retry.backoff) as journal, ExitStack() as stack:

        def is_over() -> bool:
            return job_wiring.write_ownership(job, sound_mapping(job.mapping).mapping, journal).is_service()

        opening = open_document_live(job, tables, journal.database, retry, source, is_over)
        opened = stack.enter_context(closing(opening))
        yield Live(opened.capture, opened.marks, opened.tickets, opened.activity)


def refuse_unknown(
    job: Job, journal: SqlJournal, *, begins: bool = False, unless: Callable[[], bool] = lambda: False
) -> None:
    """Raises: as the stage's does."""

    def installation() -> Installation | None:
        with open_live(job, "journal", patience=ONCE) as live:
            return live.capture.installation()

    knows_job = SqlIdentity(journal.database, job.name).knows_job
    owner.refuse_unknown(job.name, journal.name, knows_job, installation, begins=begins, unless=unless)


def installation_of_job(live: Live, context: JobContext) -> Installation | None:
    """The job's installation of capture, None where there is none. Raises: as need_installation does."""
    return capture_stage(live, context).installation_of_job(context.plans)


def need_installation(live: Live, context: JobContext, *, is_old: bool = False) -> Installation:
    """The job's installation of capture. `is_old`: the mapping is not the one that capture is for any more.

    Raises: SettingsError where there is none, where it is another job's, or where it does not capture all that the
    mapping reads.
    """
    return capture_stage(live, context).need_installation(context.plans, is_old=is_old)


def marked_by(live: Live) -> MarkedBy:
    """What an install that is not told otherwise lets leave the marks: the log where it is captured, else triggers."""
    installation = live.capture.installation()
    return "log" if installation is not None and installation.marked_by == "log" else "triggers"


def exact_marks(live: Live) -> TriedMarks:
    """The marks, counted with all changes that were committed before: for evidence."""
    return live.marks.exact() if isinstance(live.marks, SqlMarks) else live.marks


def slot_lag(live: Live) -> SlotLag | None:
    """How far the slot of the source's log is behind; None where the log is not captured."""
    return live.marks.lag() if isinstance(live.marks, SqlMarks) else None


def slot_lag_of(context: JobContext) -> SlotLag | None:
    """The same of the job's source."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        return slot_lag(live)


def capture_stage(live: Live, context: JobContext) -> CaptureStage:
    return CaptureStage(live.capture, context.job.name, context.checked.mapping.table)


def unverified(journal: SqlJournal, job: Job, installation: Installation | None) -> str:
    """What the table may miss, and what to do; '' for nothing."""
    return capture.unverified(installation, partial(unverified_run, journal.database, job.name))


def capture_status(context: JobContext) -> CaptureStatus:
    """What is captured in the job's source, and whether triggers or services leave its marks."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        return capture_stage(live, context).status(context.plans)


def waiting_rows(context: JobContext) -> int:
    """The number of rows that the first MARKS_COUNTED pending marks name: a backlog costs its rows, not its changes."""
    with open_live(context.job, "status", patience=ONCE, source=context.source) as live:
        keys = {one.name: one.table.primary_key for one in live.capture.captured(context.plans)}
        marks = live.marks.look(-1, MARKS_COUNTED)
        images = ((mark, mark.after or mark.before or {}) for mark in marks)
        named = ([image.get(name) for name in keys.get(mark.table) or image] for mark, image in images)
        return len({repr((mark.root, mark.table, key)) for mark, key in zip(marks, named, strict=True)})


def capture_refusals(context: JobContext) -> list[str]:
    """Why capture cannot be installed in the job's source by its user."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        return capture_stage(live, context).refusals(context.plans)


def capture_steps(context: JobContext) -> list[Step]:
    """What an install of capture would do in the job's source now."""
    with open_live(context.job, "plan", patience=ONCE, source=context.source) as live:
        return replace(capture_stage(live, context), marked_by=marked_by(live)).steps(context.plans)


def try_marks(context: JobContext) -> None:
    """Raises: SourceError where this user may not do with marks what a relay does."""
    with open_live(context.job, "doctor", patience=ONCE, source=context.source) as live:
        live.marks.probe()


@dataclass(frozen=True)
class ConcurrentEdges:
    """The edges of a writer of items beside others."""

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
        checked = self.context.checked
        return live_entities(checked.mapping, checked.entities, self.context.source)

    @cached_property
    def store(self) -> ConditionalWrites:
        return ConditionalWrites(self.target.store)

    @cached_property
    def control(self) -> ControlItem:
        return job_wiring.control_of(self.context.job, self.target, self.journal)

    @cached_property
    def open_findings(self) -> SqlOpenFindings:
        return SqlOpenFindings(self.journal.database, self.context.job.name, self.memory.table_id)

    def under(self, check: Callable[[], None]) -> ConcurrentEdges:
        """The same, every request of which asks `check` as well as the heartbeat."""
        return replace(self, target=self.target.fenced(both(self.heartbeats.check, check)))

    def guard(self) -> None:
        """Raises: SettingsError where source, journal and table do not belong together any more (rule 8)."""
        job, tickets, table_id = self.context.job, self.live.tickets, self.memory.table_id
        owner.refuse_other_table(self.target.table_id(), table_id, self.target.design.name)
        job_wiring.keeping_of(job, self.target, self.journal, table_id, tickets, self.control).guard()

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
        plans = [edge.compiled.plan for edge in self.entities.values()]
        captured = {table.name: table for table in self.live.capture.captured(plans)}
        mapping = self.context.checked.mapping
        keys = {name: image_keys(mapping, edge.compiled.plan) for name, edge in self.entities.items()}
        options = RelayOptions(lease_s=self.context.job.tuning.lease_s)
        return Relay(
            *(self.live.marks, self.context.source, self.refresh(check), self.open_findings),
            *(captured, keys, options),
            whole_table=self._whole_table,
        )

    @property
    def _whole_table(self) -> WholeTable:
        plans = {name: edge.compiled.plan for name, edge in self.entities.items()}
        return WholeTable(plans, self.context.source, self.target.design, self.target.pages)

    def entities_by_table(self) -> dict[str, str]:
        """By captured table the entities whose items follow from its rows, with commas between: a metric's label."""
        captured = self.live.capture.captured([edge.compiled.plan for edge in self.entities.values()])
        return {
            table.name: ",".join(sorted({lookup.entity for lookup in table.lookups})) for table in captured
        }


def own_revision(context: JobContext) -> Revision:
    """What the job's mapping and the columns that it reads are now; entities that are not direct alone.

    What is written together is part of it: a relay that knows nothing of a group would write its items one by one.
    """
    checked = context.checked
    answers = answer_digests(checked.mapping, checked.read_plans)
    # With the columns as they are: another type of one gives other items, though the mapping means the same.
    meant = items_digest(checked.mapping, checked.read_plans) + groups_text(checked.mapping)
    meaning = columns_digest(meant, context.plans)
    revision = checked.mapping.revision
    marked, text = marked_columns(context.plans), checked.mapping.text
    return Revision(_writing_digest(context), revision, meaning, answers, marked, text)


def revision_at_work(context: JobContext, journal: SqlJournal) -> Revision:
    """The same as the journal names it, where the newest one is written in other words."""
    own = Revision(_writing_digest(context), context.checked.mapping.revision)
    return own.named_by(newest_of(journal.database, context.job.name), partial(own_revision, context))


def _writing_digest(context: JobContext) -> str:
    mapping = context.checked.mapping
    return columns_digest(mapping.revision + groups_text(mapping), context.plans)


def revisions_of(context: JobContext, journal: SqlJournal) -> SqlRevisions:
    return SqlRevisions(journal.database, context.job.name, own_revision(context))


def unmarked_by(own: Revision, journal: SqlJournal, job: Job) -> Sequence[str] | None:
    """What marks by the job's newest mapping are made of and marks by `own` are not; None where that is not known."""
    return own.unmarked(newest_of(journal.database, job.name))


def heartbeats_of(writers: SqlWriters, revisions: Revisions, job: Job, target: Target) -> WriterHeartbeats:
    return WriterHeartbeats(
        writers, revisions, lifetimes_of(job), running_s, lambda: target.store.sent.unanswered
    )


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


def changes_counted(live: Live, context: JobContext) -> ActivityCounts:
    """What the source counts of changes in the tables that entities read."""
    return live.activity.look([table.name for table in live.capture.captured(context.plans)])


def open_findings_of(job: Job, journal: SqlJournal) -> SqlOpenFindings:
    """What the job's relays found and still holds."""
    return SqlOpenFindings.of_relays(journal.database, job.name, journal.runs(job.name))


def registry_of(job: Job, journal: SqlJournal) -> ServiceRegistry:
    """The instances of the job's services, as its journal knows them."""
    instances = SqlInstances(journal.database, job.name)
    return ServiceRegistry(tuple(instances.known()), instances.now_s(), lifetimes_of(job).gone_s)


def forgetting(
    context: JobContext,
    target: Target,
    journal: SqlJournal,
    table_id: str,
    roots: Sequence[Root],
    *,
    check: Callable[[], None],
    live: Live | None,
    stop: Event,
) -> Forget:
    """The stage that forgets a row. `live`: capture's edges where it is installed; None where no change leaves a mark."""
    tuning, writers = context.job.tuning, SqlWriters(journal.database, table_id)
    entities = {entity.name: entity for entity in context.checked.entities}
    marks, captured = (None, ()) if live is None else (live.marks, live.capture.captured(context.plans))
    return Forget(
        roots=roots,
        entity=entities[roots[0][0]],
        source=context.source.at_primary(),
        store=target.store,
        tombstone_store=ConditionalWrites(target.store),
        design=target.design,
        traces=SqlTraces(journal.database, context.job.name, table_id),
        writers=writers,
        now_s=writers.now_s,
        highest=SqlMemory(journal.database, table_id).highest,
        lifetimes=lifetimes_of(context.job),
        wait=target.store.retry.wait,
        check=check,
        marks=marks,
        captured={table.name: table for table in captured},
        segments=tuning.scan_segments,
        workers=tuning.workers,
        stop=stop,
    )


@dataclass(frozen=True)
class JobJournal:
    """What operators of a job need of its journal. `gone`: ids of silent instances that count no more."""

    job: Job
    journal: SqlJournal
    phases: SqlPhases
    evidence: SqlEvidence
    instances: SqlInstances
    gone: Collection[str] = ()

    def service_registry(self) -> ServiceRegistry:
        return registry_of(self.job, self.journal).without(self.gone)

    def newest(self) -> Newest | None:
        return newest_of(self.journal.database, self.job.name)

    def answers(self) -> Mapping[str, Answered]:
        return answers_of(self.journal.database, self.job.name)

    def digests(self) -> Mapping[str, str]:
        return digests_of(self.journal.database, self.job.name)

    def installation_of(self, run: Run) -> str | None:
        return installation_of(self.journal.database, run.id)

    def look_before(self, run: Run) -> ActivityCounts | None:
        return look_before(self.journal.database, run.id)


def job_journal_of(job: Job, journal: SqlJournal) -> JobJournal:
    database, name = journal.database, job.name
    return JobJournal(
        job, journal, SqlPhases(database, name), SqlEvidence(database, name), SqlInstances(database, name)
    )
