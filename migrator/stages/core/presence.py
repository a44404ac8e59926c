"""A process in the journal: its heartbeat, its progress, its last failure, its pace, and its share of the budgets."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Protocol

from migrator.journal.operations import SqlProcesses
from migrator.mapping.model.instances import Advance, ProcessKind, ProcessState, Share
from migrator.runtime.errors import MigratorError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.retry import tried_now
from migrator.runtime.system import Ticker, birth, visible_processes
from migrator.runtime.values import replace
from migrator.stages.core.pace import Pace

BEAT_S = 5.0
WAITING_S = 0.5
"""As BEAT_S, of a process that has no part of its budgets yet."""
LATELY_S = 60.0
"""Rates are of this time."""
_GOODBYE_S = 5.0
_WAITS = "other processes have all write units, or rows a second; they make room within 20 s, 40 s where one was killed"
_log = get_logger("presence")


def process_of(kind: ProcessKind) -> ProcessState:
    """This process, which the journal does not know yet."""
    pid = os.getpid()
    return ProcessState(
        *(kind, socket.gethostname(), pid, version("single-table-migrator")),
        sees=visible_processes(),
        born=birth(pid),
    )


class Divided(Protocol):
    """A limit that is divided. `is_set`: whether there is one just now."""

    @property
    def is_set(self) -> bool: ...

    def share(self, parts: int) -> None: ...


class Presence:
    """Use as a context manager around the work. A thread stores in one transaction how far the work is and what it takes
    of `limits`, and reads what it may take and what the pace is to be; if the journal is away, both stay as they are.

    `state`: None for a process that `status` does not list, and that no operator slows down. `own`: as others know its
    share; None if it spends nothing. `also`: called with each heartbeat. A trouble of the work is kept as the last failure
    of its kind.
    """

    def __init__(
        self,
        processes: SqlProcesses,
        state: ProcessState | None,
        own: Share | None,
        limits: Sequence[Divided],
        pace: Pace,
        advance: Callable[[], Advance] = Advance,
        *,
        clock: Callable[[], float] = time.monotonic,
        beat_s: float = BEAT_S,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self.processes = processes
        self.state = state
        self.own = own
        self.limits = limits
        self.pace = pace
        self.advance = advance
        self.clock = clock
        self._id = secrets.token_hex(8) if own is None else own.id
        self._seen: deque[tuple[float, Advance]] = deque()
        self._changed_at = clock()
        self._also = also
        self._ticker = Ticker(
            "presence",
            self.beat,
            noting(_log, "process_not_told"),
            lambda: WAITING_S if self._waits else beat_s,
        )

    @property
    def _waits(self) -> bool:
        return self.own is not None and not self.own.parts

    def __enter__(self) -> Presence:
        """Raises: what the journal does where it cannot be asked: a paused job must not begin to write."""
        self.beat()
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        # What ended the work must not be hidden by a journal that is away; the share runs out by itself.
        with suppress(MigratorError):
            self.processes.leave(self._id, None if self.state is None else self.advance())

    def beat(self) -> None:
        """One heartbeat, now."""
        advance, before = self.advance(), self.state
        measured = None if before is None else self._measured(before, advance)
        beat = self.processes.beat(self._id, measured, self.own, advance)
        if self.own is not None:
            self._take(self.own, beat.parts)
        self.state = state = beat.state
        if before is not None and state is not None:
            self.pace.obey(beat.throttle)
            if state.trouble and state.trouble != before.trouble:
                with suppress(MigratorError):
                    self.processes.failed(state, state.trouble)
        self._also()

    def _take(self, own: Share, parts: int) -> None:
        """From now on one of so many parts."""
        if parts and parts != own.parts:
            for limit in self.limits:
                limit.share(parts)
            _log.info("share_changed", parts=parts)
        self.own = replace(own, parts=parts)
        is_limited = any(limit.is_set for limit in self.limits)
        self.pace.divide(parts, "" if parts or not is_limited else _WAITS)

    def _measured(self, state: ProcessState, advance: Advance) -> ProcessState:
        now = self.clock()
        if self._seen and self._seen[-1][1].signs != advance.signs:
            self._changed_at = now
        self._seen.append((now, advance))
        while len(self._seen) > 2 and now - self._seen[1][0] >= LATELY_S:
            self._seen.popleft()
        then, before = self._seen[0]
        passed_s = max(now - then, 1e-3)
        return replace(
            state,
            done=advance.done,
            left=advance.left,
            rate=(advance.done - before.done) / passed_s,
            fall=(before.left - advance.left) / passed_s,
            silent_s=now - self._changed_at,
            held=self.pace.held,
            trouble=advance.trouble or tried_now(),
        )
