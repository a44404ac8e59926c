from __future__ import annotations

import threading

import pytest

from migrator.model.errors import Interrupted
from migrator.runtime.retry import RateLimit


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


def test_pages_keep_to_the_rate_on_the_average() -> None:
    clock = Clock()
    pace = RateLimit(100, clock=clock.time, sleep=clock.sleep)
    for _ in range(10):
        pace.wait()
        pace.took(500)
    pace.wait()
    assert clock.now - 100 == pytest.approx(50)


def test_a_quiet_while_saves_no_more_than_one_seconds_rows() -> None:
    clock = Clock()
    pace = RateLimit(100, clock=clock.time, sleep=clock.sleep)
    clock.now += 3600
    pace.wait()
    pace.took(300)
    before = clock.now
    pace.wait()
    assert clock.now - before == pytest.approx(2)


def test_workers_share_one_bucket() -> None:
    clock = Clock()
    pace = RateLimit(10, clock=clock.time, sleep=clock.sleep)
    threads = [threading.Thread(target=pace.took, args=(5,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pace.wait()
    assert clock.now - 100 == pytest.approx(4)


def test_without_a_limit_no_reader_waits() -> None:
    clock = Clock()
    pace = RateLimit(None, clock=clock.time, sleep=clock.sleep)
    pace.took(10**9)
    pace.wait()
    assert clock.now == 100


def test_a_wait_ends_when_the_run_is_asked_to_stop() -> None:
    clock = Clock()
    pace = RateLimit(1, lambda: clock.now > 103, clock=clock.time, sleep=clock.sleep)
    pace.took(1000)
    with pytest.raises(Interrupted):
        pace.wait()
    assert clock.now < 104
