"""What keeps shadows from becoming a load."""

from __future__ import annotations

from migrator.stages.reads.shadow import Breaker, Budget

ONE_S = 0.002


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_gives_so_many_in_a_second() -> None:
    clock = Clock()
    budget = Budget(10, ONE_S, clock)
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]
    clock.now += 0.5
    assert [budget.take() for _ in range(6)] == [True] * 5 + [False]
    # However long none was taken, there is one second's worth.
    clock.now += 3600
    assert sum(budget.take() for _ in range(100)) == 10


def test_a_budget_below_one_gives_one_now_and_then() -> None:
    clock = Clock()
    budget = Budget(0.1, ONE_S, clock)
    assert [budget.take(), budget.take()] == [True, False]
    clock.now += 9
    assert not budget.take()
    clock.now += 1.1
    assert budget.take()


def test_what_takes_the_processor_for_long_counts_as_several() -> None:
    clock = Clock()
    budget = Budget(10, ONE_S, clock)
    assert budget.take()
    budget.spend(ONE_S / 2)
    assert budget.take()
    budget.spend(ONE_S * 15)
    # Six more than there were.
    clock.now += 0.5
    assert not budget.take()
    clock.now += 0.3
    assert budget.take()


def test_a_breaker_opens_after_errors_in_a_row_and_lets_one_try() -> None:
    clock = Clock()
    breaker = Breaker(3, 30, clock)
    for _ in range(2):
        breaker.failed()
    breaker.succeeded()
    for _ in range(3):
        assert not breaker.is_open
        breaker.failed()
    assert breaker.is_open
    clock.now += 30
    assert not breaker.is_open
    breaker.begins()
    # While the trial runs no other one does.
    assert breaker.is_open
    breaker.failed()
    clock.now += 29
    assert breaker.is_open
    clock.now += 1
    breaker.begins()
    breaker.succeeded()
    assert not breaker.is_open
