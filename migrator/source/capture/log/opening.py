"""Opens capture of a database: of PostgreSQL with its log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from migrator.source.capture.install import SqlActivity, SqlCapture
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.connect import Address
from migrator.source.sql.transactions import Writing


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
    from migrator.source.capture.log.protocol import SlotStream
    from migrator.source.capture.log.reader import LogReader

    reader = LogReader(writing, partial(SlotStream, address, name, writing.place))
    marks = LogMarks(writing, reader, wait, is_over)
    return LogCapture(writing, job, marks, wait), marks, LogActivity(writing, marks)
