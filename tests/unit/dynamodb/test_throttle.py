from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

import pytest

from migrator.dynamodb.throttle import TABLE, WINDOW_S, WriteLimit
from migrator.runtime.errors import Interrupted
from migrator.runtime.retry import Retry
from tests.fakes.time import VirtualTime


class Table:
    """Consumes what it is told to, somewhere between request and answer, and keeps book of it."""

    def __init__(self, time: VirtualTime, limit: WriteLimit, latency_s: float, seed: int = 1) -> None:
        self.time = time
        self.limit = limit
        self.latency_s = latency_s
        self.random = random.Random(seed)
        self.book: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def write(self, units: float, **consumed: float) -> None:
        with self.limit.request(units) as request:
            before_s = self.random.uniform(0, self.latency_s)
            self.time.sleep(before_s)
            taken = {TABLE: units, **consumed}
            for meter, spent in taken.items():
                self.book[meter].append((self.time.now, spent))
            self.time.sleep(self.random.uniform(0, self.latency_s))
            request.consumed = taken

    def write_times(self, times: int, units: float, **consumed: float) -> None:
        for _ in range(times):
            self.write(units, **consumed)

    def worst(self, meter: str = TABLE) -> float:
        """The most units of any WINDOW_S seconds, both ends included."""
        entries = self.book[meter]
        return max(
            sum(units for at, units in entries if start <= at <= start + WINDOW_S) for start, _ in entries
        )

    def rate(self, meter: str = TABLE) -> float:
        return sum(units for _, units in self.book[meter]) / self.time.now


def made(units_per_s: float, latency_s: float = 0.05, indexes: tuple[str, ...] = ()) -> Table:
    time = VirtualTime()
    return Table(time, WriteLimit(units_per_s, indexes, time.sleep, time.clock), latency_s)


def workers(number: int, work: Callable[[], None]) -> list[Callable[[], None]]:
    return [work] * number


@pytest.mark.parametrize("number", [1, 4, 16])
@pytest.mark.parametrize("latency_s", [0.0, 0.02, 3.0])
@pytest.mark.parametrize("units_per_s", [25, 100, 1000])
def test_any_ten_seconds_hold_the_limit(number: int, latency_s: float, units_per_s: int) -> None:
    table = made(units_per_s, latency_s)

    def work() -> None:
        for size in range(160 // number):
            table.write(1 + size % 25)

    table.time.run(*workers(number, work))
    assert table.worst() <= units_per_s * WINDOW_S


def test_the_limit_is_used_up() -> None:
    table = made(100)
    table.time.run(*workers(4, lambda: table.write_times(100, 25)))
    assert 95 <= table.rate() <= 102


def test_an_index_that_consumes_more_holds_as_well() -> None:
    table = made(100, indexes=("GSI1", "GSI2"))
    table.time.run(*workers(4, lambda: table.write_times(60, 20, GSI1=40, GSI2=5)))
    assert table.worst("GSI1") <= 1000
    assert table.worst("GSI2") <= table.worst(TABLE) <= 500
    assert 90 <= table.rate("GSI1") <= 104


def test_an_index_that_was_not_named_holds_as_soon_as_it_is_seen() -> None:
    table = made(100)
    table.time.run(*workers(2, lambda: table.write_times(60, 20, Later=40)))
    assert table.worst("Later") <= 1000


def test_a_wrong_estimate_is_paid_back() -> None:
    table = made(100)

    def work() -> None:
        for _ in range(50):
            table.write(10, **{TABLE: 60})

    table.time.run(*workers(2, work))
    # Six times the estimate: past the bound by no more than what was under way when it was first seen.
    assert table.worst() <= 1000 + 2 * 60
    assert table.rate() <= 104


def test_write_over_the_window_goes_alone_and_is_paid_back() -> None:
    table = made(1)
    table.time.run(*workers(2, lambda: table.write_times(3, 40)))
    assert table.worst() == 40
    assert table.rate() <= 1.3


def test_a_failed_request_counts_as_its_estimate() -> None:
    table = made(10, latency_s=0)

    def work() -> None:
        for _ in range(30):
            with pytest.raises(OSError), table.limit.request(10):
                raise OSError

    table.time.run(work)
    assert table.time.now >= 28


def test_a_throttle_halves_the_rate_and_it_comes_back_bit_by_bit() -> None:
    time = VirtualTime()
    limit = WriteLimit(100, (), time.sleep, time.clock)
    for _ in range(5):
        limit.throttled()
    assert limit.rate == 50
    time.sleep(1)
    limit.throttled()
    assert limit.rate == 27.5
    for _ in range(50):
        time.sleep(1)
        limit.throttled()
    assert limit.rate == 10
    time.sleep(1)
    limit.throttled()
    time.sleep(8)
    with limit.request(1):
        assert limit.rate == 50
    time.sleep(60)
    with limit.request(1):
        assert limit.rate == 100


def test_a_run_that_is_to_stop_does_not_sit_out_the_wait() -> None:
    time = VirtualTime()
    retry = Retry(stop=lambda: time.now > 1, sleep=time.sleep)
    limit = WriteLimit(1, (), retry.wait, time.clock)
    with limit.request(9) as request:
        request.consumed = {TABLE: 400.0}
    with pytest.raises(Interrupted), limit.request(1):
        raise AssertionError("there is no room")
    assert time.now < 2


def test_a_limit_that_is_set_while_at_work_holds_from_then_on() -> None:
    """Without one nothing waits; a lower one counts what was spent under a higher one."""
    table = made(1000)
    limit = table.limit
    limit.change(None)
    began = table.time.now
    for _ in range(100):
        with limit.request(1000):
            pass
    assert table.time.now == began
    limit.change(25)
    for _ in range(40):
        with limit.request(25) as request:
            request.consumed = {TABLE: 25}
    assert table.time.now - began >= 35


def test_a_limit_that_is_taken_away_lets_go_at_once() -> None:
    time = VirtualTime()
    limit = WriteLimit(1, (), time.sleep, time.clock)
    with limit.request(1) as request:
        request.consumed = {TABLE: 1}
    limit.change(None)
    before = time.now
    with limit.request(1000):
        limit.throttled()
    assert time.now == before
