"""`JobSession`: a job's edges, opened at first use and closed as its block ends."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, cast

from msgspec import Struct

from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.control import ControlItem, control_state
from migrator.dynamodb.store import by_condition
from migrator.journal.identity import SqlIdentity
from migrator.journal.memory import SqlMemory, SqlOpenFindings
from migrator.journal.operations import JoinedLease, RunLease, SqlProcesses, is_doing, runs_as_they_stand
from migrator.journal.phases import SqlEvidence, SqlPhases
from migrator.journal.reverse import SqlUnkept
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlChanges, SqlInstances, SqlRevisions, SqlWriters, digests_of, newest_of
from migrator.mapping.check.check import Checked
from migrator.mapping.check.keys import groups_text
from migrator.mapping.difference.difference import answer_digests, items_digest
from migrator.mapping.items.changes import marked_columns
from migrator.mapping.items.items import image_keys
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.language.plan import columns_digest
from migrator.mapping.model.edges import ControlState, SourceHealth
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.instances import Lifetimes, Newest, Revision, Revisions, ServiceRegistry
from migrator.mapping.model.journal import Run
from migrator.mapping.model.live import MARKS_COUNTED, ActivityCounts, Installation, Tickets
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import TableDesign
from migrator.runtime.errors import MappingError, MigratorError
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import Backoff, Retry, running_s
from migrator.runtime.values import replace
from migrator.settings.job import Job, SourceSettings, TargetSettings, Tuning
from migrator.settings.transforms import checked_on, read_mapping, with_writes
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import engine_of, of_kind
from migrator.source.sql.server_facts import source_health
from migrator.stages.core import ownership as owner
from migrator.stages.core.ownership import (
    AnotherJobError,
    AnotherJournalError,
    Keeping,
    OlderError,
    OnRecord,
    UnaskedSourceError,
)
from migrator.stages.cutover.moves import WriteOwnership
from migrator.stages.live import capture
from migrator.stages.live.capture import CaptureStage, CaptureStatus
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions, WholeTable, live_entities
from migrator.stages.live.send import LiveEntity
from migrator.stages.live.writers import Purge, WriterHeartbeats, both
from migrator.stages.session import job as openings
from migrator.stages.session.job import (
    DDL_PATIENCE,
    ONCE,
    Live,
    RequestLimits,
    Target,
    backoff_of,
    design_for,
    lifetimes_of,
    open_live,
    open_target,
)
from migrator.stages.session.source import JobSource, SourceWork, open_source, secret_providers

if TYPE_CHECKING:
    from migrator.source.dynamodb.source import DocumentSource
    from migrator.source.reader import SqlSource

_log = get_logger("journal")
_ANSWER_S = 5.0
_SHORT_WAIT_S = 5.0
"""Timeout for reading the table's own journal, if the answer is not needed to continue."""


Held: TypeAlias = RunLease | JoinedLease
"""A lease that a run has."""


class SessionOptions(TypedDict, total=False):
    """Of JobSession, in `another`."""

    workers: int | None
    parsed: ParsedMapping | None
    live_patience: Backoff | None
    own_live: bool
    gone: Collection[str]


