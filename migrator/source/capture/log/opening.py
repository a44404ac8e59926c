"""Open capture of a source, including a log if its engine supports one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from migrator.source.capture.install import SqlActivity, SqlCapture
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.base import Address
from migrator.source.sql.transactions import Writing

if TYPE_CHECKING:
    from migrator.source.capture.log.install import LogCapture
    from migrator.source.capture.log.reader import Log


def open_captured(
    job: str,
    writing: Writing,
    address: Address,
    name: str,
    wait: Callable[[float], None],
    is_over: Callable[[], bool],
) -> tuple[SqlCapture, SqlMarks, SqlActivity]:
    """Open capture, marks and activity; closing the marks closes all. `name`: of connections. `is_over`: whether
    no relay needs to read the log.
    """
    if not writing.kind.capturing.log:
        return SqlCapture(writing), SqlMarks(writing), SqlActivity(writing)
    from migrator.source.capture.log.reader import LogActivity, LogMarks, LogReader

    opened, capture = _OPENED[writing.kind.capturing.log](writing, address, name)
    marks = LogMarks(writing, LogReader(writing, opened), wait, is_over)
    return capture(job=job, writing=writing, marks=marks, wait=wait), marks, LogActivity(writing, marks)


# Each needs its driver, an extra that other sources do without.


def _slot_log(writing: Writing, address: Address, name: str) -> tuple[Log, type[LogCapture]]:
    from migrator.source.capture.log.postgresql.install import SlotCapture
    from migrator.source.capture.log.postgresql.protocol import open_stream
    from migrator.source.capture.log.postgresql.slot import SlotLog

    return SlotLog(writing, partial(open_stream, writing, address, name)), SlotCapture


def _binlog(writing: Writing, address: Address, name: str) -> tuple[Log, type[LogCapture]]:
    from migrator.source.capture.log.mysql.server import BinlogCapture
    from migrator.source.capture.log.mysql.stream import Binlog

    return Binlog(writing, address, name), BinlogCapture


_OPENED: dict[str, Callable[[Writing, Address, str], tuple[Log, type[LogCapture]]]] = {
    "slot": _slot_log,
    "binlog": _binlog,
}
