"""Threads for work that no caller waits for: a fixed number, a deadline each, and comparisons that come later."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from migrator.stages.reads.shadow import ShadowPool, Task
from tests.support_waiting import until

Done = list[str]


def always() -> bool:
    return True


@pytest.fixture
def pool() -> Iterator[ShadowPool]:
    made = ShadowPool(2, 60.0, always)
    made.start()
    yield made
    made.stop()


def task(done: Done, name: str, work: Callable[[], object] = lambda: None) -> Task:
    def run(_: Task) -> Callable[[], None]:
        work()
        return lambda: done.append(name)

    return Task(run, lambda: done.append(f"{name} late"), lambda seconds: None)


def put(pool: ShadowPool, one: Task) -> bool:
    taken = pool.take()
    if taken:
        pool.put(one)
    return taken


def test_no_more_tasks_are_taken_than_there_are_threads(pool: ShadowPool) -> None:
    done: Done = []
    go = Event()
    assert put(pool, task(done, "a", go.wait))
    assert put(pool, task(done, "b", go.wait))
    assert not put(pool, task(done, "c"))
    go.set()
    until(lambda: sorted(done) == ["a", "b"])
    until(lambda: put(pool, task(done, "c")))
    until(lambda: "c" in done)


def test_hanging_task_is_late_once_and_keeps_its_thread(pool: ShadowPool) -> None:
    done: Done = []
    go = Event()
    pool.deadline_s = 0.2
    began = time.monotonic()
    assert put(pool, task(done, "a", go.wait))
    assert put(pool, task(done, "b", go.wait))
    until(lambda: sorted(done) == ["a late", "b late"])
    assert time.monotonic() - began >= 0.2
    # Counted, but not gone: nothing is taken, and no thread is added.
    before = threading.active_count()
    assert not any(put(pool, task(done, "c")) for _ in range(100))
    assert threading.active_count() == before
    pool.deadline_s = 60
    go.set()
    until(lambda: put(pool, task(done, "d")))
    until(lambda: "d" in done)
    # What came after the deadline is dropped.
    assert sorted(done) == ["a late", "b late", "d"]


@pytest.mark.parametrize("fault", [ZeroDivisionError, SystemExit, BaseException])
def test_a_fault_costs_no_thread(pool: ShadowPool, fault: type[BaseException]) -> None:
    done: Done = []

    def fails() -> None:
        raise fault

    for _ in range(6):
        until(lambda: put(pool, task(done, "x", fails)))
    until(lambda: len(done) == 6)
    until(lambda: put(pool, task(done, "fine")))
    until(lambda: "fine" in done)


def test_later_looks_come_in_the_order_of_their_times() -> None:
    done: Done = []
    now = [1000.0]
    pool = ShadowPool(1, 60.0, always, lambda: now[0])
    pool.start()
    for name, due in (("third", 1003.0), ("first", 1001.0), ("second", 1002.0)):
        pool.put_later(due, task(done, name))
    assert (done, pool.waiting) == ([], 3)
    now[0] = 1002.5
    until(lambda: done == ["first", "second"])
    assert pool.waiting == 1
    now[0] = 1003.0
    until(lambda: done == ["first", "second", "third"])
    assert pool.waiting == 0
    pool.stop()


def test_a_later_look_that_is_not_admitted_waits_and_is_given_up() -> None:
    done: Done = []
    admitted, now = [False], [1000.0]
    pool = ShadowPool(1, 5.0, lambda: admitted[0], lambda: now[0])
    pool.start()
    pool.put_later(1000.0, task(done, "a"))
    time.sleep(0.2)
    assert (done, pool.waiting) == ([], 1)
    admitted[0] = True
    until(lambda: done == ["a"])
    admitted[0] = False
    pool.put_later(1000.0, task(done, "b"))
    now[0] += 61
    until(lambda: done == ["a", "b late"])
    # The thread that was asked about is free all the same.
    assert pool.take()
    pool.give_back()
    pool.stop()


def test_a_later_look_that_is_due_has_the_next_free_thread() -> None:
    done: Done = []
    go = Event()
    pool = ShadowPool(1, 60.0, always)
    pool.start()
    assert put(pool, task(done, "first", go.wait))
    pool.put_later(time.monotonic(), task(done, "later"))
    until(lambda: pool._is_owed)  # the watch has seen that it is due
    go.set()
    # Callers that ask all the time are not faster than the watch.
    ends_at = time.monotonic() + 120
    while not put(pool, task(done, "greedy")):
        assert time.monotonic() < ends_at
    until(lambda: "greedy" in done)
    assert done == ["first", "later", "greedy"]
    pool.stop()


def test_what_waits_at_the_end_is_given_up() -> None:
    done: Done = []
    pool = ShadowPool(1, 5.0, always)
    pool.start()
    pool.put_later(time.monotonic() + 60, task(done, "a"))
    pool.stop()
    assert done == ["a late"]
