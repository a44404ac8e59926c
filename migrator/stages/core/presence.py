"""A process in the journal: its heartbeat, its progress, its last failure, its pace, and its share of the budgets."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol

from migrator.journal.operations import SqlProcesses, SqlShares
from migrator.mapping.model.instances import Advance, ProcessKind, ProcessState, Share
from migrator.runtime.errors import MigratorError
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import tried_now
from migrator.runtime.system import Ticker, birth, visible_processes
from migrator.runtime.values import replace
from migrator.stages.core.pace import Pace

BEAT_S = 5.0
LATELY_S = 60.0
"""Rates are of this time."""
_GOODBYE_S = 5.0
_log = get_logger("presence")


def process_of(kind: ProcessKind) -> ProcessState:
    """This process, which the journal does not know yet."""
    pid = os.getpid()
    return ProcessState(
        *(kind, socket.gethostname(), pid, version("single-table-migrator")),
        sees=visible_processes(),
        born=birth(pid),
    )


class Presence:
    """Use as a context manager around the work. A thread tells the journal how far the work is, and asks it in the same
    transaction what the pace is to be; a journal that is away leaves the pace as it is.

    `also`: done with each heartbeat. A trouble of the work is kept as the last failure of its kind.
    """

    def __init__(
        self,
        processes: SqlProcesses,
        state: ProcessState,
        pace: Pace,
        advance: Callable[[], Advance],
        *,
        clock: Callable[[], float] = time.monotonic,
        beat_s: float = BEAT_S,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self.processes = processes
        self.state = state
        self.pace = pace
        self.advance = advance
        self.clock = clock
        self._seen: deque[tuple[float, Advance]] = deque()
        self._changed_at = clock()
        self._also = also
        self._ticker = Ticker("presence", self.beat, _not_told, lambda: beat_s)

    def __enter__(self) -> Presence:
        """Raises: what the journal does where it cannot be asked: a paused job must not begin to write."""
        self.beat()
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        # What ended the work must not be hidden by a journal that is away.
        with suppress(MigratorError):
            self.processes.leave(self.state, self.advance())

    def beat(self) -> None:
        """One heartbeat, now."""
        trouble = self.state.trouble
        advance = self.advance()
        self.state, throttle = self.processes.beat(self._measured(advance), advance)
        self.pace.obey(throttle)
        if self.state.trouble and self.state.trouble != trouble:
            with suppress(MigratorError):
                self.processes.failed(self.state, self.state.trouble)
        self._also()

    def _measured(self, advance: Advance) -> ProcessState:
        now = self.clock()
        if self._seen and self._seen[-1][1].signs != advance.signs:
            self._changed_at = now
        self._seen.append((now, advance))
        while len(self._seen) > 2 and now - self._seen[1][0] >= LATELY_S:
            self._seen.popleft()
        then, before = self._seen[0]
        passed_s = max(now - then, 1e-3)
        return replace(
            self.state,
            done=advance.done,
            left=advance.left,
            rate=(advance.done - before.done) / passed_s,
            fall=(before.left - advance.left) / passed_s,
            silent_s=now - self._changed_at,
            held=self.pace.held,
            trouble=advance.trouble or tried_now(),
        )


def _not_told(error: Exception) -> None:
    """The next heartbeat comes in its time; `migrator status` shows the process as silent meanwhile."""
    _log.warning("process_not_told", reason=type(error).__name__)


# ── A process's part of its run's budgets: write units and rows a second, divided among all that are at work on the run ──

WAITING_S = 0.5
"""As BEAT_S, of a process that has no part yet."""
_WAITS = "other processes have all write units, or rows a second; they make room within 20 s, 40 s where one was killed"
_log_of_shares = get_logger("shares")


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
        self._ticker = Ticker(
            "shares", self.beat, _share_not_told, lambda: BEAT_S if self.own.parts else WAITING_S
        )

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
            _share_not_told(error)

    def beat(self) -> None:
        """Takes what it may from now on."""
        parts = self.shares.beat(self.own)
        if parts and parts != self.own.parts:
            for limit in self.limits:
                limit.share(parts)
            _log_of_shares.info("share_changed", parts=parts)
        self.own = replace(self.own, parts=parts)
        is_limited = any(limit.is_set for limit in self.limits)
        self.pace.divide(parts, "" if parts or not is_limited else _WAITS)


def _share_not_told(error: Exception) -> None:
    """The next heartbeat comes in its time; meanwhile this process takes what it took."""
    _log_of_shares.warning("share_share_not_told", reason=type(error).__name__)
