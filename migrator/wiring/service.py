"""Opens the adapter of a service: its marks, strict mode, and flush."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlInstances
from migrator.model.capture import Installation
from migrator.model.edges import Control, ObjectStore
from migrator.model.errors import SettingsError
from migrator.model.instances import Instance
from migrator.model.live import Change, ChangeMarks, ConditionalStore, Memory, RootFinder, Tickets, WriterKind
from migrator.runtime.retry import Backoff, refuse_late
from migrator.settings.job import Job
from migrator.source.adapter.driver import AsyncBridge, off_loop
from migrator.source.adapter.events import Adapter, Rules
from migrator.source.adapter.marks import UnknownRows
from migrator.source.adapter.sessions import Sessions
from migrator.source.engines.table import engine_of
from migrator.stages.live.capture import still_fits
from migrator.stages.live.instances import Heartbeat, Role, this_process
from migrator.stages.live.relay import Relay
from migrator.stages.live.service import LONGEST_S, Flush, Strict
from migrator.stages.live.writers import SharedLeases, fence_off, outlive
from migrator.stages.patterns.question import AT_ONCE
from migrator.wiring import job as job_wiring
from migrator.wiring import live as live_wiring
from migrator.wiring import moves
from migrator.wiring.job import JobContext, Requests, Target
from migrator.wiring.live import ConcurrentEdges, Live

Mode = Literal["outbox", "strict"]
JOURNAL_PATIENCE = Backoff(attempts=8, cap_s=0.5, limit_s=2.0)
"""A commit of the service may wait for the journal; its threads, which come again by themselves, must not wait for long."""


@dataclass(frozen=True)
class Service:
    """The edges of whoever lives in a service."""

    context: JobContext
    live: Live
    target: Target
    journal: SqlJournal
    heartbeat: Heartbeat


@contextmanager
def open_service(
    path: Path, name: str = "", version: str = "", stop: Callable[[], bool] = lambda: False
) -> Iterator[Service]:
    """Everything that an adapter needs, from a job file. DynamoDB is not asked for anything yet.

    `name`, `version`: what the service calls itself; the job's name where it has none. Raises: what a wrong job, mapping,
    source or journal raises.
    """
    job = job_wiring.read_job(path)
    with (
        job_wiring.open_job(job, "service", stop=stop) as context,
        job_wiring.open_journal(job, stop, JOURNAL_PATIENCE) as journal,
        live_wiring.open_live(job, "service", stop=stop, patience=job_wiring.backoff_of(job)) as live,
    ):
        # As long as a flush may take: a request under way is not cut short.
        requests = Requests(max(job.tuning.workers, AT_ONCE) + 2, LONGEST_S, job_wiring.backoff_of(job))
        target = job_wiring.open_target(job, context.checked.mapping.table, stop, requests)
        me = this_process(name or job.name, version, revision=context.checked.mapping.revision)
        yield Service(context, live, target, journal, _heartbeat(job, journal, me))


def _heartbeat(job: Job, journal: SqlJournal, me: Instance) -> Heartbeat:
    lifetimes = live_wiring.lifetimes_of(job)
    return Heartbeat(
        SqlInstances(journal.database, job.name),
        me,
        beat_s=lifetimes.beat_s,
        silent_s=lifetimes.silent_s,
        clock=live_wiring.running_s,
        aside=off_loop,
    )


@dataclass(frozen=True)
class Asked:
    """How a service wants its changes written. `sessions`: how many it may have at once; None where nobody can say."""

    mode: Mode = "outbox"
    unknown_rows: UnknownRows = "refuse"
    flush: bool = False
    longest_transaction_s: float = 30.0
    sessions: int | None = None


@dataclass(frozen=True)
class DualWriting:
    """A service's dual writes, under way."""

    adapter: Adapter
    sessions: Sessions


_COMPLETE = "start the service without dual_write, writing to the table"


@contextmanager
def open_dual_writing(service: Service, asked: Asked) -> Iterator[DualWriting]:
    """Raises: SettingsError where capture, the source or its settings do not fit; StoppedError, TargetError, SourceError."""
    live_wiring.refuse_unknown(service.context.job, service.journal)
    _need_rows(service)
    _refuse_revision(service)
    installation = live_wiring.need_installation(service.live, service.context)
    writes = asked.mode == "strict" or asked.flush
    role = marking_role(service, installation, asked.mode, writes=writes)
    with ExitStack() as stack:
        writer = stack.enter_context(_open_writer(service, asked)) if writes else None
        strict = writer.strict if writer is not None and asked.mode == "strict" else None
        rules = _rules(service, installation, asked, partial(service.heartbeat.check, role), strict)
        adapter = Adapter(service.live.marks.writing, _captured(service), rules)
        flush = writer.flush if writer is not None and asked.flush else None
        sessions = Sessions(adapter.listening, flush)
        stack.callback(sessions.detach)
        stack.enter_context(service.heartbeat.playing(role))
        yield DualWriting(adapter, sessions)


def marking_role(
    service: Service, known: Installation, mode: Mode = "outbox", *, writes: bool = False
) -> Role:
    """Who writes to SQL: looks whether the source is still captured as `known` says, and rows are still the truth;
    `writes`: whether it makes items, too."""
    looks: list[Callable[[], object]] = [partial(still_fits, service.live.capture.at_once(), known)]
    looks.append(partial(_need_rows, service))
    if writes:
        looks.append(partial(_refuse_revision, service))
    return Role("dual_write", lambda: [look() for look in looks], mode, known.id)


