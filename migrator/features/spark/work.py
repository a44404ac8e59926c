"""`--engine spark`: what a backfill or a verify needs of a cluster before it begins, and its pages worked by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from threading import Event

from migrator.commands.processes import RunWork
from migrator.features.spark.cluster import (
    Cluster,
    connections_of_slot,
    need_executors,
    need_server_journal,
    open_cluster,
    wait_for_goodbyes,
)
from migrator.features.spark.executor import Given, JobText, Outcome
from migrator.mapping.model.journal import Run
from migrator.runtime import errors
from migrator.runtime.errors import Interrupted, MigratorError, StoppedError
from migrator.runtime.logs import get_logger
from migrator.settings.job import Job
from migrator.stages.core.parallel import OpenPages, PageCall, Worked
from migrator.stages.process.session import scope_of_run, with_connections
from migrator.stages.session.session import JobSession

# ── A run's pages worked by Spark: in rounds over what is open ──


TASK_PAGES = 20
"""At most in one task: as many are repeated by Spark, at most, when its process is killed."""
_TASKS_A_SLOT = 4
_TRIES = 3
_log = get_logger("spark")


@dataclass(frozen=True)
class SparkPages:
    """RunPages of a cluster. The process that holds it works no page itself.

    Tasks are handed numbers of pages, and claim them. What a task says of them is not believed: one that was killed, or
    given twice, or whose answer was lost, has done what the journal says, and the next round does the rest.
    """

    cluster: Cluster
    given: Given
    session: JobSession
    run: Run
    stop: Callable[[], bool]
    failures: Failures = field(default_factory=lambda: Failures())

    def __enter__(self) -> SparkPages:
        return self

    def __exit__(self, *ended: object) -> None:
        # What ended the work must not be hidden by a journal that is away; the claims run out by themselves.
        with suppress(MigratorError):
            self.session.journal.release_pages(self.run, self.given.who)

    def each(
        self, name: str, work: PageCall, at_once: int, ahead: int, rest: Callable[[], None]
    ) -> Iterator[Worked]:
        """Nothing, when all pages are done, or left open for good: what executors did is in the journal."""
        most = self.cluster.slots * _TASKS_A_SLOT * TASK_PAGES
        while numbers := self.session.journal.waiting_pages(self.run, name, most):
            if self.stop():
                raise Interrupted("stopped; the checkpoint is kept, and the same command goes on from there")
            self._round(name, numbers, TASK_PAGES if ahead > 1 else 1, rest)
        return iter(())

    def rounds(self, rest: Callable[[], None]) -> Iterator[None]:
        """None: `each` returns when all pages are done, whoever had them."""
        return iter(())

    def _round(self, name: str, numbers: Sequence[int], task_pages: int, rest: Callable[[], None]) -> None:
        done_before, _ = self.session.journal.page_counts(self.run, name)
        slices = list(slices_of(numbers, self.cluster.slots * _TASKS_A_SLOT, task_pages))
        outcomes: list[Outcome] = []
        try:
            outcomes = self.cluster.run(self.given, name, slices, self.stop, rest)
        except StoppedError as error:
            outcomes = [Outcome("", error=str(error), kind="StoppedError")]
        # Claims of processes that were killed: no task of this round is under way any more.
        self.session.journal.release_pages(self.run, self.given.who)
        done, _ = self.session.journal.page_counts(self.run, name)
        _log.debug("round_done", entity=name, tasks=len(slices), pages=done - done_before)
        self.failures.judge(outcomes, has_advanced=done > done_before)
        if done == done_before:
            rest()


def slices_of(numbers: Sequence[int], tasks: int, most: int) -> Iterator[tuple[int, int]]:
    """From which number to which, for each of so many tasks, or of more where one would have more than `most` pages."""
    size = max(1, min(most, len(numbers) // tasks))
    for start in range(0, len(numbers), size):
        part = numbers[start : start + size]
        yield part[0], part[-1]


@dataclass
class Failures:
    """What failed since a page was last done."""

    rounds: int = 0

    def judge(self, outcomes: Sequence[Outcome], *, has_advanced: bool) -> None:
        """Raises: what failed, where it would fail again, or has failed in three rounds in which no page was done."""
        failed = [outcome for outcome in outcomes if outcome.error]
        for outcome in failed:
            _log.warning("task_failed", host=outcome.host, reason=outcome.error)
        self.rounds = 0 if has_advanced or not failed else self.rounds + 1
        for outcome in failed:
            if outcome.is_final or self.rounds >= _TRIES:
                raise _raised(outcome)


def _raised(outcome: Outcome) -> MigratorError:
    """The executor's error. One whose class takes more than a text, which the executor has recorded, ends the run as
    another one with the same exit code."""
    known = getattr(errors, outcome.kind, StoppedError)
    text = f"executor on {outcome.host}: {outcome.error}" if outcome.host else outcome.error
    if issubclass(known, MigratorError) and known.__init__ is Exception.__init__:
        return known(text)
    return _SAME_EXIT.get(known.exit_code, StoppedError)(text)


_SAME_EXIT: dict[int, type[MigratorError]] = {
    kind.exit_code: kind for kind in (errors.SettingsError, errors.StoppedError, errors.RefusedError)
}


@dataclass
class Spark:
    """An open cluster whose executors can work on the job. `connections`: of each of its processes; 0: no limit."""

    cluster: Cluster
    text: JobText
    connections: int
    session: JobSession
    _runs: list[Run] = field(default_factory=list)

    def driver_job(self, job: Job) -> Job:
        """The job with the driver's own part of its connections."""
        return with_connections(job, self.connections)

    def pages(self, work: RunWork) -> OpenPages:
        given = Given(text=self.text, connections=self.connections, **vars(work))

        def opened(_: object, run: Run, who: str, stop: Event) -> SparkPages:
            self._runs.append(run)
            of_run = replace(given, run=run.id, who=who)
            return SparkPages(self.cluster, of_run, self.session, run, stop.is_set)

        return opened

    def say_goodbye(self) -> None:
        """Before the cluster is closed, and after the job's lease was given back."""
        for run in self._runs:
            wait_for_goodbyes(self.session.shares(scope_of_run(run)).at_work)


def open_spark(
    stack: ExitStack, session: JobSession, job: Job, kind: str, master: str | None, source_url: str
) -> Spark:
    """Raises: SettingsError if something is missing, before anything starts."""
    need_server_journal(job, session)
    text = JobText.of(job)
    cluster = stack.enter_context(open_cluster(job, kind, master))
    need_executors(cluster, text, source_url)
    spark = Spark(
        cluster, text, connections_of_slot(job, cluster.slots, is_bounded=cluster.is_bounded), session
    )
    stack.callback(spark.say_goodbye)
    return spark
