"""Shadow reads: call the other side after the answer is out, within limits, and compare."""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from threading import Event, Lock, Semaphore, Thread
from typing import Any

from msgspec import Struct

from migrator.mapping.model.evidence import DiffKey, Sample, Side
from migrator.mapping.model.results import Example
from migrator.mapping.patterns.answers import TooManyError
from migrator.mapping.patterns.params import kind_of, texts_of
from migrator.runtime.system import tell_of_forks
from migrator.settings.job import ShadowSettings
from migrator.stages.patterns.replay import LONGEST, Comparison, PendingMismatch, Sampler
from migrator.stages.reads.backends import Bounds, LoopGoneError, ShadowedCall, SideError, blamed
from migrator.stages.reads.metrics import ReadMetrics

# ── A thread pool for shadow reads: fixed threads, no queue, a deadline each, and delayed re-checks ──


TICK_S = 0.05
_IDLE_S = 1.0
_PATIENCE_S = 60.0
"""How long a later look may wait for a free thread past its time."""
_GOODBYE_S = 1.0


@dataclass(eq=False)
class Task:
    """`work`: returns a function that handles its result.
    `late`: runs instead if the deadline passes, or if no thread was free in time.
    `spent`: receives its processor time in seconds.
    """

    work: Callable[[Task], Callable[[], None]]
    late: Callable[[], None]
    spent: Callable[[float], None]
    ends_at: float = 0.0
    abandoned: bool = False


class ShadowPool:
    """A hanging thread keeps its place: while all hang, tasks are refused.

    `admit`: called before each later look; waits until it may begin.
    `clock`: monotonic seconds.
    """

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
        return len(self._later)

    def take(self) -> bool:
        """Reserve a free thread for the caller's `put` or `give_back`; return whether there was one.

        The next free one belongs to a later look that is due: callers come more often than the watch.
        """
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
        """Stop starting tasks, and drop waiting ones. Hanging threads stay until the process ends."""
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
                # Work reports its own errors; this is a fault of migrator, and the thread is needed.
                self._finish(task, task.late)
            finally:
                task.spent(time.thread_time() - began)
                self._free.release()
            if self._is_owed:
                self._begin_due_ones()

    def _finish(self, task: Task, done: Callable[[], None]) -> None:
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


# ── Limits of the load by shadows: so many per second, and none for a while after many errors ──

FIRST_S = 0.0005
"""Seconds of the processor that a shadow may take; a longer one counts as several. So 20 in a second have the interpreter
for no more than a hundredth of the time, which a caller's p99 does not see (docs/speed.md)."""
LATER_S = 0.002
"""Seconds of the processor for a later look. These are rare, and one that comes too late hides whether a difference
lasts."""


class Budget:
    """`one_s`: processor seconds that one task may take. At most a second's worth accumulates. Thread-safe."""

    def __init__(self, per_s: float, one_s: float, clock: Callable[[], float]) -> None:
        self.per_s = per_s
        self.one_s = one_s
        self.clock = clock
        self._most = max(1.0, per_s)
        self._left = self._most
        self._at = clock()
        self._lock = Lock()

    def take(self) -> bool:
        with self._lock:
            now = self.clock()
            self._left = min(self._most, self._left + max(0.0, now - self._at) * self.per_s)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def spend(self, processor_s: float) -> None:
        """Record a task's processor time, during which callers in this process wait for the interpreter."""
        with self._lock:
            self._left -= max(0.0, processor_s / self.one_s - 1)


class Breaker:
    """Opens for a pause after so many errors in a row; then one trial decides. Thread-safe."""

    def __init__(self, after: int, pause_s: float, clock: Callable[[], float]) -> None:
        self.after = after
        self.pause_s = pause_s
        self.clock = clock
        self._failed = 0
        self._open_until = float("-inf")
        self._lock = Lock()

    @property
    def is_open(self) -> bool:
        with self._lock:
            return self._failed >= self.after and self.clock() < self._open_until

    def begins(self) -> None:
        """Record the start of a task. After too many errors it is the only trial at a time."""
        with self._lock:
            if self._failed >= self.after:
                self._open_until = self.clock() + self.pause_s

    def succeeded(self) -> None:
        with self._lock:
            self._failed = 0

    def failed(self) -> None:
        with self._lock:
            self._failed += 1
            if self._failed >= self.after:
                self._open_until = self.clock() + self.pause_s


# ──
# Shadow reads: the other side of a call is read and compared after the answer is out; the caller never waits.

