"""structlog set up: log lines as JSON or for a person, on standard error, without passwords."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_SECRETS = (
    (re.compile(r"(://[^/\s:@]*:)[^\s]*@"), r"\1***@"),
    (re.compile(r"(?i)(\b\w*(?:password|passwd|pwd)=)(?:'[^']*'|[^&;\s'\"]+)"), r"\1***"),
)


def configure(*, json: bool, level: str) -> None:
    """Sets up structlog for this process: JSON lines, or plain ones; nothing below `level`."""
    structlog.configure(
        processors=_processors(json=json),
        wrapper_class=_from(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=False,
    )


def bound_logger(room: str) -> Any:
    """A logger of structlog's as this process, or the service, set it up; warnings to standard error where neither did."""
    if structlog.is_configured():
        return structlog.get_logger(room=room)
    printed = structlog.PrintLogger(cast(TextIO, _StandardError()))
    return structlog.wrap_logger(printed, _processors(json=True), _from("warning"), room=room)


def bind_run(number: int) -> None:
    """Nothing; each line of this thread carries the run from now on."""
    structlog.contextvars.bind_contextvars(run=number)


def _processors(*, json: bool) -> list[Processor]:
    # The plain trace: the pretty one shows local variables, and those hold rows.
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _hide_passwords,
        structlog.processors.JSONRenderer() if json else plain,
    ]


def _from(level: str) -> type[FilteringBoundLogger]:
    return structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()])


class _StandardError:
    """Standard error as it is when a line is written: a line that lives on a terminal makes room for it.

    A line that nobody can read any more (a closed pipe, no standard error at all) must not end what it tells of.
    """

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()


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
