"""How many processes work on a run, and what each may take of the job's connections, write units and rows a second."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from migrator.journal.shares import SqlShares
from migrator.mapping.model.journal import Run
from migrator.runtime.errors import SettingsError
from migrator.settings.job import IN_SOURCE, Job
from migrator.stages.session.job import JOURNAL_CONNECTIONS

# ── How many processes, and what each of them may take of the job's limits ──

WORTH_ROWS = 200_000
"""A process takes some seconds of CPU to start, and some 150 MB; below that one is nearly as fast."""
MOST_UNASKED = 8
UNITS_OF_ONE = 2_000
"""Write units, or rows, a second that one process reaches anywhere: below its limit another one gains nothing."""


def processes_of(job: Job, asked: int | None, rows: int, limits: Sequence[float | None]) -> int:
    """How many processes work on so many rows: as many as were asked for, else what this machine has cores for, where that
    is worth it and takes no connection from any of them. `limits`: of all of them, in units or rows a second."""
    if asked is not None:
        return asked
    bounds = [max(1, math.floor(limit / UNITS_OF_ONE)) for limit in limits if limit is not None]
    if (connections := job.source.max_connections) is not None:
        bounds.append(max(1, connections // _wanted(job)))
    return 1 if rows < WORTH_ROWS else min(usable_cores(), MOST_UNASKED, *bounds)


def divided(job: Job, processes: int, *, writes: bool = True) -> Job:
    """The job as one of so many processes sees it. Raises: SettingsError where its limits do not allow for so many."""
    least = least_connections(job)
    limit = job.source.max_connections
    if limit is not None and limit < processes * least:
        what = f"{job.path}: source.max_connections is {limit}, and each process needs {least}"
        raise SettingsError(f"{what}: {max(1, limit // least)} at most; say --processes, or raise the limit")
    units = job.tuning.max_write_units
    if writes and units is not None and units < processes:
        raise SettingsError(
            f"{units} write unit(s) a second are too few for {processes} processes; take fewer"
        )
    return job if limit is None else with_connections(job, limit // processes)


def with_connections(job: Job, connections: int) -> Job:
    """The job with so many connections to its source; 0: as it is."""
    source = job.source.model_copy(update={"max_connections": connections})
    return replace(job, source=source) if connections else job


def left_to_join(job: Job, shares: SqlShares) -> int:
    """The connections of one that joins: what the others have left; 0 where there is no limit. Raises: SettingsError."""
    limit, least = job.source.max_connections, least_connections(job)
    if limit is None:
        return 0
    taken = shares.connections_taken()
    if limit - taken < least:
        what = f"{job.path}: of source.max_connections {limit} the run's processes have {taken}, and this one needs {least}"
        raise SettingsError(f"{what}; raise the limit, or begin the run with fewer --workers or --processes")
    return limit - taken


def taken_by(job: Job, workers: int) -> int:
    """The connections that one process takes of the job's limit; 0 where there is none."""
    limit = job.source.max_connections
    return 0 if limit is None else min(limit, _wanted(job, workers))


def least_connections(job: Job) -> int:
    """Reads, marks and tickets have one each; a journal in the source two."""
    return 4 if job.journal == IN_SOURCE else 2


def _wanted(job: Job, workers: int | None = None) -> int:
    return 2 * ((workers or job.tuning.workers) + 1) + (
        JOURNAL_CONNECTIONS if job.journal == IN_SOURCE else 0
    )


def usable_cores() -> int:
    """As many as this process may use, by its affinity and its container's quota. Source: cgroup v2, "cpu.max"."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


# ── A process's part of the run's budgets ──


def scope_of_run(run: Run) -> str:
    return f"run {run.id}"
