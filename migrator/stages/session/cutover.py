"""Opens what moves of patterns are judged by, and what the way back from complete is made of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from migrator.dynamodb.conditional import ConditionalWrites
from migrator.dynamodb.store import reads_only
from migrator.journal.writers import SqlWriters
from migrator.stages.core.ownership import keep_direct
from migrator.stages.cutover.gather import EvidenceGatherer
from migrator.stages.cutover.rollback import WayBack
from migrator.stages.live.writers import Purge
from migrator.stages.reverse.daemon import status_of
from migrator.stages.reverse.stage import waiting_no_more
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import JobContext, Target
from migrator.stages.session.live import (
    ONCE,
    JobJournal,
    Live,
    capture_stage,
    exact_marks,
    lifetimes_of,
    open_live,
    revision_at_work,
)
from migrator.stages.session.reverse import ReverseEdges, checkpoints_of, remembered_of


@dataclass(frozen=True)
class EvidenceSources:
    """Everything that evidence is gathered from, open, and what gathers it."""

    job_journal: JobJournal
    context: JobContext
    live: Live
    target: Target
    gatherer: EvidenceGatherer

    def keep_direct(self) -> None:
        """Puts on record which entities the service writes itself from now on, and that it writes all others no more:
        their rows wait for nothing any more."""
        job, journal = self.job_journal.job, self.job_journal.journal
        taken_back = job_wiring.on_record(job, journal).direct - set(job.direct)
        revision = self.context.checked.mapping.revision
        keep_direct(journal, job.name, self.gatherer.table_id, revision, job.direct)
        tables = ReverseEdges(self.context, self.target, taken_back, self.gatherer.stop).tables
        remembered_of(job, journal, self.target.design.name).withdraw(waiting_no_more(tables, job.direct))


@contextmanager
def open_evidence(
    job_journal: JobJournal, command: str, stop: Callable[[], bool]
) -> Iterator[EvidenceSources]:
    job = job_journal.job
    with (
        job_wiring.open_job(job, command, stop=stop) as context,
        open_live(job, command, stop=stop, patience=ONCE, source=context.source) as live,
    ):
        target = job_wiring.open_target(job, context.checked.mapping.table, stop)
        gatherer = EvidenceGatherer(
            job=job.name,
            limits=job.cutover,
            checked=context.checked,
            own=revision_at_work(context, job_journal.journal),
            records=job_journal,
            source=context.source,
            capture=capture_stage(live, context),
            marks=exact_marks(live),
            activity=live.activity,
            table=target,
            writers=partial(SqlWriters, job_journal.journal.database),
            gone_s=lifetimes_of(job).gone_s,
            purge=lambda table_id: _counting(job_journal, target, table_id),
            way_back=partial(_way_back, job_journal, context, target, stop),
            stop=stop,
        )
        yield EvidenceSources(job_journal, context, live, target, gatherer)


def _way_back(
    job_journal: JobJournal,
    context: JobContext,
    target: Target,
    stop: Callable[[], bool],
    entities: Collection[str],
) -> WayBack:
    journal, table = job_journal.journal, target.design.name
    hindrances = ReverseEdges(context, target, entities, stop).hindrances()
    shards = checkpoints_of(context.job, journal, table)
    return WayBack(hindrances, status_of(shards, remembered_of(context.job, journal, table)))


def _counting(job_journal: JobJournal, target: Target, table_id: str) -> Purge:
    """A purge that takes nothing away."""
    writers = SqlWriters(job_journal.journal.database, table_id)
    lifetimes = lifetimes_of(job_journal.job)
    store = ConditionalWrites(target.store)
    return Purge(store, writers, target.design, lifetimes, reads_only, dry_run=True)
