"""A backfill beside a service and a relay: what it read is older than what stands there."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from migrator.runtime.errors import StoppedError
from tests import pins
from tests.faults.schedule import Faults
from tests.races.harness import Pause, Race

ANN = "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')"
ORDERS = [
    "".join(order)
    for order in permutations("RWCM")
    if order.index("R") < order.index("W") and order.index("C") < order.index("M")
]
"""Every order of: the page is read (R), the page is written (W), the row changes (C), its mark is worked (M)."""
CHANGES = {
    "update": "UPDATE users SET name = 'Bea', email = 'b{0}@x' WHERE id = {0}",
    "delete": "DELETE FROM users WHERE id = {0}",
    "insert": "INSERT INTO users (id, name, email) VALUES ({0}, 'New', 'n{0}@x')",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fast", [False, True], ids=["conditional", "fast"])
def test_every_order_of_page_change_and_mark_gives_the_row(race: Race, change: str, *, fast: bool) -> None:
    # A relay waits until the fast run's last request is over, so with it no mark is worked before the page is written.
    orders = [order for order in ORDERS if not fast or order.index("W") < order.index("M")]
    for number, order in enumerate(orders, start=1):
        if change != "insert":
            race.sql(f"INSERT INTO users (id, name, email) VALUES ({number}, 'Ann', 'a{number}@x')")
            race.sql(f"DELETE FROM {race.shop.mark_table}")
        steps: dict[str, Callable[[], object]] = {
            "C": lambda number=number: race.sql(CHANGES[change].format(number)),  # type: ignore[misc]
            "M": race.work,
        }

        def play(part: str, steps: dict[str, Callable[[], object]] = steps) -> None:
            for letter in part:
                steps[letter]()

        before, _, rest = order.partition("R")
        between, _, after = rest.partition("W")
        play(before)
        race.copy("user", fast=fast, keys=[f"[{number}]"], after_read=lambda part=between: play(part))  # type: ignore[misc]
        play(after)
    race.comes_to_rest()
    expected = {"update": 2 * len(orders), "delete": 0, "insert": 2 * len(orders)}
    assert len(race.live()) == expected[change]


def test_crashed_fast_run_continues_conditionally_with_a_relay(race: Race) -> None:
    race.sql(ANN, "INSERT INTO users (id, name) VALUES (2, 'Bob')")
    writer_lease = race.heartbeats.enter("fast")
    race.copy("user", fast=True, keys=["[1]"], check=writer_lease.check)
    race.heartbeats.leave(writer_lease, clean=False)
    race.sql("UPDATE users SET name = 'Bea' WHERE id = 1")
    race.heartbeats.enter("relay")
    assert race.heartbeats.enter("fast").writer.kind == "conditional"

    race.copy("user", after_read=race.work)
    assert race.item("USER#1")["name"] == "Bea"
    race.comes_to_rest()


@pytest.mark.parametrize("fast", [False, True], ids=["conditional", "fast"])
def test_items_that_a_batch_leaves_unprocessed_are_sent_again(race: Race, *, fast: bool) -> None:
    rows = ", ".join(f"({number}, 'U{number}', 'u{number}@x')" for number in range(1, 16))
    race.sql(f"INSERT INTO users (id, name, email) VALUES {rows}")
    faults = Faults(unprocessed=0.2, seed=5)
    with race.through(faults) as (faulty, _):
        faulty.copy("user", fast=fast)
    assert faults.counts["unprocessed"] > 0
    assert len(race.live()) == 30
    race.comes_to_rest()


def test_a_key_that_is_never_taken_leaves_its_mark(race: Race) -> None:
    race.sql(ANN, "UPDATE users SET name = 'Bea' WHERE id = 1")
    with race.through(Faults(throttle=1.0)) as (faulty, _), pins.refused(StoppedError):
        faulty.relay(lease_s=0).once()
    assert len(race.mark_ids()) == 2
    race.comes_to_rest()


def test_backfill_stopped_between_read_and_write_writes_nothing(race: Race) -> None:
    race.sql(ANN)

    def stop() -> None:
        raise StoppedError("the run has lost its lease")

    with pytest.raises(StoppedError):
        race.copy("user", check=Pause(stop))
    assert race.live() == {}
    race.comes_to_rest()
