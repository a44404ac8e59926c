"""Silence of sqlglot, which logs the statements that it cannot read, with all their values."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_READING: ContextVar[bool] = ContextVar("migrator_reading", default=False)


class _Silence(logging.Filter):
    """Drops what is logged while this thread reads a statement; what a service does with sqlglot itself is logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _READING.get()


_SILENCE = _Silence()


@contextmanager
def quietly() -> Iterator[None]:
    # Each time, since a service that sets up its logging may take filters away; for the second time is once.
    logging.getLogger("sqlglot").addFilter(_SILENCE)
    before = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(before)
