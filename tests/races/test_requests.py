"""Requests without an answer: they land after their time-out, or twice, when something newer stands there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from migrator.stages.live.writers import fence_off
from tests.faults.schedule import Faults
from tests.races.harness import Race

# What is raced for here is in the table; the source only has to be there.
pytestmark = pytest.mark.engines("sqlite")

ANN = "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')"
OLD = "INSERT INTO users (id, name, email) VALUES (1, 'Old', 'old@x')"
BECOMES_ANN = "UPDATE users SET name = 'Ann', email = 'ann@x' WHERE id = 1"
CHANGES = {
    "changed": "UPDATE users SET name = 'Bea', email = NULL WHERE id = 1",
    "deleted": "DELETE FROM users WHERE id = 1",
    "moved": "UPDATE users SET id = 2 WHERE id = 1",
}


def writes_of_ann(times: int) -> Faults:
    """Holds the first writes back that hold her name or address; those sent after them come through."""
    left = [times]

    def holds(operation: str, body: dict[str, Any]) -> bool:
        held = operation.startswith(("Put", "BatchWrite", "BatchExecute")) and "nn" in json.dumps(body)
        left[0] -= held
        return held and left[0] >= 0

    return Faults(holds=holds)


def ann(race: Race, *, is_new: bool) -> None:
    """Her row with its mark: a new one, whose items are inserted, or one that was another's, whose items are put."""
    if is_new:
        race.sql(ANN)
        return
    race.sql(OLD)
    race.work()
    race.sql(BECOMES_ANN)


def refusal(*, is_new: bool) -> int:
    """Of a put; a batch of inserts is answered, and each of them refused in the answer."""
    return 200 if is_new else 400


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_write_landing_late_and_twice_replaces_nothing_newer(
    race: Race, change: str, *, is_new: bool
) -> None:
    ann(race, is_new=is_new)
    with race.through(writes_of_ann(2)) as (faulty, proxy):
        faulty.relay().once()
        assert (len(proxy.held), race.item("USER#1")["name"]) == (2, "Ann")
        # Twice already: the one that was sent again was heard of, this one was not.
        proxy.land()
        race.sql(CHANGES[change])
        race.work()
        before = race.stored()
        assert proxy.land() == [refusal(is_new=is_new)] * 2
        assert proxy.land() == [refusal(is_new=is_new)] * 2
    assert race.stored() == before
    race.comes_to_rest()


def test_relay_waits_until_no_fast_request_can_land(race: Race) -> None:
    """A fast batch has no condition: it may only land before the first relay reads."""
    race.sql(ANN)
    waits: list[float] = []
    with race.through(writes_of_ann(1)) as (faulty, proxy):
        writer_lease = faulty.heartbeats.enter("fast")
        faulty.copy("user", fast=True, check=writer_lease.check)
        # Its work is done, but the end of one request is not known: its lease stays.
        faulty.heartbeats.leave(writer_lease, clean=True)
        race.sql("UPDATE users SET name = 'Bea', email = NULL WHERE id = 1")

        def wait(wait_s: float) -> None:
            waits.append(wait_s)
            proxy.land()
            race.pass_time(race.heartbeats.lifetimes.gone_s)

        fence_off(race.heartbeats.writers, race.heartbeats.lifetimes, wait)
    assert len(waits) == 1
    assert race.item("USER#1")["name"] == "Ann"
    race.comes_to_rest()
    assert race.live().keys() == {("USER#1", "META")}
