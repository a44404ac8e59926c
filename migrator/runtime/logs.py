"""Loggers whose lines name the logging package, as JSON or plain text, without passwords.

structlog, which imports rich and asyncio, is imported with the first line that is written.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from msgspec import Struct

from migrator.runtime.errors import SettingsError

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_settings: dict[str, Any] = {}
"""Settings for lines, until the first one is written."""
_look: dict[str, bool] = {"is_text": False}
_jobs: dict[str, None] = {}
"""The jobs that this process has opened, in order; a service may have several."""
_run: ContextVar[int | None] = ContextVar("run", default=None)
_LEVELS = ("debug", "info", "warning", "error", "critical")

_SECRETS = (
    (re.compile(r"(://[^/\s:@]*:)[^\s]*@"), r"\1***@"),
    (re.compile(r"(?i)(\b\w*(?:password|passwd|pwd)=)(?:'[^']*'|[^&;\s'\"]+)"), r"\1***"),
)


def configure(*, json: bool, level: str = "info", file: Path | None = None) -> None:
    """`level`: the lowest; `file`: appended to.

    Raises: SettingsError if the file cannot be written.
    """
    _jobs.clear()
    _look["is_text"] = not json
    _settings.update(json=json, level=level, stream=_standard_error if file is None else _added_to(file))
    # At once if structlog is loaded: a line must not override a later configuration or capture of its lines.
    if "structlog" in sys.modules:
        _set_up()


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `room`: the logging package.

    In a service it uses the service's structlog configuration; without one, warnings go to standard error,
    since standard output belongs to the service.
    """
    return cast("FilteringBoundLogger", _Room(name))


class _Room:
    """Reads structlog's configuration with each line: it may change at any time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        level = _settings.get("level", "warning")
        if (
            method in _LEVELS
            and _LEVELS.index(method) < _LEVELS.index(level)
            and "structlog" not in sys.modules
        ):
            return _drop
        return getattr(_bound_logger(self._name), method)


def _drop(event: str, **fields: Any) -> None:
    """Write nothing."""


def noting(log: FilteringBoundLogger, event: str) -> Callable[[Exception], None]:
    return lambda error: log.warning(event, reason=type(error).__name__)


def name_job(job: str) -> None:
    _jobs[job] = None


@cache
def _version() -> str:
    from importlib.metadata import version  # slow to import, and not needed for --help

    return version("single-table-migrator")


def _origin(room: str) -> dict[str, Any]:
    run = _run.get()
    named: dict[str, Any] = {} if run is None else {"run": run}
    if _look["is_text"]:
        return named
    named |= {"job": ",".join(_jobs)} if _jobs else {}
    return named | {"room": room, "host": socket.gethostname(), "pid": os.getpid(), "version": _version()}


def bind_run(number: int) -> None:
    _run.set(number)


def _bound_logger(room: str) -> Any:
    import structlog

    _set_up()
    if structlog.is_configured():
        return structlog.get_logger(**_origin(room))
    printed = structlog.PrintLogger(cast(TextIO, _Lines(_standard_error)))
    return structlog.wrap_logger(printed, _processors(json=True), _from("warning"), **_origin(room))


def _set_up() -> None:
    import structlog

    settings = dict(_settings)  # another thread may be configuring it
    if not settings:
        return
    structlog.configure(
        processors=_processors(json=settings["json"]),
        wrapper_class=_from(settings["level"]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lines(settings["stream"]))),
        cache_logger_on_first_use=False,
    )
    _settings.clear()


def _processors(*, json: bool) -> list[Processor]:
    import structlog

    # The plain traceback: the pretty one shows local variables, which contain rows.
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback, pad_event_to=0, pad_level=False
    )
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso" if json else "%Y-%m-%dT%H:%M:%SZ", utc=True),
        structlog.processors.format_exc_info,
        _hide_passwords,
        structlog.processors.JSONRenderer() if json else plain,
    ]


def _from(level: str) -> type[FilteringBoundLogger]:
    import logging

    import structlog

    return structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()])


def _standard_error() -> TextIO:
    """Resolved when a line is written: a live line on the terminal makes room for it."""
    return sys.stderr


def _added_to(file: Path) -> Callable[[], TextIO]:
    try:
        stream = file.open("a", buffering=1, encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"--log-file: '{file}' cannot be written ({error.strerror}); name a file in a folder that is there"
        ) from None
    return lambda: stream


class _Lines(Struct, frozen=True, weakref=True):
    """A line that cannot be written (a closed pipe, a full disk) must not end the work that it reports."""

    stream: Callable[[], TextIO]

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):
            self.stream().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            self.stream().flush()


def _hide_passwords(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Hide passwords in URLs and connection strings: a second line of defence."""
    return {name: _cut(value) for name, value in event.items()}


def _cut(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _cut(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cut(part) for part in value]
    text = str(value)
    for secret, shown in _SECRETS:
        text = secret.sub(shown, text)
    return text