class JobSession:
    """A job's edges, opened at first use and closed as the block ends.

    Optional values that are None are the job's.

    `command`: shown to the source's administrator after the job's name.
    `workers`: readers of the source.
    `parsed`: another revision than the mapping's file.
    `patience`, `live_patience`: for the journal, for capture's part of the source.
    `own_live`: capture has its own connections.
    `gone`: ids of silent instances that do not count.
    `stop`: ends all waiting.
    `outer`: the session of the unchanged job, which shares its journal.
    """

    def __init__(
        self,
        job: Job | Path,
        command: str = "",
        *,
        workers: int | None = None,
        parsed: ParsedMapping | None = None,
        patience: Backoff | None = None,
        live_patience: Backoff | None = DDL_PATIENCE,
        own_live: bool = False,
        requests: RequestLimits | None = None,
        gone: Collection[str] = (),
        stop: Event | None = None,
        outer: JobSession | None = None,
    ) -> None:
        self.path = job if isinstance(job, Path) else job.path
        if isinstance(job, Job):
            self.job = job
        self.command, self.workers, self.patience = command, workers, patience
        self.live_patience, self.own_live = live_patience, own_live
        self.requests, self.gone = requests, gone
        self.stop = stop or Event()
        self._other_revision = parsed
        self._outer = outer
        self._open_until = ExitStack()

    def __enter__(self) -> JobSession:
        return self

    def __exit__(self, *ended: object) -> None:
        self._open_until.close()

    @contextmanager
    def another(
        self, command: str, *, job: Job | None = None, **options: Unpack[SessionOptions]
    ) -> Iterator[JobSession]:
        """A session of the job, or of a changed `job`, with this session's journal, but its own other edges.

        Raises: as checked_on.
        """
        with JobSession(job or self.job, command, stop=self.stop, outer=self, **options) as opened:
            _ = opened.checked
            yield opened

    # ── the job and its mapping ──

    @cached_property
    def job(self) -> Job:
        return openings.read_job(self.path)

    @cached_property
    def parsed(self) -> ParsedMapping:
        return self._other_revision or read_mapping(self.job.mapping)

    @property
    def mapping(self) -> MappingModel:
        if self.parsed.faults:
            raise MappingError(self.parsed.faults)
        return self.parsed.mapping

    @property
    def design(self) -> TableDesign:
        return design_for(self.job, self.mapping.table)

    @cached_property
    def checked(self) -> Checked:
        return with_writes(checked_on(self.source, self.parsed), self.job.direct, self.job.keep)

    @property
    def plans(self) -> list[EntityPlan]:
        return list(self.checked.plans)

    # ── the source ──

    @cached_property
    def source(self) -> JobSource:
        job = self.job
        providers = secret_providers(job.path.parent, job.target)
        name, workers = name_of(job.name, self.command), self.workers or job.tuning.workers
        retry = Retry(backoff_of(job), self.stop.is_set)
        work = SourceWork(name, workers, retry, providers, job.pools_apart)
        return self._open_until.enter_context(open_source(job.source, self.parsed, work))

    @property
    def sql(self) -> SqlSource:
        from migrator.source.reader import SqlSource  # only commands that read rows need it

        return of_kind(self.source, SqlSource)

    @property
    def documents(self) -> DocumentSource:
        return cast("DocumentSource", self.source)

    @cached_property
    def live(self) -> Live:
        """Capture's edges, on the source's connections unless own ones are set."""
        patience = self.live_patience or backoff_of(self.job)
        if self.own_live:
            opening = (self._outer or self).open_own_live(self.command, patience)
        else:
            opening = self.open_live(self.command, patience)
        return self._open_until.enter_context(opening)

    def open_live(self, command: str, patience: Backoff = DDL_PATIENCE) -> AbstractContextManager[Live]:
        return open_live(self.job, command, stop=self.stop.is_set, patience=patience, source=self.source)

    @contextmanager
    def strained(self) -> Iterator[JobSource]:
        """The source on its own connection, opened at first use, which the work cannot block."""
        options = ConnectionOptions(
            name=name_of(self.job.name, "pace"),
            pool_size=1,
            lock_wait_s=_ANSWER_S,
            pool_wait_s=_ANSWER_S,
            statement_timeout_s=_ANSWER_S,
        )
        with closing(self.source.with_own_connections(options, Retry(ONCE))) as source:
            yield source

    def health(self) -> SourceHealth:
        return source_health(self.sql.dialect, self.sql.query, self.sql.pooling())

    def open_own_live(self, command: str, patience: Backoff = DDL_PATIENCE) -> AbstractContextManager[Live]:
        """Capture's edges on their own connections, independent of row readers."""
        return open_live(self.job, command, stop=self.stop.is_set, patience=patience)

    # ── the table ──

    @cached_property
    def target(self) -> Target:
        return open_target(self.job, self.mapping.table, self.stop.is_set, self.requests)

    @cached_property
    def table_id(self) -> str:
        return self.target.table_id()

    @cached_property
    def target_with_short_wait(self) -> Target:
        """The table with short waits, for requests before and after the command's own work."""
        if self._outer is not None:
            return self._outer.target_with_short_wait
        backoff = Backoff(attempts=2, base_s=0.1, cap_s=0.2, limit_s=_SHORT_WAIT_S)
        limits = RequestLimits(2, _SHORT_WAIT_S, backoff)
        return open_target(self.job, self.mapping.table, requests=limits)

    # ── the journal ──

    @cached_property
    def journal(self) -> SqlJournal:
        if self._outer is not None:
            return self._outer.journal
        return self._open_until.enter_context(
            openings.open_journal(self.job, self.stop.is_set, self.patience)
        )

    def lease(self, doing: str = "") -> RunLease:
        """The job's lease. Raises: SettingsError in the block if another run of the job is active."""
        return RunLease(self.journal, self.job.name, doing=doing)

    def joined_lease(self) -> JoinedLease:
        return JoinedLease(self.journal, self.job.name)

    def is_doing(self, doing: str) -> bool:
        return is_doing(self.journal, self.job.name, doing)

    def try_journal(self) -> str:
        """The journal's name, after trying the lease and an operation on each of migrator's tables."""
        with self.lease():
            self.journal.probe()
            return self.journal.name

    @property
    def identity(self) -> SqlIdentity:
        return SqlIdentity(self.journal.database, self.job.name)

    @property
    def phases(self) -> SqlPhases:
        return SqlPhases(self.journal.database, self.job.name)

    @property
    def evidence(self) -> SqlEvidence:
        return SqlEvidence(self.journal.database, self.job.name)

    @property
    def instances(self) -> SqlInstances:
        return SqlInstances(self.journal.database, self.job.name)

    @property
    def processes(self) -> SqlProcesses:
        return SqlProcesses(self.journal.database, self.job.name, self.lifetimes.silent_s)

    @property
    def changes(self) -> SqlChanges:
        return SqlChanges(self.journal.database, self.job.name)

    @property
    def unkept(self) -> SqlUnkept:
        return SqlUnkept(self.journal.database, self.job.name)

    @property
    def memory(self) -> SqlMemory:
        return self.memory_of(self.table_id)

    @property
    def is_file(self) -> bool:
        return engine_of(self.sql.dialect).is_file

    def memory_of(self, table_id: str) -> SqlMemory:
        return SqlMemory(self.journal.database, table_id)

    @property
    def writers(self) -> SqlWriters:
        return self.writers_of(self.table_id)

    def writers_of(self, table_id: str) -> SqlWriters:
        return SqlWriters(self.journal.database, table_id)

    def writers_of_tables(self) -> list[SqlWriters]:
        """For each table that the job had a run on; sends no request."""
        tables = dict.fromkeys(run.identity.table_id for run in self.journal.runs(self.job.name))
        return [self.writers_of(table_id) for table_id in tables]

    @property
    def open_findings(self) -> SqlOpenFindings:
        return SqlOpenFindings.of_relays(
            self.journal.database, self.job.name, self.journal.runs(self.job.name)
        )

    @property
    def lifetimes(self) -> Lifetimes:
        return lifetimes_of(self.job)

    def on_record(self) -> OnRecord:
        return openings.on_record(self.job, self.journal)

    @property
    def ownership(self) -> WriteOwnership:
        return openings.write_ownership(self.job, self.mapping, self.journal)

    def service_registry(self) -> ServiceRegistry:
        known = self.instances.registry(self.lifetimes.gone_s)
        return known.without(self.gone) if self.gone else known

    def runs_as_they_stand(self, *, relays_work: bool = True) -> list[Run]:
        return runs_as_they_stand(self.journal, self.job.name, relays_work=relays_work)

    def newest(self) -> Newest | None:
        return newest_of(self.journal.database, self.job.name)

    def digests(self) -> Mapping[str, str]:
        return digests_of(self.journal.database, self.job.name)

    # ── revisions of the mapping ──

    def own_revision(self) -> Revision:
        """Revision of the mapping and of the columns it reads now, without direct entities.

        Contains groups written together: a relay that does not know a group would write its items one by one.
        """
        checked, plans = self.checked, self.plans
        answers = answer_digests(checked.mapping, checked.read_plans)
        # With the current columns: another type of one gives other items, though the mapping means the same.
        meant = items_digest(checked.mapping, checked.read_plans) + groups_text(checked.mapping)
        meaning, marked = columns_digest(meant, plans), marked_columns(plans)
        revision, text = checked.mapping.revision, checked.mapping.text
        return Revision(self._writing_digest(), revision, meaning, answers, marked, text)

    def revision_at_work(self) -> Revision:
        """This revision under the journal's name, if the newest one differs only in wording."""
        own = Revision(self._writing_digest(), self.checked.mapping.revision)
        return own.named_by(self.newest(), self.own_revision)

    def _writing_digest(self) -> str:
        mapping = self.checked.mapping
        return columns_digest(mapping.revision + groups_text(mapping), self.plans)

    @property
    def revisions(self) -> SqlRevisions:
        return SqlRevisions(self.journal.database, self.job.name, self.own_revision())

    # ── capture ──

    @property
    def capture(self) -> CaptureStage:
        return self.capture_by(self.live)

    def capture_by(self, live: Live) -> CaptureStage:
        return CaptureStage(live.capture, self.job.name, self.mapping.table)

    def installation(self) -> Installation | None:
        return self.capture.installation_of_job(self.plans)

    def need_installation(self, *, is_old: bool = False) -> Installation:
        """The job's installation of capture. `is_old`: capture is no longer for this mapping.

        Raises: SettingsError if not installed, another job's, or incomplete for the mapping.
        """
        return self.capture.need_installation(self.plans, is_old=is_old)

    def capture_status(self) -> CaptureStatus:
        """Capture's state in the source, read once."""
        with self.open_live("doctor", ONCE) as live:
            return self.capture_by(live).status(self.plans)

    def waiting_rows(self) -> int:
        """Number of rows that the first MARKS_COUNTED pending marks name: a backlog costs its rows, not its
        changes."""
        keys = {one.name: one.table.primary_key for one in self.live.capture.captured(self.plans)}
        marks = self.live.marks.look(-1, MARKS_COUNTED)
        images = ((mark, mark.after or mark.before or {}) for mark in marks)
        named = ([image.get(name) for name in keys.get(mark.table) or image] for mark, image in images)
        return len({repr((mark.root, mark.table, key)) for mark, key in zip(marks, named, strict=True)})

    def unverified(self, installation: Installation | None) -> str:
        return capture.unverified(installation, partial(self.journal.unverified_run, self.job.name))

    def changes_counted(self) -> ActivityCounts:
        return self.live.activity.look([table.name for table in self.live.capture.captured(self.plans)])

    # ── whether source, journal and table belong together ──

    @property
    def control(self) -> ControlItem:
        return self.control_of(self.target)

    def control_of(self, target: Target) -> ControlItem:
        """The table's control item. Its writers stop when the table gets another journal."""

        def changed(state: ControlState) -> None:
            owner.refuse_another(state, self.job.name, self.on_record(), target.design.name)

        return ControlItem(target.store, changed)

    def keeping(self, tickets: Tickets, control: ControlItem) -> Keeping:
        return Keeping(
            job=self.job.name,
            table=self.target.design.name,
            table_id=self.table_id,
            tickets=tickets,
            memory=self.memory,
            control=control,
            identity=self.identity,
            on_record=self.on_record,
            is_empty=lambda: not any(self.target.pages()),
        )

    def refuse_strange(self, target: Target, *, older: bool = True) -> None:
        self._refuse_strange(control_state(target.store), older=older)

    def refuse_strange_start(self) -> None:
        """Raises: as refuse_strange, before a service reads. An unreachable table does not prevent its start."""
        try:
            state = control_state(self.target_with_short_wait.store)
        except MigratorError as error:
            _log.warning("table_cannot_be_asked_for_its_journal", reason=str(error))
            return
        self._refuse_strange(state, older=True)

    def _refuse_strange(self, state: ControlState, *, older: bool) -> None:
        """Raises: AnotherJournalError (with `older` also OlderError) if the table has records this journal lacks;
        AnotherJobError if it keeps phases of the mapping's patterns for another job.
        """
        job, table = self.job.name, self.design.name
        if job in state.jobs:
            journal = self.on_record()
            owner.refuse_another(state, job, journal, table)
            if older:
                owner.refuse_older_journal(state, job, journal, table)
        elif not self.identity.knows_job():
            owner.refuse_phases_of_others(state, job, self.mapping.patterns, table)

    def refuse_unknown(self, *, begins: bool = False, unless: Callable[[], bool] = lambda: False) -> None:
        """Check that a journal without this job may be used for it. Reads the source by its own connection.

        `begins`: this may be the first command of another job on that source.
        `unless`: whether the journal may rightly not know its own job.
        Raises: AnotherJournalError if the source is captured for this job, AnotherJobError if for another one,
        UnaskedSourceError if the source is unreachable.
        """
        if self.identity.knows_job():
            return
        job, journal = self.job.name, self.journal.name
        try:
            with open_live(self.job, "journal", patience=ONCE) as live:
                installation = live.capture.installation()
        except MigratorError as error:
            what = f"journal {journal} knows nothing of job {job}, and the source cannot be asked"
            raise UnaskedSourceError(f"{what} whether it is captured for the job: {error}", error) from None
        if installation is None:
            return
        unknown = f"and journal {journal} knows nothing of"
        if installation.job != job and not begins:
            what = f"the source is captured for job {installation.job}, {unknown} job {job}"
            other = "if it is not, take that capture away with that job first"
            raise AnotherJobError(f"{what}; {owner.renamed_advice(installation.job)}; {other}")
        if installation.job == job and not unless():
            what = f"the source is captured for job {job}, {unknown} that"
            why = "another one has its phases, services and remembered keys"
            first = (
                "if there is none yet (the triggers are of a migration file), run `migrator capture install`"
            )
            raise AnotherJournalError(f"{what}: {why}; {owner.LOST_ADVICE}; {first}")

    def keep_on_record(self) -> None:
        """Copy the journal's lasting phases and direct entities to a table without them, if it is not of before."""
        target, job = self.target_with_short_wait, self.job.name
        control = self.control_of(target.fenced(by_condition))
        before = control.read_control().jobs.get(job)
        journal = self.on_record()
        if before is not None and journal.contradicts(before):
            return
        kept = journal.kept(before)
        if kept != before and (before or kept.phases or kept.direct):
            control.keep(target.table_id(), job, kept)

    # ── concurrent writers ──

    def heartbeats(self, revisions: Revisions) -> WriterHeartbeats:
        """A registration among the table's writers, for a block."""
        sent = self.target.store.sent
        return WriterHeartbeats(self.writers, revisions, self.lifetimes, running_s, lambda: sent.unanswered)

    @contextmanager
    def open_concurrent(self, job: Job | None = None) -> Iterator[ConcurrentEdges]:
        """A concurrent writer's edges, with running heartbeats. `job`: with other limits of connections."""
        opened = open_live(
            *(job or self.job, "live"),
            stop=self.stop.is_set,
            patience=backoff_of(self.job),
            source=self.source,
        )
        with opened as live, self.heartbeats(self.revisions) as heartbeats:
            # Before every single request: a retry may come long after its batch began.
            yield ConcurrentEdges(self, live, self.target.fenced(heartbeats.check), heartbeats)

    def purge(self, check: Callable[[], None], *, dry_run: bool, table_id: str = "") -> Purge:
        """Removes tombstones, each by its ticket, so that a late request deletes nothing else."""
        store = ConditionalWrites(self.target.store if dry_run else self.target.store.fenced(by_condition))
        writers = self.writers_of(table_id or self.table_id)
        return Purge(store, writers, self.target.design, self.lifetimes, check, dry_run=dry_run)


