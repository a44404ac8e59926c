"""A service's parts: the adapter with its marks, strict mode and flush, and its reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from migrator.dynamodb.client import TIMEOUT_S
from migrator.mapping.difference.difference import answer_digests
from migrator.mapping.language.redaction import hidden_by_pattern
from migrator.mapping.model.edges import AT_ONCE, Control, ObjectStore, RootFinder
from migrator.mapping.model.evidence import Window
from migrator.mapping.model.live import (
    ConditionalStore,
    Installation,
    Memory,
    Tickets,
    WriterKind,
)
from migrator.mapping.model.results import Hidden
from migrator.mapping.patterns.answers import Designs
from migrator.runtime.retry import Backoff, Retry, clock_of, refuse_late, running_s
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.source.adapter.driver import AsyncBridge, off_loop
from migrator.source.adapter.events import Adapter, Rules, WatchedSessions
from migrator.source.adapter.marks import UnknownRows
from migrator.source.dynamodb.marks import StreamMarks
from migrator.source.dynamodb.source import DocumentSource
from migrator.source.dynamodb.writing import Clients, OldDocuments
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.stages.live.capture import still_fits
from migrator.stages.live.daemon import RelayLag
from migrator.stages.live.instances import Heartbeat, ServiceRole, this_process
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import (
    LONGEST_S,
    WRITER_KINDS,
    BeforeCommit,
    Flush,
    Mode,
    Rest,
    Strict,
    begin_when_alone,
    refuse_marks_alone,
    refuse_new_revision,
    refuse_partial_marks,
    refuse_strict,
)
from migrator.stages.live.writers import SharedLeases
from migrator.stages.patterns.question import Question
from migrator.stages.patterns.replay import Sampler
from migrator.stages.reads.backends import Backends
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.reads import MappedReads, PhaseCache, Reads, refuse_missing, refuse_other_table
from migrator.stages.reads.shadow import Shadow
from migrator.stages.session.job import RequestLimits, backoff_of, open_target, read_job
from migrator.stages.session.session import ConcurrentEdges, JobSession

JOURNAL_PATIENCE = Backoff(attempts=8, cap_s=0.5, limit_s=2.0)
"""A commit of the service may wait for the journal; its threads, which come again by themselves, must not wait for long."""


class Service(Struct, frozen=True, dict=True):
    session: JobSession
    heartbeat: Heartbeat

    @cached_property
    def questions(self) -> dict[str, Question]:
        checked = self.session.checked
        designs = Designs(checked.read_plans)
        return {
            name: Question(checked.mapping, pattern, designs)
            for name, pattern in checked.mapping.patterns.items()
        }

    @cached_property
    def hidden(self) -> dict[str, Hidden]:
        checked = self.session.checked
        return hidden_by_pattern(checked.mapping, checked.read_plans)


@contextmanager
def open_service(path: Path, name: str = "", version: str = "") -> Iterator[Service]:
    """Everything that an adapter needs, from a job file. Sends no request to DynamoDB yet.

    `name`, `version`: of the service; by default the job's name.
    Raises: the errors of a faulty job, mapping, source or journal.
    """
    job = read_job(path)
    opened = JobSession(
        *(job, "service"),
        patience=JOURNAL_PATIENCE,
        live_patience=None,
        own_live=True,
        # As long as a flush may take: a request under way is not cut short.
        requests=RequestLimits(max(job.tuning.workers, AT_ONCE) + 2, LONGEST_S, backoff_of(job)),
    )
    with opened as session:
        # In this order, before any thread asks for one.
        _ = session.checked, session.journal, session.live, session.target
        me = this_process(name or job.name, version, revision=session.checked.mapping.revision)
        beat_s, silent_s = session.lifetimes.beat_s, session.lifetimes.silent_s
        heartbeat = Heartbeat(
            session.instances, me, beat_s=beat_s, silent_s=silent_s, clock=running_s, aside=off_loop
        )
        yield Service(session, heartbeat)


class WritingOptions(Struct, frozen=True):
    """How a service writes its changes. `sessions`: maximum at once; None if unknown."""

    mode: Mode = "outbox"
    unknown_rows: UnknownRows = "refuse"
    flush: bool = False
    longest_transaction_s: float = 30.0
    longest_write_s: float = 2.0
    sessions: int | None = None

    @property
    def writes(self) -> bool:
        return self.flush or self.mode == "strict"


_COMPLETE = "start the service without dual_write, writing to the table"


@contextmanager
def open_dual_writing(service: Service, options: WritingOptions) -> Iterator[tuple[Adapter, WatchedSessions]]:
    """Raises: SettingsError if capture, source or settings do not fit; StoppedError, TargetError, SourceError."""
    session = service.session
    installation = _begun(session)
    role = marking_role(session, installation, options.mode)
    with ExitStack() as stack:
        before_commit, flush = stack.enter_context(
            _open_writer(session, options) if options.writes else nullcontext((None, None))
        )
        captured = list(session.live.capture.captured(session.plans))
        rules = Rules(
            capture=installation,
            tables=frozenset(table.name for table in captured),
            unknown_rows=options.unknown_rows,
            check=partial(service.heartbeat.check, role),
            before_commit=before_commit,
            clock=running_s,
            writes=options.writes,
        )
        adapter = Adapter(session.live.sql_marks.writing, captured, rules)
        sessions = WatchedSessions(adapter.listening, flush)
        stack.callback(sessions.detach)
        stack.enter_context(service.heartbeat.playing(role))
        yield adapter, sessions


def _begun(session: JobSession) -> Installation:
    session.refuse_unknown()
    _need_rows(session)
    standing = session.revisions.standing()
    refuse_new_revision(standing)
    # To a mapping of before the triggers of the newest one seem stale: whether they are whole its relay looks.
    return session.need_installation(is_old=standing == "old")


def marking_role(session: JobSession, begun_with: Installation, mode: Mode) -> ServiceRole:
    """Role of a process that writes to the old side.

    Checks that capture is as in `begun_with`, that rows are still the truth, and, if the process leaves the
    marks, that the newest mapping needs no others.
    """
    is_sql = session.job.source.dynamodb is None
    capture = session.live.sql_capture.at_once() if is_sql else session.live.capture
    own = session.own_revision()

    def look() -> None:
        installation = still_fits(capture, begun_with)
        _need_rows(session)
        if is_sql and installation.marked_by == "services":
            refuse_partial_marks(own.unmarked(session.newest()))

    return ServiceRole("dual_write", look, mode, begun_with.id)


def _need_rows(session: JobSession) -> None:
    session.ownership.need_rows(_COMPLETE)


# ── items written by the service itself ──


@contextmanager
def _open_writer(
    session: JobSession, options: WritingOptions
) -> Iterator[tuple[BeforeCommit | None, Flush | None]]:
    job = session.job
    refuse_strict(
        options.mode,
        is_file=session.is_file,
        max_connections=job.source.max_connections,
        sessions=options.sessions or 1,
    )
    kind = WRITER_KINDS[options.mode]
    with _open_shared_leases(session, kind, job.with_sessions(options.sessions)) as (edges, shared_leases):
        left = Rest()
        is_strict = options.mode == "strict"
        before_commit = _before_commit(edges, shared_leases, options, left) if is_strict else None
        flush = Flush(edges.live.sql_marks.shown, partial(_relay, edges), shared_leases, left)
        yield before_commit, flush if options.flush else None


@contextmanager
def _open_shared_leases(
    session: JobSession, kind: WriterKind, job: Job | None = None
) -> Iterator[tuple[ConcurrentEdges, SharedLeases]]:
    with session.open_concurrent(job) as opened:
        # Before every single request: one that is sent again may come long after the transaction's time.
        edges = opened.under(refuse_late)
        edges.live.tickets.highest()
        edges.guard()
        beats = edges.heartbeats
        begin_when_alone(beats.writers, beats.revisions, beats.lifetimes, time.sleep)
        with closing(SharedLeases(edges.heartbeats, kind, running_s, edges.guard)) as shared_leases:
            yield edges, shared_leases


@contextmanager
def open_document_writing(service: Service, clients: Any, options: WritingOptions) -> Iterator[None]:
    """Make items right after the clients' writes to old DynamoDB tables, with marks in their streams.

    Raises: SettingsError if no client is given or capture does not fit; StoppedError, TargetError.
    """
    session = service.session
    refuse_marks_alone(options.mode, flush=options.flush)
    installation = _begun(session)
    role = marking_role(session, installation, options.mode)
    images = cast("StreamMarks", session.live.marks).images
    with ExitStack() as stack:
        opened = stack.enter_context(_open_shared_leases(session, WRITER_KINDS["outbox"]))
        edges, shared_leases = opened
        documents = OldDocuments(images, cast("DocumentSource", session.source).finder)
        flush = Flush(documents.shown, partial(_relay, edges), shared_leases, Rest())
        check = partial(service.heartbeat.check, role)
        listening = Clients(documents, check, flush.by(options.mode), options.mode == "strict")
        stack.callback(listening.detach)
        stack.enter_context(service.heartbeat.playing(role))
        listening.attach(clients)
        yield


def _before_commit(
    edges: ConcurrentEdges, shared_leases: SharedLeases, options: WritingOptions, left: Rest
) -> BeforeCommit:
    strict = Strict(
        pre_mark=AsyncBridge(edges.live.sql_marks).pre_mark,
        relay_of=partial(_relay_inside, edges),
        lifetimes=edges.heartbeats.lifetimes,
        clock=running_s,
        check=edges.heartbeats.check,
        longest_s=options.longest_transaction_s,
    )
    inside = edges.session.sql.inside
    return BeforeCommit(strict, shared_leases, inside, off_loop, left, options.longest_write_s)


def _relay(edges: ConcurrentEdges) -> Relay:
    return edges.relay(edges.heartbeats.check)


def _relay_inside(edges: ConcurrentEdges, rows: RootFinder, check: Callable[[], None]) -> Relay:
    """A relay that reads inside the service's transaction, and never waits on its event loop."""
    relay = off_loop(partial(edges.relay, check))
    refresh, objects = relay.refresh, relay.refresh.objects
    inside = replace(
        refresh,
        rows=rows,
        store=cast("ConditionalStore", AsyncBridge(refresh.store)),
        tickets=cast("Tickets", AsyncBridge(refresh.tickets)),
        memory=cast("Memory", AsyncBridge(refresh.memory)),
        control=cast("Control", AsyncBridge(refresh.control)),
        objects=None if objects is None else cast("ObjectStore", AsyncBridge(objects)),
    )
    return replace(relay, finder=rows, refresh=inside)


