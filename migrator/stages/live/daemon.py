"""The relay as a daemon: workers process marks until stopped, retry transient failures, and measure the lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any, Protocol

from migrator.mapping.model.live import MarksState
from migrator.mapping.model.results import Worked
from migrator.runtime.errors import (
    Interrupted,
    MigratorError,
    OldRevisionError,
    SourceError,
    StoppedError,
    TargetError,
)
from migrator.stages.live.relay import Relay
from migrator.stages.live.writers import WriterHeartbeats, WriterLease, fence_off, outlive

try:
    from opentelemetry import trace
except ImportError:  # an application that traces has it
    trace = None  # type: ignore[assignment,unused-ignore]

# ──
# A continuous relay: each worker takes marks until it is stopped; transient failures are retried.

IDLE_S = 0.2
FIRST_IDLE_S = 0.05
_GRACE_S = 1.0
LONGEST_IDLE_S = 0.4
BEGINS_S = 1.0
"""How much older than its reading a worker's place may seem: tombstones stay the longer, and not every turn is a commit."""
FAILED_S = 1.0
LONGEST_FAILED_S = 30.0


class Listener(Protocol):
    def worked(self, worked: Worked, took_ms: int) -> None: ...

    def failed(self, error: MigratorError, wait_s: float) -> None: ...

    def idle(self) -> None:
        """Called without work, and sometimes during work."""


@dataclass
class Daemon:
    """The relay's workers.

    `relay`: makes one worker's relay, which calls the given check before each write.
    `guard`: raises if source, journal and table no longer belong together; called again after each outage.
    `left`: marks still leased by others when a single run stopped waiting.
    `held`: why nothing may begin now; '' if it may.
    """

    relay: Callable[[Callable[[], None]], Relay]
    heartbeats: WriterHeartbeats
    listener: Listener
    guard: Callable[[], None]
    workers: int = 2
    stop: Event = field(default_factory=Event)
    left: int = 0
    held: Callable[[], str] = lambda: ""

    def run(self, *, once: bool) -> None:
        """Work until `stop`; with `once`, until no ripe mark waits, including marks leased by other relays.

        Leases expire, so `once` waits for others at most as long as a lease lasts.
        Raises: with `once`, the error of an edge that gave up; SettingsError if a store went back, or if a
        newer revision of the job's mapping was registered.
        """
        writers, lifetimes = self.heartbeats.writers, self.heartbeats.lifetimes
        fence_off(writers, lifetimes, self._wait)
        outlive(writers, self.heartbeats.revisions, lifetimes, self._wait)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="relay") as pool:
            running = [pool.submit(self._work, once=once) for _ in range(self.workers)]
            wait(running, return_when=FIRST_EXCEPTION)
            failed = [error for worker in running if worker.done() and (error := worker.exception())]
            if failed:
                # The error of one worker would end the others one by one, unnoticed.
                self.stop.set()
        # Not the errors of the others: that they were stopped does not show why.
        for error in sorted(failed, key=lambda error: isinstance(error, Interrupted)):
            raise error

    def _work(self, *, once: bool) -> None:
        failures = 0
        while not self.stop.is_set():
            writer_lease, clean, started = None, False, time.monotonic()
            try:
                if failures:
                    # A source or a journal that was away may have come back older: a standby, a restored backup.
                    self.guard()
                    fence_off(self.heartbeats.writers, self.heartbeats.lifetimes, self._wait)
                writer_lease = self.heartbeats.enter("relay")
                self._take_turns(writer_lease, once=once)
                clean = True
                return
            except OldRevisionError:
                # Raised in place of a request, when all before it had ended.
                clean = True
                raise
            except (StoppedError, SourceError, TargetError) as error:
                if once:
                    raise
                if time.monotonic() - started > LONGEST_FAILED_S:
                    failures = 0
                wait_s = min(FAILED_S * 2 ** min(failures, 10), LONGEST_FAILED_S)
                failures += 1
                self.listener.failed(error, wait_s)
                self.stop.wait(wait_s)
            finally:
                if writer_lease is not None:
                    self.heartbeats.leave(writer_lease, clean=clean)

    def _take_turns(self, writer_lease: WriterLease, *, once: bool) -> None:
        relay, idle_s, is_whole = self.relay(writer_lease.check), FIRST_IDLE_S if once else IDLE_S, False
        idle_since, begun_at = time.monotonic(), float("-inf")
        while not self.stop.is_set():
            started = time.monotonic()
            if started - begun_at >= BEGINS_S:
                # Later reads are newer than now: older work of this worker is stored, or was refused.
                writer_lease.beat(begins=True)
                begun_at = started
            writer_lease.check()
            if self.held():
                self.listener.idle()
                self.stop.wait(IDLE_S)
                continue
            with span("migrator.relay"):
                worked = relay.once()
            if worked.taken:
                # First of all: its marks are deleted, and only this worker has its findings.
                self.listener.worked(worked, round((time.monotonic() - started) * 1000))
            self.listener.idle()
            if worked.taken:
                idle_s, idle_since, is_whole = FIRST_IDLE_S if once else IDLE_S, time.monotonic(), False
            elif once and not is_whole:
                relay.marks.from_the_first()
                is_whole = True
            elif once and self._is_done(relay, time.monotonic() - idle_since):
                return
            else:
                is_whole = False
                self.stop.wait(idle_s)
                idle_s = min(idle_s * 2, LONGEST_IDLE_S)

    def _is_done(self, relay: Relay, waited_s: float) -> bool:
        waiting = relay.marks.state().waiting
        self.left = waiting if waited_s > relay.options.lease_s + _GRACE_S else 0
        return not waiting or bool(self.left)

    def recount(self, waiting: int) -> None:
        """So many marks wait now: other processes have finished some of those that were left to them."""
        self.left = min(self.left, waiting)

    def _wait(self, wait_s: float) -> None:
        if self.stop.wait(wait_s):
            raise Interrupted("stopped before it began; the changes stay pending")


# ── How far items are behind rows, read once a second at most ──

KNOWN_FOR_S = 1.0


@dataclass
class RelayLag:
    """`marks`: the source's pending ones. `clock`: monotonic seconds. Thread-safe."""

    marks: Callable[[], MarksState]
    clock: Callable[[], float] = time.monotonic
    _lag_s: float = 0.0
    _asked_at: float = float("-inf")
    _asking: Lock = field(default_factory=Lock)

    def __call__(self) -> float:
        """Age in seconds of the oldest mark that waits for a relay.

        0 if the source is unreachable (a service may leave marks without the right to read them), and if
        marks failed before: the age of a stuck mark would hide that of the others.
        """
        # While another thread asks, the last answer is used: no caller waits here, also not in the child of a fork.
        if self.clock() - self._asked_at >= KNOWN_FOR_S and self._asking.acquire(blocking=False):
            try:
                self._lag_s, self._asked_at = self._measured(), self.clock()
            finally:
                self._asking.release()
        since = max(0.0, self.clock() - self._asked_at) if self._lag_s else 0.0
        return self._lag_s + min(since, KNOWN_FOR_S)

    def _measured(self) -> float:
        try:
            state = self.marks()
        except MigratorError:
            return 0.0
        return 0.0 if state.failed else state.oldest_age_s


def span(name: str, **attributes: int | str) -> AbstractContextManager[Any]:
    if trace is None:
        return nullcontext()
    return trace.get_tracer("migrator").start_as_current_span(name, attributes=attributes)