ROUNDS = (0.07, 0.16, 0.25, 0.37, 0.5, 0.64, 0.83, 1.0)
"""When a difference is checked again, as shares of the time to settle. More often than by a replay, and at uneven times:
a row that changes to and fro looks the same whenever it is in flight, and must not be so at every check."""
DOUBTS_AT_ONCE = 500
"""The most differences that wait for another look, at any rate of looks."""
SAMPLES_A_CALL = 3
"""Samples of each kind of difference that one call gives."""
OTHER: Mapping[Side, Side] = {"table": "sql", "sql": "table"}


class AnsweredCall(Struct, frozen=True):
    call: ShadowedCall
    side: Side
    answer: Any
    values: Mapping[str, Any]

    @property
    def texts(self) -> dict[str, str]:
        return texts_of(self.call.pattern, self.values)

    @property
    def kind(self) -> str:
        return kind_of(self.call.pattern, self.values)


@dataclass
class _Pending:
    answered: AnsweredCall
    mismatch: PendingMismatch
    since: float
    looks: int = 0


class Shadow:
    """A context manager.

    `sampler`: by pattern.
    `lag_s`: age of the oldest change that has not reached the table.
    `clock`: monotonic seconds.
    """

    def __init__(
        self,
        settings: ShadowSettings,
        ledger: ReadMetrics,
        sampler: Callable[[str], Sampler],
        *,
        lag_s: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.ledger = ledger
        self.sampler = sampler
        self.lag_s = lag_s
        self.clock = clock
        self._running = False
        self._reset()

    def offer(self, pattern: str, answered: Callable[[], AnsweredCall]) -> None:
        """Queue a call of the other side, or count why not. Never raises or waits.

        `answered`: called only if a shadow will run.
        """
        try:
            why = self._refusal(pattern)
            if why:
                self.ledger.dropped(pattern, why)
                return
            began = time.thread_time()
            try:
                self._pool.put(self._first(answered()))
            except BaseException:
                self._pool.give_back()
                raise
            finally:
                # The result of an own function is copied here, while the caller waits.
                self._budget.spend(time.thread_time() - began)
        except TooManyError:
            self.ledger.dropped(pattern, "large")
        except SideError as error:
            self._blame(pattern, error.side, str(error), {})
        except Exception:
            # Any error here is the shadow's own, and the caller has the answer.
            self.ledger.dropped(pattern, "broken")

    @property
    def waiting(self) -> int:
        return self._pool.waiting

    def _refusal(self, pattern: str) -> str:
        """Why nothing is compared now; '' after taking a place for it."""
        if not self._running:
            return "closed"
        if random.random() >= self.settings.sample:
            return "sampled"
        breaker = self._breaker(pattern)
        if breaker.is_open:
            return "breaker"
        if not self._budget.take():
            return "budget"
        if not self._pool.take():
            return "busy"
        breaker.begins()
        return ""

    def _breaker(self, pattern: str) -> Breaker:
        breaker = self._breakers.get(pattern)
        if breaker is None:
            new_breaker = Breaker(self.settings.breaker_after, self.settings.breaker_pause_s, self.clock)
            breaker = self._breakers.setdefault(pattern, new_breaker)
        return breaker

    # ── the first comparison ──

    def _first(self, answered: AnsweredCall) -> Task:
        return Task(
            lambda task: self._look(answered, task),
            lambda: self._failed(answered, OTHER[answered.side], "its deadline is over"),
            self._budget.spend,
        )

    def _look(self, answered: AnsweredCall, task: Task) -> Callable[[], None]:
        call, other = answered.call, OTHER[answered.side]
        began = self.clock()
        try:
            bounds = self._bounds(task)
            answer = call.ask(other, bounds)
            took_ms = (self.clock() - began) * 1000
            comparison = self._compared(answered, {answered.side: answered.answer, other: answer}, bounds)
        except LoopGoneError:
            return lambda: self.ledger.dropped(call.pattern.name, "broken")
        except BaseException as error:
            # A service's function may raise what would end a thread, and this one is needed.
            side, why = blamed(error, other)
            return lambda: self._failed(answered, side, why)
        return lambda: self._judge_first(answered, other, took_ms, comparison)

    def _bounds(self, task: Task) -> Bounds:
        return Bounds(self.settings.max_rows, lambda: task.abandoned)

    def _compared(self, answered: AnsweredCall, answers: Mapping[Side, Any], bounds: Bounds) -> Comparison:
        """One at a time: each computing thread delays the callers' threads, which wait for the interpreter."""
        with self._comparing:
            bounds.check()
            return Comparison(answered.call.compared(answers["table"], answers["sql"]), {})

    def _judge_first(self, answered: AnsweredCall, other: Side, took_ms: float, look: Comparison) -> None:
        name = answered.call.pattern.name
        self.ledger.answered(name, other, took_ms)
        self._breaker(name).succeeded()
        if look.same:
            self.ledger.compared(name, "same", answered.kind)
            return
        pending = _Pending(answered, PendingMismatch(look), self.clock())
        if self._pool.waiting < self._doubts_at_once():
            self._wait(pending)
        else:
            self._unsettled(name)

    def _doubts_at_once(self) -> int:
        """Number of differences that get all their checks in time. Excess ones are dropped at once: dropping
        the oldest would bias the evidence."""
        in_time = self.settings.per_s * self.settings.settle_s / len(ROUNDS)
        return min(DOUBTS_AT_ONCE, max(1, int(in_time)))

    def _unsettled(self, name: str) -> None:
        self.ledger.dropped(name, "unsettled" if self._running else "ended")

    def _failed(self, answered: AnsweredCall, side: Side, why: str) -> None:
        name = answered.call.pattern.name
        self._breaker(name).failed()
        self._blame(name, side, why, answered.texts)

    def _blame(self, name: str, side: Side, why: str, texts: Mapping[str, str]) -> None:
        example = Example(texts, why=why)
        sample = self.sampler(name).sample(DiffKey("error", attribute=side), example, self.ledger.clock())
        self.ledger.failed(name, side, sample)

    # ── the re-checks ──

    def _wait(self, pending: _Pending) -> None:
        shares = (*ROUNDS, *(1.0 + 0.25 * extra for extra in range(1, 1 + pending.looks)))
        due = pending.since + shares[pending.looks] * self.settings.settle_s
        name = pending.answered.call.pattern.name
        again = Task(
            lambda task: self._look_again(pending, task), lambda: self._unsettled(name), self._later.spend
        )
        self._pool.put_later(due, again)

    def _look_again(self, pending: _Pending, task: Task) -> Callable[[], None]:
        """Read both sides again: the caller's answer may itself contain rows with a change in flight."""
        answered = pending.answered
        name = answered.call.pattern.name
        try:
            bounds = self._bounds(task)
            answers = {side: answered.call.ask(side, bounds) for side in OTHER}
            comparison = self._compared(answered, answers, bounds)
            is_last = pending.looks + 1 >= len(ROUNDS) and not self._is_on_its_way(pending)
        except BaseException:
            # The error hides differences, so this call cannot be judged.
            return lambda: self._unsettled(name)
        return lambda: self._judge_again(pending, comparison, is_last=is_last)

    def _is_on_its_way(self, pending: _Pending) -> bool:
        waited_s = self.clock() - pending.since
        return waited_s < LONGEST * self.settings.settle_s and self.lag_s() >= waited_s

    def _judge_again(self, pending: _Pending, comparison: Comparison, *, is_last: bool) -> None:
        pending.mismatch.looked(comparison)
        pending.looks += 1
        answered = pending.answered
        name = answered.call.pattern.name
        if not pending.mismatch.lasting:
            self.ledger.compared(name, "transient", answered.kind)
        elif not is_last:
            self._wait(pending)
        else:
            differences, samples = self._differences(pending)
            self.ledger.compared(name, "different", answered.kind, differences, samples)

    def _differences(self, pending: _Pending) -> tuple[Counter[DiffKey], list[Sample]]:
        sampler, now = self.sampler(pending.answered.call.pattern.name), self.ledger.clock()
        differences: Counter[DiffKey] = Counter()
        samples: list[Sample] = []
        for kind, example in pending.mismatch.found(pending.answered.texts):
            differences[kind] += 1
            if differences[kind] <= SAMPLES_A_CALL:
                samples.append(sampler.sample(kind, example, now))
        return differences, samples

    # ── life ──

    def __enter__(self) -> Shadow:
        self._running = True
        tell_of_forks(self)
        self._pool.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._pool.stop()

    def before_fork(self) -> None:
        return

    def after_fork(self, *, in_child: bool) -> None:
        if in_child and self._running:
            self._reset()
            self._pool.start()

    def _reset(self) -> None:
        settings = self.settings
        self._budget = Budget(settings.per_s, FIRST_S, self.clock)
        self._breakers: dict[str, Breaker] = {}
        # Later looks are as much of a load as first ones, and would get none of a budget that callers share.
        self._later = Budget(settings.per_s, LATER_S, self.clock)
        self._comparing = Lock()
        self._pool = ShadowPool(settings.at_once, settings.deadline_s, self._later.take, self.clock)
