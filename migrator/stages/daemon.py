"""A relay that goes on: worker after worker takes marks until it is told to stop, through every failure that can pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from migrator.errors import Interrupted, MigratorError, SourceError, StoppedError, TargetError
from migrator.results import Worked
from migrator.stages.lifetimes import Presence, fence_off
from migrator.stages.presences import Presences
from migrator.stages.relay import Relay
from migrator.tracing import span

IDLE_S = 0.2
LONGEST_IDLE_S = 1.0
FAILED_S = 1.0
LONGEST_FAILED_S = 30.0


class Listener(Protocol):
    """Who is told how the relay gets on; called from its workers."""

    def worked(self, worked: Worked, took_ms: int) -> None: ...

    def failed(self, error: MigratorError, wait_s: float) -> None: ...

    def idle(self) -> None:
        """Nothing is to be done just now; called now and then also while there is."""


@dataclass
class Daemon:
    """`relay`: makes one worker's relay, which asks the given check before every write."""

    relay: Callable[[Callable[[], None]], Relay]
    presences: Presences
    listener: Listener
    workers: int = 2
    stop: Event = field(default_factory=Event)

    def run(self, *, once: bool) -> None:
        """Works until `stop` is set; `once`: until no mark is left that could be taken.

        Raises: with `once`, what an edge raises when it gave up; SettingsError where the source was restored.
        """
        fence_off(self.presences.writers, self.presences.lifetimes, self._wait)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="relay") as pool:
            running = [pool.submit(self._work, once=once) for _ in range(self.workers)]
            wait(running, return_when=FIRST_EXCEPTION)
            if any(one.done() and one.exception() for one in running):
                # What ends one worker would end the others one by one, and nobody would see it.
                self.stop.set()
            for one in running:
                one.result()

    def _work(self, *, once: bool) -> None:
        failures = 0
        while not self.stop.is_set():
            presence, clean, started = None, False, time.monotonic()
            try:
                presence = self.presences.enter("relay")
                self._take_turns(presence, once=once)
                clean = True
                return
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
                if presence is not None:
                    self.presences.leave(presence, clean=clean)

    def _take_turns(self, presence: Presence, *, once: bool) -> None:
        relay, idle_s = self.relay(presence.check), IDLE_S
        while not self.stop.is_set():
            # What is read from here on is newer than now: older work of this worker is stored, or was refused.
            presence.beat(begins=True)
            started = time.monotonic()
            with span("migrator.relay"):
                worked = relay.once()
            if worked.taken:
                # First of all: its marks are gone, and what was found is known to nobody else.
                self.listener.worked(worked, round((time.monotonic() - started) * 1000))
            self.listener.idle()
            if worked.taken:
                idle_s = IDLE_S
            elif once:
                return
            else:
                self.stop.wait(idle_s)
                idle_s = min(idle_s * 2, LONGEST_IDLE_S)

    def _wait(self, wait_s: float) -> None:
        if self.stop.wait(wait_s):
            raise Interrupted("stopped before it began; the marks wait")
