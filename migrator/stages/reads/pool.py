"""A thread pool for shadow reads: fixed threads, no queue, a deadline each, and delayed re-checks."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from threading import Event, Lock, Semaphore, Thread

TICK_S = 0.05
_IDLE_S = 1.0
_PATIENCE_S = 60.0
"""How long a later look may wait for a free thread past its time."""
_GOODBYE_S = 1.0


@dataclass(eq=False)
class Task:
    """`work`: gives what to do with its result. `late`: what to do in its place when the deadline was first, or when no
    thread was ever free for it. Only one of the two is done. `spent`: is told what it took of the processor, in seconds."""

    work: Callable[[Task], Callable[[], None]]
    late: Callable[[], None]
    spent: Callable[[float], None]
    ends_at: float = 0.0
    abandoned: bool = False


class ShadowPool:
    """A thread that hangs keeps its place: while all hang, nothing is taken. `admit`: asked before each look that comes
    later, which waits on where it may not begin. `clock`: seconds that only grow."""

    def __init__(
        self,
        threads: int,
        deadline_s: float,
        admit: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.threads = threads
        self.deadline_s = deadline_s
        self.admit = admit
        self.clock = clock
        self._free = Semaphore(threads)
        self._is_owed = False
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._running: set[Task] = set()
        self._later: list[tuple[float, int, Task]] = []
        self._numbers = count()
        # Held for moments, never while a task runs.
        self._lock = Lock()
        self._wake, self._stopped = Event(), Event()

    @property
    def waiting(self) -> int:
        """Looks that come later."""
        return len(self._later)

    def take(self) -> bool:
        """Whether a thread is free; it is kept for the caller's `put`, or `give_back`.

        The next one that is free belongs to a later look that is due: callers come more often than the watch."""
        return not self._is_owed and self._free.acquire(blocking=False)

    def give_back(self) -> None:
        self._free.release()

    def put(self, task: Task) -> None:
        self._tasks.put(task)

    def put_later(self, due: float, task: Task) -> None:
        with self._lock:
            heapq.heappush(self._later, (due, next(self._numbers), task))
        self._wake.set()

    def start(self) -> None:
        for number in range(self.threads):
            Thread(target=self._work, name=f"shadow {number}", daemon=True).start()
        self._watcher = Thread(target=self._watch, name="shadow watch", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Nothing new begins; what waits is given up. A thread that hangs is left to the end of the process."""
        self._stopped.set()
        self._wake.set()
        self._watcher.join(_GOODBYE_S)
        for _ in range(self.threads):
            self._tasks.put(None)
        ends_at = time.monotonic() + _GOODBYE_S
        while self._running and time.monotonic() < ends_at:
            time.sleep(TICK_S)
        with self._lock:
            left = [task for _, _, task in self._later]
            self._later.clear()
        for task in left:
            task.late()

    # ── threads that work ──

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.ends_at = self.clock() + self.deadline_s
            with self._lock:
                self._running.add(task)
            self._wake.set()
            began = time.thread_time()
            try:
                self._finish(task, task.work(task))
            except BaseException:
                # Work says itself what went wrong; this is a fault of ours, and the thread is needed.
                self._finish(task, task.late)
            finally:
                task.spent(time.thread_time() - began)
                self._free.release()
            if self._is_owed:
                self._begin_due_ones()

    def _finish(self, task: Task, done: Callable[[], None]) -> None:
        """Done once, unless the deadline was first."""
        with self._lock:
            in_time = task in self._running
            self._running.discard(task)
        if in_time:
            done()

    # ── the thread that watches ──

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._wake.wait(TICK_S if self._running or self._later else _IDLE_S)
            self._wake.clear()
            if self._running or self._later:
                self._stopped.wait(TICK_S)
                self._end_late_ones()
                self._begin_due_ones()

    def _end_late_ones(self) -> None:
        now = self.clock()
        with self._lock:
            late = [task for task in self._running if now >= task.ends_at]
            self._running.difference_update(late)
        for task in late:
            task.abandoned = True
            task.late()

    def _begin_due_ones(self) -> None:
        while True:
            with self._lock:
                due = self._later[0][0] if self._later else float("inf")
                if self.clock() < due or self._stopped.is_set():
                    self._is_owed = False
                    return
                free = self._may_begin()
                if not free and self.clock() < due + _PATIENCE_S:
                    return
                _, _, task = heapq.heappop(self._later)
            if free:
                self.put(task)
            else:
                task.late()

    def _may_begin(self) -> bool:
        self._is_owed = not self._free.acquire(blocking=False)
        if self._is_owed:
            return False
        if self.admit():
            return True
        self.give_back()
        return False
