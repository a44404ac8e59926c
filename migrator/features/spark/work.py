"""`--engine spark`: what a backfill or a verify needs of a cluster before it begins, and its pages worked by it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event

from migrator.commands.engines import RunWork
from migrator.features.spark.cluster import (
    Cluster,
    connections_of_slot,
    need_executors,
    need_server_journal,
    open_cluster,
    wait_for_goodbyes,
)
from migrator.features.spark.driver import SparkPages
from migrator.features.spark.executor import Given, JobText
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Run
from migrator.settings.job import Job
from migrator.stages.core.parallel import OpenPages
from migrator.stages.process.budget import scope_of_run, shares_of, with_connections
from migrator.stages.session.job import CommandJob


@dataclass
class Spark:
    """An open cluster whose executors can work on the job. `connections`: of each of its processes; 0: no limit."""

    cluster: Cluster
    text: JobText
    connections: int
    journal: SqlJournal
    job: Job
    _runs: list[Run] = field(default_factory=list)

    def driver_job(self, job: Job) -> Job:
        """The job with the driver's own part of its connections."""
        return with_connections(job, self.connections)

    def pages(self, work: RunWork) -> OpenPages:
        given = Given(text=self.text, connections=self.connections, **vars(work))

        def opened(journal: SqlJournal, run: Run, who: str, stop: Event) -> SparkPages:
            self._runs.append(run)
            of_run = replace(given, run=run.id, who=who)
            return SparkPages(self.cluster, of_run, journal, run, stop.is_set)

        return opened

    def say_goodbye(self) -> None:
        """Before the cluster is closed, and after the job's lease was given back."""
        for run in self._runs:
            wait_for_goodbyes(shares_of(self.job, self.journal, scope_of_run(run)).at_work)


def open_spark(
    stack: ExitStack, command_job: CommandJob, job: Job, kind: str, master: str | None, source_url: str
) -> Spark:
    """Raises: SettingsError if something is missing, before anything starts."""
    journal = command_job.journal()
    need_server_journal(job, journal)
    text = JobText.of(job)
    cluster = stack.enter_context(open_cluster(job, kind, master))
    need_executors(cluster, text, source_url)
    spark = Spark(
        cluster, text, connections_of_slot(job, cluster.slots, is_bounded=cluster.is_bounded), journal, job
    )
    stack.callback(spark.say_goodbye)
    return spark
