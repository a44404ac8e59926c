"""Opens what live change and cutover need: capture, marks, tickets, and a writer beside others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial

from msgspec import Struct

from migrator.mapping.model.capture import Capture, MarkedBy
from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.live import (
    Activity,
    SlotLag,
    TriedMarks,
    TriedTickets,
)
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.job import Job
from migrator.settings.source import DocumentSettings
from migrator.settings.transforms import sound_mapping
from migrator.source.capture.install import SqlActivity, SqlCapture
from migrator.source.capture.marks import SqlMarks, SqlTickets
from migrator.source.dynamodb.opening import open_document_live
from migrator.source.dynamodb.source import DocumentSource
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import Address, address_of
from migrator.source.engines.reflect import of_kind
from migrator.source.sql.transactions import Writing
from migrator.stages.session import job as job_wiring
from migrator.stages.session.job import JobSource, secret_providers


def open_captured(
    job: str,
    writing: Writing,
    address: Address,
    name: str,
    wait: Callable[[float], None],
    is_over: Callable[[], bool],
) -> tuple[SqlCapture, SqlMarks, SqlActivity]:
    """Capture, marks and activity; closing the marks closes all. `name`: of connections. `is_over`: whether no relay
    needs to read the log."""
    if not writing.kind.capturing.reads_log:
        return SqlCapture(writing), SqlMarks(writing), SqlActivity(writing)
    # They need psycopg, an extra that other sources do without.
    from migrator.source.capture.log.install import LogCapture
    from migrator.source.capture.log.marks import LogActivity, LogMarks
    from migrator.source.capture.log.polling import open_stream
    from migrator.source.capture.log.reader import LogReader

    reader = LogReader(writing, partial(open_stream, writing, address, name))
    marks = LogMarks(writing, reader, wait, is_over)
    return LogCapture(writing, job, marks, wait), marks, LogActivity(writing, marks)


DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)
ONCE = Backoff(attempts=1)


class Live(Struct, frozen=True):
    """Capture's edges in one source."""

    capture: Capture
    marks: TriedMarks
    tickets: TriedTickets
    activity: Activity

    @property
    def sql_capture(self) -> SqlCapture:
        """Raises: SettingsError where the source is no database."""
        return of_kind(self.capture, SqlCapture)

    @property
    def sql_marks(self) -> SqlMarks:
        """Raises: SettingsError where the source is no database."""
        return of_kind(self.marks, SqlMarks)

    @property
    def exact_marks(self) -> TriedMarks:
        """The marks, counted with all changes that were committed before: for evidence."""
        return self.marks.exact() if isinstance(self.marks, SqlMarks) else self.marks

    def slot_lag(self) -> SlotLag | None:
        """How far the slot of the source's log is behind; None where the log is not captured."""
        return self.marks.lag() if isinstance(self.marks, SqlMarks) else None

    def marked_by(self) -> MarkedBy:
        """What an install that is not told otherwise lets leave the marks: the log where it is captured, else triggers."""
        installation = self.capture.installation()
        return "log" if installation is not None and installation.marked_by == "log" else "triggers"


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    source: JobSource | None = None,
    answer_within_s: float | None = None,
) -> Iterator[Live]:
    """`source`: by whose connections capture is looked at; None: by one of its own. Nothing connects to write before
    something is written. `answer_within_s`: how long a statement may take, and a server say nothing past that; None: as
    the job says."""
    settings = job.source
    if settings.dynamodb is not None:
        with _open_old_live(job, settings.dynamodb, Retry(patience, stop), source) as live:
            yield live
        return
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    connection_options = ConnectionOptions(
        name=name_of(job.name, command),
        pool_size=settings.connections_apart(job.tuning.workers + 1),
        lock_wait_s=DDL_LOCK_WAIT_S,
        statement_timeout_s=settings.statement_timeout_s,
    )
    connection_options = connection_options.answering_within(answer_within_s)
    retry = Retry(patience, stop)
    writing = Writing(
        address,
        connection_options,
        retry,
        None if source is None or isinstance(source, DocumentSource) else source.engine,
    )
    capture, marks, activity = open_captured(
        job.name, writing, address, connection_options.name, retry.wait, partial(_is_over, job)
    )
    with closing(marks):
        yield Live(capture, marks, SqlTickets(writing), activity)


def _is_over(job: Job) -> bool:
    """Whether the service writes the table itself, so that no relay needs to read the log."""
    with job_wiring.open_journal(job) as journal:
        return job_wiring.write_ownership(job, sound_mapping(job.mapping).mapping, journal).is_service()


@contextmanager
def _open_old_live(
    job: Job, tables: DocumentSettings, retry: Retry, source: JobSource | None
) -> Iterator[Live]:
    """Of old tables of DynamoDB's, which keep nothing of ours: the journal does."""
    with job_wiring.open_journal(job, retry.stop, retry.backoff) as journal, ExitStack() as stack:

        def is_over() -> bool:
            return job_wiring.write_ownership(job, sound_mapping(job.mapping).mapping, journal).is_service()

        opening = open_document_live(job, tables, journal.database, retry, source, is_over)
        opened = stack.enter_context(closing(opening))
        yield Live(opened.capture, opened.marks, opened.tickets, opened.activity)


def lifetimes_of(job: Job) -> Lifetimes:
    return Lifetimes(job.tuning.request_life_s, job.tuning.silent_s)
