"""A process's part of its run's budgets: write units and rows a second, divided among all that are at work on the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from migrator.journal.operations import SqlShares
from migrator.mapping.model.instances import Share
from migrator.runtime.errors import MigratorError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Ticker
from migrator.stages.core.pace import Pace

BEAT_S = 5.0
WAITING_S = 0.5
"""The same, of a process that has no part yet."""
_GOODBYE_S = 5.0
_WAITS = "other processes have all write units, or rows a second; they make room within 20 s, 40 s where one was killed"
_log = get_logger("shares")


class Divided(Protocol):
    """A limit that is divided. `is_set`: whether there is one just now."""

    @property
    def is_set(self) -> bool: ...

    def share(self, parts: int) -> None: ...


class RunBudget:
    """Use as a context manager around the work. A thread tells the journal what this process takes; it takes less as soon
    as another one has come, more when one has gone. `own`: as others know it."""

    def __init__(self, shares: SqlShares, own: Share, limits: Sequence[Divided], pace: Pace) -> None:
        self.shares = shares
        self.own = own
        self.limits = limits
        self.pace = pace
        self._ticker = Ticker("shares", self.beat, _not_told, lambda: BEAT_S if self.own.parts else WAITING_S)

    def __enter__(self) -> RunBudget:
        """Raises: what the journal does where it cannot be asked."""
        self.shares.enter([self.own])
        self.beat()
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        try:
            self.shares.leave(self.own.id)
        except MigratorError as error:
            # What ended the work must not be hidden by a journal that is away; the share runs out by itself.
            _not_told(error)

    def beat(self) -> None:
        """Takes what it may from now on."""
        parts = self.shares.beat(self.own)
        if parts and parts != self.own.parts:
            for limit in self.limits:
                limit.share(parts)
            _log.info("share_changed", parts=parts)
        self.own = replace(self.own, parts=parts)
        is_limited = any(limit.is_set for limit in self.limits)
        self.pace.divide(parts, "" if parts or not is_limited else _WAITS)


def _not_told(error: Exception) -> None:
    """The next heartbeat comes in its time; meanwhile this process takes what it took."""
    _log.warning("share_not_told", reason=type(error).__name__)
