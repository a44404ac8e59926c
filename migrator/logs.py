"""Log lines: an event with fields, as JSON or for a person, on standard error."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^\s]*@")


def configure(*, json: bool, level: str = "info") -> None:
    """Sets up structlog for this process: JSON lines, or plain ones; nothing below `level`."""
    render: Any = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _hide_passwords,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `room`: the one that speaks."""
    return structlog.get_logger(room=name)  # type: ignore[no-any-return]


def _hide_passwords(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Cuts what stands between a colon and an @ in anything that looks like a URL. A second line of defence."""
    return {
        name: _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value
        for name, value in event.items()
    }
