"""`--engine`: what a backfill or a verify needs of a cluster that works its pages; a feature opens one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal, Protocol

import click

from migrator.cli.extensions import ENGINES
from migrator.mapping.model.results import Sample
from migrator.settings.job import Job
from migrator.stages.core.parallel import OpenPages
from migrator.stages.session.session import JobSession


@dataclass(frozen=True, kw_only=True)
class RunWork:
    """What a process of a run is given of it: text and numbers, since what is compiled of them cannot be pickled."""

    kind: Literal["backfill", "verify"]
    entities: tuple[str, ...] = ()
    limit: int | None = None
    max_write_units: int | None = None
    force: bool = False
    scope: str = ""
    sample: Sample | None = None
    source_url: str = ""


class PageEngine(Protocol):
    """An open cluster whose executors can work on the job."""

    def driver_job(self, job: Job) -> Job:
        """The job with this process's own part of its connections."""

    def pages(self, work: RunWork) -> OpenPages:
        """The run's pages, worked by the cluster."""


@dataclass(frozen=True)
class Engine:
    """What `--engine` and `--master` say."""

    name: str | None
    master: str | None

    def refuse_unfit(self, options: Mapping[str, bool]) -> None:
        """`options`: whether each was given that does not go with an engine. Raises: click.UsageError."""
        if self.name is None:
            if self.master is not None:
                raise click.UsageError("--master goes with --engine spark")
            return
        if named := [name for name, is_given in options.items() if is_given]:
            raise click.UsageError(f"--engine {self.name} goes without {', '.join(named)}")

    def open(
        self, stack: ExitStack, session: JobSession, job: Job, kind: str, source_url: str = ""
    ) -> PageEngine | None:
        """None where this host works the pages. Raises: SettingsError where something is missing, before anything starts."""
        if self.name is None:
            return None
        opened: PageEngine = ENGINES[self.name](stack, session, job, kind, self.master, source_url)
        return opened