def _need_rows(service: Service) -> None:
    """Raises: SettingsError where a write to SQL would reach nobody any more."""
    moves.need_rows(service.context.job, service.context.checked.mapping, service.journal, _COMPLETE)


def _captured(service: Service) -> list[Any]:
    plans = [entity.plan for entity in service.context.checked.entities]
    return list(service.live.capture.captured(plans))


def _rules(
    service: Service,
    installation: Installation,
    asked: Asked,
    check: Callable[[], None],
    strict: Callable[[Any, Sequence[Change], float], None] | None,
) -> Rules:
    by_triggers = installation.marked_by == "triggers"
    triggered = frozenset(one.name for one in _captured(service)) if by_triggers else frozenset()
    return Rules(
        installation=installation.id,
        triggered=triggered,
        unknown_rows=asked.unknown_rows,
        check=check,
        before_commit=strict,
        clock=live_wiring.running_s,
        # Where triggers mark all, only who writes items needs to know what changed.
        reads=not by_triggers or asked.mode == "strict" or asked.flush,
        keeps_images=asked.mode == "strict" or asked.flush,
        writes=asked.mode == "strict" or asked.flush,
    )


def _refuse_revision(service: Service) -> None:
    """Raises: SettingsError where relays work by another mapping, or read other columns, than this service."""
    if live_wiring.revisions_of(service.context, service.journal).standing() in ("new", "old"):
        what = "dual write: this service's mapping (or a column that it reads) is not the one that the relay works by"
        raise SettingsError(
            f"{what}; give both the same job and mapping file, and start the relay anew before the services"
        )


# ── items written by the service itself ──


@dataclass(frozen=True)
class _Writer:
    """`strict`: before a commit; `flush`: after it."""

    beside: ConcurrentEdges
    shared_leases: SharedLeases
    asked: Asked
    flush: Flush = field(init=False)

    def __post_init__(self) -> None:
        live, beside = self.beside.live, self.beside
        flush = Flush(live.marks, lambda: beside.relay(beside.heartbeats.check), self.shared_leases)
        object.__setattr__(self, "flush", flush)

    def strict(self, connection: Any, changes: Sequence[Change], begun_at: float) -> None:
        level = connection.get_isolation_level()
        if level != "READ COMMITTED":
            what = f"dual write: strict mode reads what others committed, and this transaction is {level}"
            raise SettingsError(f'{what}; write create_engine(…, isolation_level="READ COMMITTED")')
        turn = off_loop(self.shared_leases.enter)
        try:
            with self.beside.context.source.inside(connection) as rows:
                self._stage().write_first(changes, rows, begun_at)
        except BaseException as error:
            off_loop(partial(self.shared_leases.fail, turn, error))
            raise
        off_loop(partial(self.shared_leases.leave, turn))

    def _stage(self) -> Strict:
        return Strict(
            marks=cast("ChangeMarks", AsyncBridge(self.beside.live.marks)),
            relay_of=self._relay,
            lifetimes=self.beside.lifetimes,
            clock=live_wiring.running_s,
            check=self.beside.heartbeats.check,
            longest_s=self.asked.longest_transaction_s,
        )

    def _relay(self, rows: RootFinder, check: Callable[[], None]) -> Relay:
        """A relay that reads inside of the service's transaction, and waits for nothing on its event loop."""
        relay = off_loop(partial(self.beside.relay, check))
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


@contextmanager
def _open_writer(service: Service, asked: Asked) -> Iterator[_Writer]:
    _refuse_strict(service, asked)
    table_id = live_wiring.existing_table(service.context.job, service.target)
    context = _with_connections(service.context, asked.sessions)
    with live_wiring.open_concurrent_edges(
        context, service.target, service.journal, table_id, lambda: False
    ) as opened:
        # Before every single request: one that is sent again may come long after the transaction's time.
        beside = opened.under(refuse_late)
        beside.live.tickets.highest()
        beside.guard()
        writers, lifetimes = beside.heartbeats.writers, beside.lifetimes
        fence_off(writers, lifetimes, time.sleep)
        outlive(writers, beside.heartbeats.revisions, lifetimes, time.sleep)
        kind: WriterKind = "strict" if asked.mode == "strict" else "relay"
        shared_leases = SharedLeases(beside.heartbeats, kind, live_wiring.running_s, beside.guard)
        with nullcontext(_Writer(beside, shared_leases, asked)) as writer:
            try:
                yield writer
            finally:
                shared_leases.close()


def _with_connections(context: JobContext, sessions: int | None) -> JobContext:
    """With a connection for marks and tickets for each session that may commit at the same time.

    Whether the source lets there be so many was looked at before (_refuse_strict).
    """
    if sessions is None:
        return context
    tuning = replace(context.job.tuning, workers=max(sessions, context.job.tuning.workers))
    unlimited = replace(context.job.source, max_connections=None)
    return replace(context, job=replace(context.job, tuning=tuning, source=unlimited))


def _refuse_strict(service: Service, asked: Asked) -> None:
    if asked.mode != "strict":
        return
    if engine_of(service.context.source.dialect).is_file:
        what = "strict mode is not for SQLite: it has one writer, and a pre-mark cannot commit beside an open transaction"
        raise SettingsError(f"dual write: {what}; use outbox mode")
    limit, sessions = service.context.job.source.max_connections, asked.sessions or 1
    if limit is not None and limit <= sessions:
        more = f"strict mode needs one more connection for each of up to {sessions} session(s) at once"
        what = f"{more} and one for itself, and source.max_connections is {limit}"
        raise SettingsError(f"dual write: {what}; raise it, or use outbox mode")
