"""The edges of live change, put together: constructor calls, no decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from migrator.retry import Backoff, Retry
from migrator.settings import Job
from migrator.source.address import address_of
from migrator.source.capture.installation import SqlCapture
from migrator.source.capture.marks import SqlMarks
from migrator.source.capture.tickets import SqlTickets
from migrator.source.capture.writing import Writing
from migrator.source.manners import Manners, name_of
from migrator.wiring import keepers

DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)


@dataclass(frozen=True)
class Live:
    """Capture's edges in one source."""

    capture: SqlCapture
    marks: SqlMarks
    tickets: SqlTickets


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    lock_wait_s: float = DDL_LOCK_WAIT_S,
) -> Iterator[Live]:
    settings = job.source
    address = address_of(settings.url, settings.command, keepers(job.path.parent, job.target))
    manners = Manners(name_of(job.name, command), job.tuning.workers + 1, lock_wait_s)
    writing = Writing(address, manners, Retry(patience, stop))
    try:
        yield Live(SqlCapture(writing), SqlMarks(writing), SqlTickets(writing))
    finally:
        writing.close()


def known_tickets(job: Job) -> list[int]:
    """The highest tickets that the journal and the table know of. Neither keeps any yet."""
    return []
