"""A process that joins a run which another one has begun, on any host: all that its page work needs, from job and run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from msgspec import Struct

from migrator.cli.options import say, stop_on_signals, stopped_says
from migrator.cli.runs_text import Unshown
from migrator.cli.watched import Watched, signs_of
from migrator.commands.processes import end_with_parent
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.instances import Share
from migrator.mapping.model.journal import Progress, Run, RunIdentity
from migrator.mapping.model.results import Sample
from migrator.runtime.errors import StoppedError
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import Job
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.core.pace import NoLimit, Pace
from migrator.stages.core.parallel import PageCall
from migrator.stages.core.presence import Presence
from migrator.stages.process.session import (
    chosen,
    identity_of,
    is_over,
    joined_run,
    left_to_join,
    need_bucket,
    need_done,
    run_edges,
    scope_of,
    scope_of_run,
    with_connections,
)
from migrator.stages.process.write_path import Tell, choose_path
from migrator.stages.session.session import Held, JobSession
from migrator.stages.verify.scan import direct_items
from migrator.stages.verify.stage import Confirm, Verify, VerifyOptions


class Joining(Struct, frozen=True):
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


class Joined(Struct, frozen=True):
    """A process at work on a run of another one's, until its block ends. `call`: what is done with pages of one name."""

    session: JobSession
    lease: Held
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
        self.stage.join(
            self.run, self.entities, partial(is_over, self.session.journal, self.lease, self.identity)
        )
        need_done(self.session.journal, self.identity)

    def need_at_work(self) -> None:
        """Raises: StoppedError where the run is over, or the process that began it is gone."""
        if is_over(self.session.journal, self.lease, self.identity):
            raise StoppedError(f"run {self.run.id} is over")


def join(
    session: JobSession,
    joining: Joining,
    opened: Callable[[JobSession, Joining, Tell], AbstractContextManager[Joined]],
    *,
    has_parent: bool,
) -> int:
    """Works on pages of a run that another process has begun, on this host or another one, until it is over."""
    with stop_on_signals(session.stop) as stop:
        if has_parent:
            end_with_parent(stop)
        with (
            opened(session, joining, say) as joined,
            stopped_says(lambda: "stopped; the run goes on without this process"),
        ):
            joined.until_over()
    say(f"run {joined.run.id} is done")
    return 0


@contextmanager
def open_joined_backfill(session: JobSession, joining: Joining, tell: Tell) -> Iterator[Joined]:
    """Raises: SettingsError where nothing is to be joined, or it is another run than `joining` says."""
    with ExitStack() as stack:
        lease, session, connections = _entered(stack, "backfill", session, joining)
        entities = chosen(session.checked.entities, joining.entities)
        need_bucket(session.job, entities)
        edges, ownership = run_edges(session, lease.check), session.ownership
        (ownership.need_direct if joining.force else ownership.need_rows)()
        choice = choose_path(stack, session, edges, tell, force=joining.force)
        scope = scope_of(entities, joining.limit, named=bool(joining.entities))
        identity = identity_of(
            "backfill", session, session.table_id, entities, scope, installation=choice.installation
        )
        run, tuning = joined_run(session.journal, identity), session.job.tuning
        options = BackfillOptions(joining.workers, tuning.page_rows, joining.limit)
        path = choice.path(session, edges)
        stage = Backfill(
            *(choice.source(session), session.journal, path, Unshown(), options, session.stop),
            who=joining.who,
        )
        own = Share(joining.who, scope_of_run(run), connections=connections)
        watched = Watched("backfill", session, signs_of(tuning), joining.address, own)
        left = _left(session, entities, run) if joining.is_counted else 1
        stage = watched.open_backfill(stack, stage, left)
        by_name = {entity.name: entity for entity in entities}
        call = partial(_backfilled, stage, run, by_name)
        yield Joined(session, lease, identity, run, joining.who, entities, stage, call)


@contextmanager
def open_joined_verify(session: JobSession, joining: Joining, tell: Tell) -> Iterator[Joined]:
    """Raises: SettingsError where nothing is to be joined, or it is another run than `joining` says."""
    with ExitStack() as stack:
        lease, session, connections = _entered(stack, "verify", session, joining)
        entities, tuning = session.checked.entities, session.job.tuning
        need_bucket(session.job, entities)
        identity = identity_of("verify", session, session.table_id, entities, joining.scope)
        run = joined_run(session.journal, identity)
        options = VerifyOptions(joining.workers, tuning.page_rows, tuning.scan_segments, joining.sample)
        stage = replace(stage_of(session, lease, STILL, options, Unshown()), who=joining.who)
        stage = sharing(stack, stage, session, run, connections)
        call = partial(stage.work, run, entities)
        yield Joined(session, lease, identity, run, joining.who, entities, stage, call)


class RecheckEdges(Struct, frozen=True):
    """What a verify knows of rows that change meanwhile: how differences are confirmed, and whether anything changed."""

    confirm: Confirm | None
    is_quiet: Callable[[], bool]


STILL = RecheckEdges(None, lambda: True)
"""Of a source whose changes leave no marks: it is taken to stand still."""


def stage_of(
    session: JobSession, lease: Held, recheck: RecheckEdges, options: VerifyOptions, shown: Progress
) -> Verify:
    return Verify(
        *(session.source, session.target.store, session.journal, shown),
        check=lease.check,
        confirm=recheck.confirm,
        is_quiet=recheck.is_quiet,
        direct=direct_items(session.checked, session.job.leave),
        options=options,
        stop=session.stop,
        objects=session.target.objects,
    )


def sharing(stack: ExitStack, stage: Verify, session: JobSession, run: Run, connections: int) -> Verify:
    """The stage with its part of the run's budgets: its pages begin when others have made room."""
    pace = Pace(NoLimit())
    own = Share(stage.who, scope_of_run(run), connections=connections)
    stack.enter_context(Presence(session.processes, None, own, [session.source.pace], pace))
    rest = partial(nap, stop=stage.stop.is_set, sleep=time.sleep)
    return replace(stage, is_shared=True, begin=lambda: pace.wait(rest))


def _entered(
    stack: ExitStack, command: str, session: JobSession, joining: Joining
) -> tuple[Held, JobSession, int]:
    """The driver's lease, the job over its source, and how many connections that takes; 0: as many as it wants."""
    job, connections = joining.job, joining.connections
    lease = stack.enter_context(session.joined_lease())
    if connections is None:
        latest = session.journal.runs(job.name)[-1]
        connections = left_to_join(job, session.processes, scope_of_run(latest))
    limited = with_connections(job, connections)
    opened = session.another(command, job=limited, workers=joining.workers)
    return lease, stack.enter_context(opened), connections


def _left(session: JobSession, entities: Sequence[CompiledEntity], run: Run) -> int:
    """Rows that are not written yet."""
    return max(
        1,
        sum(session.source.rows_about(entity.plan) for entity in entities) - session.journal.tally(run).rows,
    )


def _backfilled(stage: Backfill, run: Run, entities: dict[str, CompiledEntity], name: str) -> PageCall:
    return stage.work(run, entities[name])
