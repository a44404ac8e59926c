"""A service is killed with -9 between any two steps of a transaction, and a relay heals what it left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.service.killed import ROWS, TRANSACTIONS, End, Life, before, killing
from tests.service.shop import Shop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engines("postgresql", pytest.param("mariadb", marks=pytest.mark.nightly)),
]
REST_S = 60.0
MOST_STEPS = 75
"""Of one transaction; it says for how many kills there are rows."""


def comes_to_rest(shop: Shop) -> None:
    """All marks are ripe and worked, and items are what the rows say."""
    ends_at = time.monotonic() + REST_S
    while shop.marks():
        shop.done("relay", "--once")
        assert time.monotonic() < ends_at, f"{shop.marks()} marks left"
        time.sleep(0.2)
    shop.comes_to_rest()


def killed_at_each(
    kill: Callable[[Life], End], mode: str, transaction: str, firsts: Iterator[int], steps: range
) -> int:
    """How often a service was killed, each time some steps later, until one came to its end."""
    for kills, last in enumerate(steps):
        end = kill(Life(mode, transaction, next(firsts), last))
        while "longest_transaction_s" in end.fault:
            # A busy machine let it be late, so it was rolled back; what it left is healed, too.
            end = kill(Life(mode, transaction, next(firsts), last))
        assert not end.fault, end.fault
        if not end.at:
            assert len(end.steps) < last
            return kills
    raise AssertionError(f"{transaction} has more than {steps.stop} steps")


def killed_everywhere(shop: Shop, mode: str, stride: int) -> int:
    """How often, in all transactions; each kill meets rows of its own, so that all are healed at the same time."""
    shop.job.write_text(shop.job.read_text().replace("request_life_s: 1,", "request_life_s: 0.3,"))
    count = len(TRANSACTIONS) * (MOST_STEPS // stride + 2)
    firsts = [ROWS * number for number in range(1, count + 1)]
    before(shop.engine, firsts)
    shop.done("backfill")
    rows, kills = iter(firsts), 0
    with killing(shop) as kill:
        for number, name in enumerate(TRANSACTIONS):
            steps = range(1 + number % stride, MOST_STEPS, stride)
            kills += killed_at_each(kill, mode, name, rows, steps)
    return kills


@pytest.mark.parametrize(("mode", "stride"), [("strict", 1), ("flush", 2)])
def test_service_killed_between_any_two_steps_loses_nothing(shop: Shop, mode: str, stride: int) -> None:
    kills = killed_everywhere(shop, mode, stride)
    print(f"\n{shop.engine_name}, {mode}: {kills} kills, {shop.marks()} marks left")
    assert kills > 100 // stride
    comes_to_rest(shop)