# ── Reads: connections of callers and of shadows, phases, metrics, the instance ──


@contextmanager
def open_reading(service: Service) -> Iterator[MappedReads]:
    """Raises: StoppedError, SettingsError if the journal is unreachable; TargetError if an active pattern's
    index is missing: a service should not start then."""
    session, heartbeat = service.session, service.heartbeat
    settings, mapping = session.job.reads, session.checked.mapping
    revision = mapping.revision
    with ExitStack() as stack:
        edges, shadowed = map(stack.enter_context, (_callers(session), _shadows(session)))

        def instance() -> str:
            return heartbeat.me.id

        phases = PhaseCache(session.phases, instance, settings.phase_cache_s)
        target = session.target_with_short_wait
        name, state = target.design.name, partial(target.admin.state, target.design)

        tables = partial(session.identity.tables_named, name)
        role = ServiceRole("read", lambda: refuse_other_table(name, state, tables, phases.known().values()))
        stack.enter_context(heartbeat.playing(role))
        stack.enter_context(phases)
        indexes = {pattern: question.pattern.index for pattern, question in service.questions.items()}
        states = {pattern: phases.state(pattern) for pattern in indexes}
        refuse_missing(states, indexes, name, state)
        session.refuse_strange_start()
        session.refuse_unknown()
        role.look()
        blank = Window("", 0, "", heartbeat.me.service, revision, "service")
        evidence, patterns = session.evidence, mapping.patterns
        # By the journal's time: evidence of this host is compared with moves from other hosts.
        clock = clock_of(evidence.now_s)
        answers = answer_digests(mapping, ())
        opened = ReadMetrics(evidence, blank, answers, instance, clock=clock, versions=phases.versions)
        metrics = stack.enter_context(opened)

        def sampler(pattern: str) -> Sampler:
            return Sampler(patterns[pattern], service.hidden[pattern], instance(), revision)

        lag = RelayLag(session.live.marks.state)
        shadow = stack.enter_context(Shadow(settings.shadow, metrics, sampler, lag_s=lag))
        reads = Reads(phases, shadow, metrics, role.refuse)
        yield MappedReads(reads, service.questions, edges, shadowed, settings, revision)


