"""A process in the journal: heartbeat, progress, share of the budgets; and its pace."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from threading import Lock
from typing import Protocol

from msgspec import Struct

from migrator.journal.operations import SqlProcesses
from migrator.mapping.model.instances import AS_SET, Advance, ProcessKind, ProcessState, Share, Throttle
from migrator.runtime.errors import MigratorError
from migrator.runtime.logs import get_logger, noting
from migrator.runtime.retry import tried_now
from migrator.runtime.system import Ticker, birth, visible_processes
from migrator.runtime.values import replace

LOOK_S = 1.0
"""Interval of asking the source for its load."""
_NAP_S = 0.2
_pace_log = get_logger("pace")


class Limited(Protocol):
    @property
    def units_at_most(self) -> float | None: ...

    def change(self, units_per_s: float | None) -> None: ...


class NoLimit:
    units_at_most = None

    def change(self, units_per_s: float | None) -> None: ...


class Strain(Struct, frozen=True):
    name: str
    unit: str
    most: float
    ask: Callable[[], float]


@dataclass
class Pace:
    """Holds new pages and turns of marks while the source is strained.

    A context manager if there are `strains`: a thread polls them. A source that cannot be polled also holds,
    since load may be the reason.
    """

    limit: Limited
    strains_asked: Sequence[Strain] = ()
    clock: Callable[[], float] = time.monotonic
    throttle: Throttle = AS_SET
    parts: int = 1
    """This process has one of so many parts of the run's budgets; 0: none yet."""
    _unshared: str = ""
    _own_units: float | None = None
    _strained: str = ""
    _seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    _held_since: float | None = None
    _held_before_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._own_units = self.limit.units_at_most
        self._ticker = Ticker("pace", self.look, noting(_pace_log, "source_not_asked"), lambda: LOOK_S)

    def __enter__(self) -> Pace:
        """Raises: SourceError if the source lacks a value that the job file sets a limit for."""
        if self.strains_asked:
            for strain in self.strains_asked:
                strain.ask()
            self.look()
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop(_GOODBYE_S)

    # ── reasons to hold ──

    @property
    def held(self) -> str:
        """Why nothing may begin now; '' if work may begin."""
        throttle = self.throttle
        if throttle.paused:
            why = f" ({throttle.reason})" if throttle.reason else ""
            return f"paused by {throttle.who}{why}"
        return self._strained or self._unshared

    @property
    def held_s(self) -> float:
        with self._lock:
            since = self._held_since
            return self._held_before_s + (0.0 if since is None else self.clock() - since)

    @property
    def max_write_units(self) -> float | None:
        return self.limit.units_at_most

    @property
    def strains(self) -> Mapping[str, tuple[float, float]]:
        return dict(self._seen)

    def wait(self, nap: Callable[[float], object]) -> None:
        """Return when nothing holds. Raises: the error of `nap`, if the process must stop."""
        while self.held:
            nap(_NAP_S)

    # ── input ──

    def obey(self, throttle: Throttle) -> None:
        if throttle == self.throttle:
            return
        self.throttle = throttle
        units = throttle.max_write_units
        self.limit.change(self._own_units if units is None else float(units))
        _pace_log.info(
            "pace_changed", paused=throttle.paused, max_write_units=self.limit.units_at_most, by=throttle.who
        )
        self._note()

    def divide(self, parts: int, why: str) -> None:
        """`why`: the reason for waiting before taking a part; '' for none."""
        self.parts, self._unshared = parts, why
        self._note()

    def look(self) -> None:
        self._strained = next(filter(None, map(self._over, self.strains_asked)), "")
        self._note()

    def _over(self, strain: Strain) -> str:
        try:
            now = strain.ask()
        except MigratorError as error:
            return f"the source's {strain.name} cannot be asked: {error}"
        self._seen[strain.name] = (now, strain.most)
        return (
            f"the source's {strain.name} is {now:g}{strain.unit}, above {strain.most:g}{strain.unit}"
            if now > strain.most
            else ""
        )

    def _note(self) -> None:
        with self._lock:
            if self.held and self._held_since is None:
                self._held_since = self.clock()
                _pace_log.warning("process_held", why=self.held)
            elif not self.held and self._held_since is not None:
                held_s = self.clock() - self._held_since
                self._held_before_s += held_s
                self._held_since = None
                _pace_log.warning("process_goes_on", held_s=round(held_s, 1))


BEAT_S = 5.0
WAITING_S = 0.5
"""As BEAT_S, for a process without a part of its budgets."""
LATELY_S = 60.0
"""Rates are of this time."""
_GOODBYE_S = 5.0
_WAITS = "other processes have all write units, or rows a second; they make room within 20 s, 40 s where one was killed"
_log = get_logger("presence")


def process_of(kind: ProcessKind) -> ProcessState:
    pid = os.getpid()
    package = version("single-table-migrator")
    return ProcessState(kind, socket.gethostname(), pid, package, visible_processes(), birth(pid))


class Divided(Protocol):
    @property
    def is_set(self) -> bool: ...

    def share(self, parts: int) -> None: ...


class Presence:
    """Heartbeat of a process; a context manager around the work.

    In one transaction, a thread stores progress and use of `limits`, and reads share and pace. These do not
    change while the journal is unreachable. A trouble of the work is kept as the last failure of its kind.
    `state`: None for a process without status or pace.
    `own`: its share, as known to others; None if it spends nothing.
    `also`: called with each heartbeat.
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
        """Raises: the journal's error if it is unreachable, since a paused job must not start to write."""
        self.beat()
        self._ticker.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ticker.stop(_GOODBYE_S)
        # An unreachable journal must not hide the error that ended the work; the share expires on its own.
        with suppress(MigratorError):
            self.processes.leave(self._id, None if self.state is None else self.advance())

    def beat(self) -> None:
        advance, before = self.advance(), self.state
        measured = None if before is None else self._measured(before, advance)
        state, parts, throttle = self.processes.beat(self._id, measured, self.own, advance)
        if self.own is not None:
            self._take(self.own, parts)
        self.state = state
        if before is not None and state is not None:
            self.pace.obey(throttle)
            if state.trouble and state.trouble != before.trouble:
                with suppress(MigratorError):
                    self.processes.failed(state, state.trouble)
        self._also()

    def _take(self, own: Share, parts: int) -> None:
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
