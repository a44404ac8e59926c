"""Opens what moves of patterns are judged by, and what the way back from complete is made of."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from migrator.dynamodb.store import reads_only
from migrator.journal.writers import SqlWriters
from migrator.stages.core import ownership as owner
from migrator.stages.cutover.gather import EvidenceGatherer
from migrator.stages.cutover.rollback import WayBack
from migrator.stages.reverse.daemon import status_of
from migrator.stages.reverse.stage import waiting_no_more
from migrator.stages.session.reverse import ReverseEdges, remembered_of, shards_of
from migrator.stages.session.session import JobSession


def gatherer_of(session: JobSession) -> EvidenceGatherer:
    """What gathers the evidence of a job. Raises: where source or capture cannot be asked."""
    return EvidenceGatherer(
        job=session.job.name,
        limits=session.job.cutover,
        checked=session.checked,
        own=session.revision_at_work(),
        records=session,
        source=session.source,
        capture=session.capture,
        marks=session.live.exact_marks,
        activity=session.live.activity,
        table=session.target,
        writers=partial(SqlWriters, session.journal.database),
        gone_s=session.lifetimes.gone_s,
        purge=lambda _: session.purge(reads_only, dry_run=True),
        way_back=partial(_way_back, session),
        stop=session.stop.is_set,
    )


def keep_direct(session: JobSession, table_id: str) -> None:
    """Puts on record which entities the service writes itself from now on, and that it writes all others no more: their
    rows wait for nothing any more."""
    job, revision = session.job, session.checked.mapping.revision
    taken_back = session.on_record().direct - set(job.direct)
    owner.keep_direct(session.journal, job.name, table_id, revision, job.direct)
    tables = ReverseEdges(session, taken_back).tables
    remembered_of(session).withdraw(waiting_no_more(tables, job.direct))


def _way_back(session: JobSession, entities: Collection[str]) -> WayBack:
    hindrances = ReverseEdges(session, entities).hindrances()
    return WayBack(hindrances, status_of(shards_of(session), remembered_of(session)))