def _callers(session: JobSession) -> AbstractContextManager[Backends]:
    reads, timeout_s = session.job.reads, session.job.source.statement_timeout_s
    patience = Backoff(attempts=8, cap_s=1.0, limit_s=reads.patience_s)
    requests = RequestLimits(reads.connections * 2, min(TIMEOUT_S, reads.patience_s), patience)
    return _edges(session, "read", reads.connections, requests, timeout_s)


def _shadows(session: JobSession) -> AbstractContextManager[Backends]:
    shadow, limit_s = session.job.reads.shadow, session.job.reads.shadow.deadline_s
    # A throttled table is not helped by shadows that ask again and again.
    patience = Backoff(attempts=2, cap_s=0.2, limit_s=limit_s)
    requests = RequestLimits(shadow.at_once * AT_ONCE, limit_s, patience)
    return _edges(session, "shadow", shadow.at_once, requests, limit_s)


@contextmanager
def _edges(
    session: JobSession, name: str, at_once: int, requests: RequestLimits, statement_timeout_s: float | None
) -> Iterator[Backends]:
    """With own connections: no read waits for a shadow's."""
    patience_s = requests.backoff.limit_s
    options = ConnectionOptions(
        name=name_of(session.job.name, name),
        pool_size=at_once,
        lock_wait_s=patience_s,
        pool_wait_s=patience_s,
        statement_timeout_s=statement_timeout_s,
    )
    with closing(session.source.with_own_connections(options, Retry(requests.backoff))) as source:
        design, sent = session.checked.mapping.table, session.target.store.sent
        yield Backends(source, open_target(session.job, design, requests=requests, sent=sent).store)
