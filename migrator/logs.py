"""Log lines: an event with fields, as JSON or for a person, on standard error."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

_SECRETS = (
    (re.compile(r"(://[^/\s:@]*:)[^\s]*@"), r"\1***@"),
    (re.compile(r"(?i)(\b\w*(?:password|passwd|pwd)=)(?:'[^']*'|[^&;\s'\"]+)"), r"\1***"),
)


def configure(*, json: bool, level: str = "info") -> None:
    """Sets up structlog for this process: JSON lines, or plain ones; nothing below `level`."""
    # The plain trace: the pretty one shows local variables, and those hold rows.
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    render: Any = structlog.processors.JSONRenderer() if json else plain
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
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


def bind_run(number: int) -> None:
    """Nothing; each line of this thread carries the run from now on."""
    structlog.contextvars.bind_contextvars(run=number)


def _hide_passwords(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """The fields without what looks like a password in a URL or a connection string. A second line of defence."""
    return {name: _cut(value) for name, value in event.items()}


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _cut(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cut(one) for one in value]
    text = str(value)
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text
