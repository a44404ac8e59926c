"""Keys that change, that move from row to row, that two rows want, and that are made of two rows."""

from __future__ import annotations

import pytest

from migrator.stages.live.refresh import collision_findings
from tests.races.harness import Pause, Race

TWO = (
    "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'x@x')",
    "INSERT INTO users (id, name, email) VALUES (2, 'Bob', NULL)",
)


def test_a_changed_index_key_moves_the_index_entry(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    race.sql("UPDATE users SET name = 'Zoe' WHERE id = 1", "DELETE FROM users WHERE id = 2")
    race.comes_to_rest()
    assert {item.get("GSI1PK") for item in race.stored() if "GSI1PK" in item} == {"NAME#Zoe"}
    assert not [item for item in race.tombstones().values() if "GSI1PK" in item]


def test_a_unique_value_goes_round_three_rows_in_one_transaction(race: Race) -> None:
    race.sql(*TWO, "INSERT INTO users (id, name, email) VALUES (3, 'Cid', 'z@x')")
    race.fill()
    with race.shop.session() as service:
        service.begin(
            "UPDATE users SET email = 'y@x' WHERE id = 2",
            "UPDATE users SET email = NULL WHERE id = 1",
            "UPDATE users SET email = 'x@x' WHERE id = 3",
            "UPDATE users SET email = 'z@x' WHERE id = 1",
        )
        service.commit()
    race.comes_to_rest()
    assert {key: race.item(key)["user"] for key in ("EMAIL#x@x", "EMAIL#y@x", "EMAIL#z@x")} == {
        "EMAIL#x@x": 3,
        "EMAIL#y@x": 2,
        "EMAIL#z@x": 1,
    }


@pytest.mark.parametrize("how", ["changes", "is deleted"])
def test_key_of_two_rows_passes_to_the_second_once_given_up(race: Race, how: str) -> None:
    race.sql(*TWO, "UPDATE users SET handle = 'same' WHERE id = 1")
    race.work()
    race.sql("UPDATE users SET handle = 'same' WHERE id = 2")
    refreshed = [refresh for worked in race.work() for refresh in worked.refreshed]
    findings = [finding for refresh in refreshed for finding in collision_findings(refresh)]
    # Both rows have a finding, nothing is overwritten, and verify reports it until one gives the key up.
    assert [(refresh.kind, refresh.source_key) for refresh in findings] == [("collision", "[2]")]
    assert race.item("HANDLE#same")["user"] == 1
    assert race.differences() == {"collision": 1}
    race.sql(
        "UPDATE users SET handle = NULL WHERE id = 1"
        if how == "changes"
        else "DELETE FROM users WHERE id = 1"
    )
    race.comes_to_rest()
    assert race.item("HANDLE#same")["user"] == 2


def test_a_claim_that_is_withdrawn_is_forgotten(race: Race) -> None:
    race.sql(*TWO, "UPDATE users SET handle = 'same' WHERE id IN (1, 2)")
    race.work()
    assert race.differences() == {"collision": 1}
    loser = 3 - int(str(race.item("HANDLE#same")["user"]))
    race.sql(f"UPDATE users SET handle = 'own' WHERE id = {loser}")
    race.comes_to_rest()
    assert race.beside.session.memory.requests_of([("HANDLE#same", "META")]) == []


# ── keys of two rows ──


@pytest.mark.parametrize("first", ["tag", "order"])
@pytest.mark.parametrize("fast", [False, True], ids=["conditional", "fast"])
def test_parent_and_child_of_one_key_change_in_two_transactions(
    race: Race, first: str, *, fast: bool
) -> None:
    race.sql(*TWO, "INSERT INTO orders (id, user_id, total) VALUES (5, 1, 10)")
    race.sql("INSERT INTO tags (id, order_id, label) VALUES (9, 5, 'old')")
    race.fill(fast=fast)
    assert ("TAGS#1", "old#9") in race.live()
    changes = {
        "tag": "UPDATE tags SET label = 'new' WHERE id = 9",
        "order": "UPDATE orders SET user_id = 2 WHERE id = 5",
    }
    race.sql(changes.pop(first))
    # Read between the two: the key in between belongs to no row, neither before nor after.
    between = ("TAGS#1", "new#9") if first == "tag" else ("TAGS#2", "old#9")
    race.relay(Pause(lambda: race.sql(*changes.values())), lease_s=0).once()
    assert between in race.live()
    race.comes_to_rest()
    assert {key for key in race.live() if key[0].startswith("TAGS")} == {("TAGS#2", "new#9")}
    assert between in race.tombstones()
