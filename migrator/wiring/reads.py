"""Opens the reads of a service: connections of callers and of shadows, phases, metrics, the instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from migrator.journal.evidence import SqlEvidence
from migrator.journal.phases import SqlPhases
from migrator.mapping.show.redaction import hidden_by_pattern
from migrator.model.errors import MigratorError, TargetError
from migrator.model.evidence import Window
from migrator.model.results import Hidden
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.job import Job
from migrator.settings.reads import ReadSettings
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.stages.live.daemon import RelayLag
from migrator.stages.live.instances import Role, reads_alone
from migrator.stages.patterns.question import AT_ONCE, Question
from migrator.stages.patterns.recheck import Sampler
from migrator.stages.reads.backends import Backends
from migrator.stages.reads.metrics import ReadMetrics
from migrator.stages.reads.phases import PhaseCache
from migrator.stages.reads.reads import MappedReads, Reads, question_named
from migrator.stages.reads.shadow import Shadow
from migrator.wiring import job as job_wiring
from migrator.wiring import live, ownership
from migrator.wiring.job import Requests
from migrator.wiring.service import Service

CALLERS_TIMEOUT_S = 20.0
_log = get_logger("reads")


@dataclass(frozen=True)
class Asking:
    """A service that reads."""

    service: Service

    @property
    def settings(self) -> ReadSettings:
        return self.service.context.job.reads

    @cached_property
    def questions(self) -> dict[str, Question]:
        checked = self.service.context.checked
        plans = [entity.plan for entity in checked.read]
        return {
            name: Question(checked.mapping, pattern, plans)
            for name, pattern in checked.mapping.patterns.items()
        }

    @cached_property
    def hidden(self) -> dict[str, Hidden]:
        """By pattern what is never shown."""
        checked = self.service.context.checked
        return hidden_by_pattern(checked.mapping, [entity.plan for entity in checked.read])


def question_of(asking: Asking, name: str) -> Question:
    """Raises: SettingsError for a pattern that the mapping has not."""
    return question_named(asking.questions, name)


@contextmanager
def open_reading(asking: Asking) -> Iterator[MappedReads]:
    """Raises: StoppedError, SettingsError where the journal cannot be asked; TargetError where an index of a pattern that
    is not off is not there: a service should not start then."""
    service, settings = asking.service, asking.settings
    job, revision = service.context.job, service.context.checked.mapping.revision
    heartbeat = service.heartbeat
    with ExitStack() as stack:
        edges = stack.enter_context(_edges(service, *_callers(job)))
        shadowed = stack.enter_context(_edges(service, *_shadows(job)))
        stack.enter_context(heartbeat.playing(Role("read", reads_alone)))

        def instance() -> str:
            return heartbeat.me.id

        phases = PhaseCache(SqlPhases(service.journal.database, job.name), instance, settings.phase_cache_s)
        stack.enter_context(phases)
        _refuse_missing(asking, phases)
        ownership.refuse_strange_start(job, service.journal)
        live.refuse_unknown(job, service.journal)
        blank = Window("", 0, "", heartbeat.me.service, revision, "service")
        evidence = SqlEvidence(service.journal.database, job.name)
        # By the journal's time: evidence of this host is judged beside moves that another host makes.
        clock = live.clock_of(evidence.now_s)
        ledger = stack.enter_context(
            ReadMetrics(evidence, blank, instance, clock=clock, versions=phases.versions)
        )
        patterns = service.context.checked.mapping.patterns

        def sampler(name: str) -> Sampler:
            return Sampler(patterns[name], asking.hidden[name], instance(), revision)

        lag = RelayLag(service.live.marks.state)
        shadow = stack.enter_context(Shadow(settings.shadow, ledger, sampler, lag_s=lag))
        reads = Reads(phases, shadow, ledger)
        yield MappedReads(reads, asking.questions, edges, shadowed, settings, revision)


def _callers(job: Job) -> tuple[ConnectionOptions, Requests]:
    settings = job.reads
    connection_options = ConnectionOptions(
        name=name_of(job.name, "read"),
        pool_size=settings.connections,
        lock_wait_s=settings.patience_s,
        pool_wait_s=settings.patience_s,
        statement_timeout_s=job.source.statement_timeout_s,
    )
    patience = Backoff(attempts=8, cap_s=1.0, limit_s=settings.patience_s)
    return connection_options, Requests(settings.connections * 2, CALLERS_TIMEOUT_S, patience)


def _shadows(job: Job) -> tuple[ConnectionOptions, Requests]:
    """As long as its deadline, each of them."""
    shadow = job.reads.shadow
    connection_options = ConnectionOptions(
        name=name_of(job.name, "shadow"),
        pool_size=shadow.at_once,
        lock_wait_s=shadow.deadline_s,
        pool_wait_s=shadow.deadline_s,
        statement_timeout_s=shadow.deadline_s,
    )
    # A throttled table is not helped by shadows that ask again and again.
    patience = Backoff(attempts=2, cap_s=0.2, limit_s=shadow.deadline_s)
    return connection_options, Requests(shadow.at_once * AT_ONCE, shadow.deadline_s, patience)


@contextmanager
def _edges(service: Service, connection_options: ConnectionOptions, requests: Requests) -> Iterator[Backends]:
    """Connections of their own: nobody who reads waits for one that a shadow holds."""
    source = service.context.source.beside(connection_options, Retry(requests.backoff))
    try:
        design = service.context.checked.mapping.table
        target = job_wiring.open_target(service.context.job, design, lambda: False, requests)
        yield Backends(source, target.store)
    finally:
        source.close()


def _refuse_missing(asking: Asking, phases: PhaseCache) -> None:
    """Raises: TargetError where a pattern that asks the table asks an index that is not there."""
    service = asking.service
    asked = {name: phases.state(name) for name in asking.questions if phases.state(name).phase != "off"}
    if not asked:
        return
    target = service.target
    try:
        state = target.admin.state(target.design)
    except MigratorError as error:
        # DynamoDB may be away, or the user not allowed to describe it: no reason not to answer from SQL.
        _log.warning("table_cannot_be_described", reason=str(error))
        return
    if state is None:
        raise TargetError(
            f"there is no table {target.design.name}, and {min(asked)} is in {asked[min(asked)]}"
        )
    for name, phase in asked.items():
        index = asking.questions[name].pattern.index
        if index is not None and f"index {index}" in state.parts:
            what = f"{name} is in {phase}, and table {target.design.name} has no index {index} like the mapping's"
            raise TargetError(f"{what}; see `migrator table check`, or move the pattern to off first")
