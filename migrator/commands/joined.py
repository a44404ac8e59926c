"""A process that joins a run which another one has begun, on any host: all that its page work needs, from job and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

from migrator.cli.runs_text import Unshown
from migrator.cli.watched import Watched, signs_of
from migrator.journal.lease import JoinedLease
from migrator.journal.runs import SqlJournal
from migrator.journal.shares import SqlShares
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.instances import Share
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.results import Sample
from migrator.runtime.errors import StoppedError
from migrator.runtime.retry import nap
from migrator.settings.job import Job
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.core.pace import NoLimit, Pace
from migrator.stages.core.parallel import PageCall
from migrator.stages.core.shares import RunBudget
from migrator.stages.process.budget import left_to_join, scope_of_run, shares_of, with_connections
from migrator.stages.process.session import (
    chosen,
    identity_of,
    is_over,
    joined_run,
    joined_session,
    need_bucket,
    need_done,
    scope_of,
)
from migrator.stages.process.write_path import Tell, choose_path
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import JobContext, write_ownership
from migrator.stages.verify.scan import direct_items
from migrator.stages.verify.stage import Verify, VerifyOptions


@dataclass(frozen=True)
class Joining:
    """Which run a process joins, by what its command was given.

    `who`: as no other process calls itself. `connections`: to the source; None: those that the others have left. `entities`:
    none for all. `scope`: what a verify covers. `is_counted`: whether the rows that are left are counted, for `status`.
    """

    job: Job
    who: str
    connections: int | None
    workers: int
    entities: tuple[str, ...] = ()
    limit: int | None = None
    sample: Sample | None = None
    scope: str = ""
    force: bool = False
    is_counted: bool = True
    address: tuple[str, int] | None = None


@dataclass(frozen=True)
class Joined:
    """A process at work on a run of another one's, until its block ends. `call`: what is done with pages of one name."""

    journal: SqlJournal
    lease: JoinedLease
    identity: RunIdentity
    run: Run
    who: str
    entities: Sequence[CompiledEntity]
    stage: Backfill | Verify
    call: Callable[[str], PageCall]

    def work(self, name: str) -> PageCall:
        """Works on one page of an entity, or one segment, that `who` has claimed."""
        return self.call(name)

    def until_over(self) -> None:
        """Works on pages until the run is over. Raises: as the stage does; StoppedError where it did not come to its end."""
        self.stage.join(self.run, self.entities, partial(is_over, self.journal, self.lease, self.identity))
        need_done(self.journal, self.identity)

    def need_at_work(self) -> None:
        """Raises: StoppedError where the run is over, or the process that began it is gone."""
        if is_over(self.journal, self.lease, self.identity):
            raise StoppedError(f"run {self.run.id} is over")


@contextmanager
def open_joined_backfill(journal: SqlJournal, joining: Joining, stop: Event, tell: Tell) -> Iterator[Joined]:
    """Raises: SettingsError where nothing is to be joined, or it is another run than `joining` says."""
    with ExitStack() as stack:
        lease, context, connections = _entered(stack, "backfill", journal, joining, stop)
        job, mapping = context.job, context.checked.mapping
        entities = chosen(context.checked.entities, joining.entities)
        need_bucket(job, entities)
        session = joined_session(job, mapping.table, journal, lease, stop)
        ownership = write_ownership(job, mapping, journal)
        (ownership.need_direct if joining.force else ownership.need_rows)()
        choice = choose_path(stack, context, session, stop, tell, force=joining.force)
        scope = scope_of(entities, joining.limit, named=bool(joining.entities))
        identity = identity_of(
            "backfill", context, session.table_id, entities, scope, installation=choice.installation
        )
        run = joined_run(journal, identity)
        options = BackfillOptions(joining.workers, job.tuning.page_rows, joining.limit)
        edges = (choice.source(context), journal, choice.path(context, session), Unshown())
        stage = Backfill(*edges, options, stop, who=joining.who)
        assert session.target is not None
        watched = Watched(
            *("backfill", context, journal, session.target),
            *(signs_of(job.tuning), joining.address, scope_of_run(run)),
            Share(joining.who, connections=connections),
        )
        left = _left(context, entities, journal, run) if joining.is_counted else 1
        stage = watched.open_backfill(stack, stage, left)
        by_name = {entity.name: entity for entity in entities}
        call = partial(_backfilled, stage, run, by_name)
        yield Joined(journal, lease, identity, run, joining.who, entities, stage, call)


@contextmanager
def open_joined_verify(journal: SqlJournal, joining: Joining, stop: Event, tell: Tell) -> Iterator[Joined]:
    """Raises: SettingsError where nothing is to be joined, or it is another run than `joining` says."""
    with ExitStack() as stack:
        lease, context, connections = _entered(stack, "verify", journal, joining, stop)
        job, entities = context.job, context.checked.entities
        need_bucket(job, entities)
        target = job_wiring.open_target(job, context.checked.mapping.table, stop.is_set)
        identity = identity_of("verify", context, target.table_id(), entities, joining.scope)
        run = joined_run(journal, identity)
        tuning = job.tuning
        stage = Verify(
            *(context.source, target.store, journal, Unshown()),
            check=lease.check,
            confirm=None,
            is_quiet=lambda: True,
            direct=direct_items(context.checked, job.leave),
            options=VerifyOptions(joining.workers, tuning.page_rows, tuning.scan_segments, joining.sample),
            stop=stop,
            objects=target.objects,
            who=joining.who,
        )
        shares = shares_of(job, journal, scope_of_run(run))
        stage = sharing(stack, stage, context, shares, connections)
        yield Joined(
            journal, lease, identity, run, joining.who, entities, stage, partial(stage.work, run, entities)
        )


def sharing(
    stack: ExitStack, stage: Verify, context: JobContext, shares: SqlShares, connections: int
) -> Verify:
    """The stage with its part of the run's budgets: its pages begin when others have made room."""
    pace = Pace(NoLimit())
    own = Share(stage.who, connections=connections)
    stack.enter_context(RunBudget(shares, own, [context.source.pace], pace))
    rest = partial(nap, stop=stage.stop.is_set, sleep=time.sleep)
    return replace(stage, is_shared=True, begin=lambda: pace.wait(rest))


def _entered(
    stack: ExitStack, command: str, journal: SqlJournal, joining: Joining, stop: Event
) -> tuple[JoinedLease, JobContext, int]:
    """The driver's lease, the job over its source, and how many connections that takes; 0: as many as it wants."""
    job, connections = joining.job, joining.connections
    lease = stack.enter_context(JoinedLease(journal, job.name))
    if connections is None:
        latest = journal.runs(job.name)[-1]
        connections = left_to_join(job, shares_of(job, journal, scope_of_run(latest)))
    opened = job_wiring.open_job(
        with_connections(job, connections), command, workers=joining.workers, stop=stop.is_set
    )
    return lease, stack.enter_context(opened), connections


def _left(context: JobContext, entities: Sequence[CompiledEntity], journal: SqlJournal, run: Run) -> int:
    """Rows that are not written yet."""
    return max(
        1, sum(context.source.rows_about(entity.plan) for entity in entities) - journal.tally(run).rows
    )


def _backfilled(stage: Backfill, run: Run, entities: dict[str, CompiledEntity], name: str) -> PageCall:
    return stage.work(run, entities[name])
