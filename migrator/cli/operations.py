"""Opens what a process at work has beside its work: its pace, its presence in the journal, and what it is measured by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from migrator.cli.metrics import ProcessMetrics, journal_part, phases_part, reads_part, table_part
from migrator.journal.lease import RunLease
from migrator.journal.operations import SqlProcesses
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.instances import Advance, ProcessKind
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.job import Tuning
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.sql.server_facts import SourceHealth, source_health
from migrator.stages.core.pace import Limited, Pace, Strain
from migrator.stages.core.presence import Presence, process_of
from migrator.stages.reads.reads import MappedReads
from migrator.stages.session.job import CommandJob, JobContext, JobSource
from migrator.stages.session.service import Service

_ONCE = Backoff(attempts=1)
_ANSWER_S = 5.0
"""A source that takes longer for one number counts as one that cannot be asked."""


@dataclass(frozen=True)
class AtWork:
    """A process at work: how fast it may go, and what it tells the journal."""

    pace: Pace
    presence: Presence


@contextmanager
def open_at_work(
    kind: ProcessKind,
    context: JobContext,
    journal: SqlJournal,
    limit: Limited,
    advance: Callable[[], Advance],
    also: Callable[[], None],
) -> Iterator[AtWork]:
    """`advance`: how far the process is; `also`: done with each heartbeat. Raises: as Pace and Presence do."""
    processes = SqlProcesses(journal.database, context.job.name)
    with (
        _strain_source(context) as source,
        Pace(limit, tuple(_strains(context.job.tuning, source))) as pace,
        Presence(processes, process_of(kind), pace, advance, also=also) as presence,
    ):
        yield AtWork(pace, presence)


@contextmanager
def _strain_source(context: JobContext) -> Iterator[JobSource]:
    """The source on a connection of its own, which none of the work's can keep waiting; made when it is first asked."""
    options = ConnectionOptions(
        name=name_of(context.job.name, "pace"),
        pool_size=1,
        lock_wait_s=_ANSWER_S,
        pool_wait_s=_ANSWER_S,
        statement_timeout_s=_ANSWER_S,
    )
    source = context.source.with_own_connections(options, Retry(_ONCE))
    try:
        yield source
    finally:
        source.close()


def _strains(tuning: Tuning, source: JobSource) -> Iterator[Strain]:
    asked = (
        ("load", "", tuning.max_source_load, tuning.source_load_query),
        ("replica lag", " s", tuning.max_replica_lag_s, tuning.replica_lag_query),
    )
    for name, unit, most, sql in asked:
        if most is not None:
            yield Strain(name, unit, most, partial(source.strain, name, sql))


def service_metrics(service: Service, reading: Callable[[], MappedReads | None]) -> ProcessMetrics:
    """`reading`: what the service reads by; None before its first read."""
    job, database = service.context.job, service.journal.database
    return ProcessMetrics(
        job.name,
        service.heartbeat.me.service,
        (
            table_part(service.target.store.sent),
            journal_part(database.answers),
            phases_part(lambda: next((read.reads.phases.known() for read in filter(None, [reading()])), {})),
            reads_part(lambda: next((read.reads.ledger.totals for read in filter(None, [reading()])), None)),
        ),
    )


def readiness_asks(
    context: JobContext, journal: SqlJournal, table: Callable[[], object]
) -> Mapping[str, Callable[[], object]]:
    """What asks each store whether it answers. `table`: asks DynamoDB."""
    return {
        "source": partial(health_of, context),
        "journal": SqlProcesses(journal.database, context.job.name).throttle,
        "table": table,
    }


def health_of(context: JobContext) -> SourceHealth:
    return source_health(context.sql.dialect, context.sql.query, context.sql.pooling())


def try_journal(command_job: CommandJob) -> str:
    """The journal's name, once the job's lease was taken and given back, and what is done with each of our tables tried."""
    journal = command_job.journal()
    with RunLease(journal, command_job.job.name):
        journal.probe()
        return journal.name
