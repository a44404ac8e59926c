"""`--engine spark`: what a backfill or a verify needs of a cluster before it begins, and its pages worked by it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Event

import click

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Run
from migrator.stages.process.budget import scope_of_run, shares_of, with_connections
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
from migrator.settings.job import Job
from migrator.stages.core.parallel import OpenPages
from migrator.stages.session.job import CommandJob


@dataclass(frozen=True)
class Engine:
    """What `--engine` and `--master` say."""

    name: str | None
    master: str | None

    def refuse_unfit(self, options: Mapping[str, bool]) -> None:
        """`options`: whether each was given that does not go with Spark. Raises: click.UsageError."""
        if self.name != "spark":
            if self.master is not None:
                raise click.UsageError("--master goes with --engine spark")
            return
        if named := [name for name, is_given in options.items() if is_given]:
            raise click.UsageError(f"--engine spark goes without {', '.join(named)}")


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

    def pages(self, given: Given) -> OpenPages:
        """`given`: without run and driver."""

        def opened(journal: SqlJournal, run: Run, who: str, stop: Event) -> SparkPages:
            self._runs.append(run)
            of_run = replace(given, run=run.id, who=who, connections=self.connections)
            return SparkPages(self.cluster, of_run, journal, run, stop.is_set)

        return opened

    def say_goodbye(self) -> None:
        """Before the cluster is closed, and after the job's lease was given back."""
        for run in self._runs:
            wait_for_goodbyes(shares_of(self.job, self.journal, scope_of_run(run)).at_work)


def open_spark(
    stack: ExitStack, command_job: CommandJob, job: Job, kind: str, engine: Engine, source_url: str = ""
) -> Spark | None:
    """None where this host works the pages. Raises: SettingsError where something is missing, before anything starts."""
    if engine.name != "spark":
        return None
    journal = command_job.journal()
    need_server_journal(job, journal)
    text = JobText.of(job)
    cluster = stack.enter_context(open_cluster(job, kind, engine.master))
    need_executors(cluster, text, source_url)
    spark = Spark(
        cluster, text, connections_of_slot(job, cluster.slots, is_bounded=cluster.is_bounded), journal, job
    )
    stack.callback(spark.say_goodbye)
    return spark
