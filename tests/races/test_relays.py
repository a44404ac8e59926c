"""Marks and relays: late commits, crashes, two relays at once, one that wakes up too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

import pytest

from migrator.mapping.model.live import ConditionalStore, Outcome
from migrator.mapping.model.table import EncodedItem, Item
from tests.races.harness import Pause, Race

ANN = "INSERT INTO users (id, name, email, handle) VALUES (1, 'Ann', 'ann@x', 'ann')"
BOB = "INSERT INTO users (id, name) VALUES (2, 'Bob')"
SERVERS = pytest.mark.engines("postgresql", "mariadb")
"""Races of two open transactions: SQLite has one writer."""


class CrashError(Exception):
    """The process is gone."""


@dataclass
class CutShort:
    """A store whose process dies after so many items."""

    store: ConditionalStore
    items: int
    sends_texts: bool = True

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        if len(items) > self.items:
            self.store.write(items[: self.items], fresh=fresh)
            raise CrashError
        self.items -= len(items)
        return self.store.write(items, fresh=fresh)

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        return self.store.write_together(groups)

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        return self.store.remove_tombstones(tombstones)


@SERVERS
def test_two_services_write_one_row_and_the_last_commit_stands(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    with race.shop.session() as first, race.shop.session() as second:
        first.begin("UPDATE users SET name = 'First', email = 'first@x' WHERE id = 1")
        # Waits for the row.
        waiting = Thread(
            target=lambda: second.begin("UPDATE users SET name = 'Second', handle = NULL WHERE id = 1")
        )
        waiting.start()
        first.commit()
        waiting.join(120)
        # The second one is under way still: its mark is not there, its change neither.
        race.work()
        assert race.item("USER#1")["name"] == "First"
        second.commit()
    race.comes_to_rest()
    assert race.live().keys() == {("USER#1", "META"), ("EMAIL#first@x", "META")}
    assert race.item("USER#1")["name"] == "Second"


@SERVERS
@pytest.mark.triggers
def test_commit_after_higher_finished_marks_is_not_missed(race: Race) -> None:
    race.sql(ANN, BOB)
    race.fill()
    with race.shop.session() as slow:
        slow.begin("UPDATE users SET name = 'Late' WHERE id = 1")
        race.sql("UPDATE users SET name = 'Early' WHERE id = 2")
        worked = race.mark_ids()
        race.work()
        assert (race.mark_ids(), race.item("USER#2")["name"]) == ([], "Early")
        slow.commit()
    late = race.mark_ids()
    assert max(late) < min(worked)
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "Late"


def test_a_crash_after_any_of_the_items_of_a_row_converges(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    for written in range(6):
        old, new = f"h{written}", f"h{written + 1}"
        race.sql(f"UPDATE users SET name = '{new}', email = '{new}@x', handle = '{new}' WHERE id = 1")
        relay = race.relay(lease_s=0)
        relay.refresh.store = CutShort(race.beside.store, written)
        if written < 5:  # two tombstones, three items
            with pytest.raises(CrashError):
                relay.once()
            assert len(race.mark_ids()) == 1
        else:
            relay.once()
        race.work()
        assert race.live().keys() == {
            ("USER#1", "META"),
            (f"EMAIL#{new}@x", "META"),
            (f"HANDLE#{new}", "META"),
        }
        assert (f"HANDLE#{old}", "META") not in race.live()
    race.comes_to_rest()


def test_a_relay_that_was_paused_past_its_lease_does_no_harm(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    race.sql("UPDATE users SET name = 'Old', email = 'old@x' WHERE id = 1")

    def while_it_sleeps() -> None:
        race.sql("UPDATE users SET name = 'New', email = NULL WHERE id = 1")
        assert sum(worked.finished for worked in race.work()) == 2

    worked = race.relay(Pause(while_it_sleeps), lease_s=0).once()
    assert worked.refreshed[0].newer > 0
    assert race.item("USER#1")["name"] == "New"
    race.comes_to_rest()
    assert race.live().keys() == {("USER#1", "META"), ("HANDLE#ann", "META")}


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_a_relays_clock_decides_nothing(race: Race, skew_s: int) -> None:
    """A relay whose clock is an hour off and one that is right, in turns on one row."""
    race.sql(ANN)
    skewed, right = race.relay(lease_s=0), race.relay(lease_s=0)
    clock = skewed.refresh.clock
    skewed.refresh.clock = lambda: clock() + skew_s
    for number, relay in enumerate([skewed, right, skewed, right]):
        race.sql(f"UPDATE users SET name = 'N{number}', email = 'n{number}@x' WHERE id = 1")
        relay.once()
        assert race.item("USER#1")["name"] == f"N{number}"
        assert f"EMAIL#n{number}@x" in {key[0] for key in race.live()}
    race.sql("DELETE FROM users WHERE id = 1")
    skewed.once()
    race.copy("user")
    assert race.live() == {}
    race.comes_to_rest()