@contextmanager
def open_alone(
    name: str, url: str, mapping: Path, tuning: Tuning, stop: Event
) -> Iterator[JobSession | None]:
    from migrator.dynamodb import embedded  # no job's session needs it

    if not embedded.is_installed():
        yield None
        return
    with embedded.for_a_while() as endpoint:
        target = TargetSettings(table=f"{name}-{secrets.token_hex(4)}", endpoint=endpoint, region="us-east-1")
        source = SourceSettings.model_construct(url=url)
        with JobSession(Job(name, mapping, mapping, source, target, tuning), name, stop=stop) as session:
            yield session


class ConcurrentEdges(Struct, frozen=True, dict=True):
    """A concurrent writer's edges. `target`: checks its heartbeat before each request."""

    session: JobSession
    live: Live
    target: Target
    heartbeats: WriterHeartbeats

    @cached_property
    def entities(self) -> dict[str, LiveEntity]:
        checked = self.session.checked
        return live_entities(checked.mapping, checked.entities, self.session.source)

    @cached_property
    def store(self) -> ConditionalWrites:
        return ConditionalWrites(self.target.store)

    @cached_property
    def control(self) -> ControlItem:
        return self.session.control_of(self.target)

    @cached_property
    def open_findings(self) -> SqlOpenFindings:
        session = self.session
        return SqlOpenFindings(session.journal.database, session.job.name, session.table_id)

    def under(self, check: Callable[[], None]) -> ConcurrentEdges:
        return replace(self, target=self.target.fenced(both(self.heartbeats.check, check)))

    def guard(self) -> None:
        """Raises: SettingsError if source, journal and table no longer belong together (rule 8)."""
        if self.target.table_id() != self.session.table_id:
            name = self.target.design.name
            what = f"another table has the name {name} now: it was restored or re-created"
            new = "if it is new and empty, `migrator backfill` fills it"
            raise OlderError(f"{what}; {new}; else run this command again, which prints what to do")
        self.session.keeping(self.live.tickets, self.control).guard()

    def refresh(self, check: Callable[[], None]) -> Refresh:
        return Refresh(
            rows=self.session.source,
            store=self.store,
            tickets=self.live.tickets,
            memory=self.session.memory,
            control=self.control,
            entities=self.entities,
            table=self.target.design,
            revision=self.session.checked.mapping.revision,
            clock=self.heartbeats.now_s,
            check=check,
            objects=self.target.objects,
        )

    def relay(self, check: Callable[[], None]) -> Relay:
        plans = [edge.compiled.plan for edge in self.entities.values()]
        captured = {table.name: table for table in self.live.capture.captured(plans)}
        mapping, source = self.session.checked.mapping, self.session.source
        keys = {name: image_keys(mapping, edge.compiled.plan) for name, edge in self.entities.items()}
        options = RelayOptions(lease_s=self.session.job.tuning.lease_s)
        by_name = {name: edge.compiled.plan for name, edge in self.entities.items()}
        return Relay(
            *(self.live.marks, source, self.refresh(check), self.open_findings),
            *(captured, keys, options),
            whole_table=WholeTable(by_name, source, self.target.design, self.target.pages),
        )

    def entities_by_table(self) -> dict[str, str]:
        """By captured table, the entities with items from its rows, comma-separated, as a metric's label."""
        captured = self.live.capture.captured([edge.compiled.plan for edge in self.entities.values()])
        return {
            table.name: ",".join(sorted({lookup.entity for lookup in table.lookups})) for table in captured
        }
