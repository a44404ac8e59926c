"""Marks and relays: late commits, crashes, two relays at once, one that wakes up too late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

import pytest

from migrator.mapping.model.live import ConditionalStore, Outcome
from migrator.mapping.model.table import Item
from migrator.runtime.errors import StoppedError
from tests.fakes.encoded import ByItems
from tests.races.harness import Pause, Race

ANN = "INSERT INTO users (id, name, email, handle) VALUES (1, 'Ann', 'ann@x', 'ann')"
BOB = "INSERT INTO users (id, name) VALUES (2, 'Bob')"
SERVERS = pytest.mark.engines("postgresql", "mariadb")
"""Races of two open transactions: SQLite has one writer."""


class CrashError(Exception):
    """The process is gone."""


def crash() -> None:
    raise CrashError


@dataclass
class CutShort(ByItems):
    """A store whose process dies after so many items."""

    store: ConditionalStore
    items: int

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        if len(items) > self.items:
            self.store.write(items[: self.items], fresh=fresh)
            raise CrashError
        self.items -= len(items)
        return self.store.write(items, fresh=fresh)

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
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
def test_a_commit_that_comes_after_higher_marks_were_worked_is_not_missed(race: Race) -> None:
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


def test_a_rolled_back_change_leaves_no_mark_and_no_item(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    with race.shop.session() as service:
        service.begin("UPDATE users SET name = 'Never', email = 'never@x' WHERE id = 1", BOB)
        service("ROLLBACK")
    assert race.mark_ids() == []
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "Ann"


def test_a_rollback_after_the_item_was_written_is_healed_by_its_pre_mark(race: Race) -> None:
    """What a strict writer does: it marks the root and its keys, commits that, writes the items, and then rolls back."""
    race.sql(ANN)
    race.fill()
    user, refresh = race.entity("user"), race.beside.refresh(lambda: None)
    race.shop.live.marks.add({("user", "[1]"): [("EMAIL#never@x", "META")]})
    ticket = race.shop.live.tickets.draw()
    own_attributes: Item = {"_src": "user:[1]", "_tk": ticket, "_rev": refresh.revision}
    written: list[Item] = [
        {"PK": "USER#1", "SK": "META", "type": "User", "name": "Never", **own_attributes},
        {"PK": "EMAIL#never@x", "SK": "META", "type": "Email", "user": 1, **own_attributes},
    ]
    assert {outcome.verdict for outcome in race.beside.store.write(written)} == {"stored"}
    assert user.name == "user"
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "Ann"
    assert ("EMAIL#never@x", "META") in race.tombstones()


def test_a_crash_after_the_items_and_before_the_mark_repeats_work_and_loses_none(race: Race) -> None:
    race.sql(ANN)
    relay = race.relay(lease_s=0)
    relay._put_away = lambda *_: crash()  # type: ignore[method-assign]
    with pytest.raises(CrashError):
        relay.once()
    assert len(race.live()) == 3
    assert len(race.mark_ids()) == 1
    race.comes_to_rest()


def test_a_crash_before_the_items_leaves_the_mark(race: Race) -> None:
    race.sql(ANN)
    marks = race.mark_ids()
    with pytest.raises(CrashError):
        race.relay(Pause(crash), lease_s=0).once()
    assert (race.stored(), race.mark_ids()) == ([], marks)
    race.comes_to_rest()


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


def test_a_row_that_makes_fewer_items_than_before_loses_the_others(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    race.sql("UPDATE users SET email = NULL, handle = NULL WHERE id = 1")
    race.comes_to_rest()
    assert race.live().keys() == {("USER#1", "META")}
    assert len(race.tombstones()) == 2


def test_marks_that_are_worked_again_or_by_two_change_nothing(race: Race) -> None:
    race.sql(ANN, "UPDATE users SET name = 'Bea' WHERE id = 1")
    first, second = race.relay(lease_s=0), race.relay(lease_s=0)
    marks = first.marks.take(100, 0)
    worked = second.once()
    assert (worked.finished, len(marks)) == (2, 2)
    first.refresh(first.reach(marks[0]))
    first.marks.finish([mark.id for mark in marks])
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


def test_two_changes_that_are_applied_in_the_other_order_give_the_last_one(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    race.sql("UPDATE users SET name = 'A' WHERE id = 1")
    with race.aside() as first:
        race.sql("UPDATE users SET name = 'B' WHERE id = 1")
        race.work()
        assert (race.item("USER#1")["name"], race.mark_ids()) == ("B", [first[0].id])
    race.comes_to_rest()
    assert race.item("USER#1")["name"] == "B"


def test_a_key_that_goes_there_and_back_is_right_in_every_order_of_its_marks(race: Race) -> None:
    """A → B → A, the first mark worked last, and a backfill that holds the key in between."""
    race.sql(ANN)
    race.fill()
    race.sql("UPDATE users SET email = 'b@x' WHERE id = 1")

    def meanwhile() -> None:
        race.sql("UPDATE users SET email = 'ann@x' WHERE id = 1")
        with race.aside():
            race.work()

    race.copy("user", after_read=meanwhile)
    race.comes_to_rest()
    assert ("EMAIL#ann@x", "META") in race.live()
    assert ("EMAIL#b@x", "META") in race.tombstones()


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


def test_a_relay_whose_edge_gives_up_keeps_every_mark(race: Race) -> None:
    race.sql(ANN, BOB)
    marks = race.mark_ids()

    def give_up() -> None:
        raise StoppedError("DynamoDB gave up")

    with pytest.raises(StoppedError):
        race.relay(Pause(give_up), lease_s=0).once()
    assert race.mark_ids() == marks
    race.comes_to_rest()
