"""Time that passes only while every thread of a test sleeps: concurrent waits without waiting."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from threading import Condition, Thread


class VirtualTime:
    """A clock and a sleep that threads share; `run` starts them, and one at a time is awake."""

    def __init__(self) -> None:
        self.now = 0.0
        self._awake = 0
        self._sleeping: list[tuple[float, int]] = []
        self._numbers = count()
        self._called: set[int] = set()
        self._changed = Condition()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Returns when the others have slept as long; outside of `run`, at once."""
        with self._changed:
            if not self._awake:
                self.now += seconds
                return
            number = next(self._numbers)
            heapq.heappush(self._sleeping, (self.now + seconds, number))
            self._rest()
            self._changed.wait_for(lambda: number in self._called)
            self._called.discard(number)

    def run(self, *work: Callable[[], None]) -> None:
        """Each piece of work in a thread of its own, until all are done; a failure is raised here."""
        failures: list[BaseException] = []
        self._awake = len(work)
        threads = [Thread(target=self._run_one, args=(piece, failures), daemon=True) for piece in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        if failures:
            raise failures[0]
        assert not any(thread.is_alive() for thread in threads)

    def _run_one(self, work: Callable[[], None], failures: list[BaseException]) -> None:
        try:
            self.sleep(0)  # so that all have begun before the first goes on, and one is awake at a time
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            with self._changed:
                self._rest()

    def _rest(self) -> None:
        """The caller is awake no more; the last one wakes the next thread."""
        self._awake -= 1
        if self._awake == 0 and self._sleeping:
            wakes_at, number = heapq.heappop(self._sleeping)
            self.now = max(self.now, wakes_at)
            self._awake = 1
            self._called.add(number)
            self._changed.notify_all()
