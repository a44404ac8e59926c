"""Loggers whose lines name the package that logs; structlog is loaded by the first line that is written."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


_asked: dict[str, Any] = {}
"""How lines are to be made, until the first one is."""


def configure(*, json: bool, level: str = "info") -> None:
    """Sets up the lines of this process: JSON, or plain ones; nothing below `level`."""
    _asked.update(json=json, level=level)
    if "structlog" in sys.modules:
        _lines()


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry `room`: the one that speaks. In a service it speaks as the service set structlog up; where
    that did not, warnings go to standard error, since standard output is the service's own."""
    return cast("FilteringBoundLogger", _Room(name))


class _Room:
    """Asks at each line how structlog is set up: that may be done at any time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(_lines().bound_logger(self._name), method)


def bind_run(number: int) -> None:
    """Nothing; each line of this thread carries the run from now on."""
    _lines().bind_run(number)


def _lines() -> ModuleType:
    """What makes lines, set up as it was asked for."""
    from migrator.runtime import log_lines  # here: it loads structlog, and structlog loads rich and asyncio

    if _asked:
        log_lines.configure(**_asked)
        _asked.clear()
    return log_lines
