"""Whoever looks at the marks tells the hooks of `lag_high`: the watch of cutover, and the relay itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from migrator.hooks import tell
from migrator.ports.live import MarksState
from migrator.settings import Job
from migrator.stages.watch import LagWatch


def lag_watch(job: Job, later: ThreadPoolExecutor, marks: Callable[[], MarksState]) -> LagWatch:
    """Its hooks run in `later`, so that one which takes its time holds up nobody."""
    return LagWatch(
        marks, job.cutover.lag_max_s, lambda state: later.submit(_tell, job, state), time.monotonic
    )


def _tell(job: Job, state: MarksState) -> None:
    tell(
        job.hooks,
        "lag_high",
        job.name,
        waiting=state.waiting,
        oldest_age_s=round(state.oldest_age_s, 1),
        failed=state.failed,
        limit_s=job.cutover.lag_max_s,
    )
