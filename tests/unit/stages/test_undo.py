from __future__ import annotations

from collections import Counter
from threading import Event

import pytest

from migrator.model.errors import Interrupted, StoppedError
from migrator.model.table import TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.stages.removal import Undo
from tests import pins
from tests.fakes.store import FakeStore
from tests.support_fence import no_fence

TABLE = TableDesign("T", (KeyAttribute("PK"), KeyAttribute("SK")), "type")


def item(number: int, source: str | None) -> Item:
    made: Item = {"PK": f"P#{number}", "SK": "S", "type": "Order" if number % 2 else "Line"}
    return made if source is None else {**made, "_src": source}


ITEMS = [
    *(item(number, f"order:[{number}]") for number in range(40)),
    item(90, None),
    item(91, "user:[1]"),
    item(92, "order"),
    item(93, "order:no key"),
    item(94, "ordering:[1]"),
]


def filled() -> FakeStore:
    store = FakeStore(TABLE, no_fence)
    store.put(ITEMS)
    return store


def test_a_count_says_what_a_delete_takes_away_and_deletes_nothing() -> None:
    store = filled()
    counts = Undo(store, TABLE, frozenset({"order"}), no_fence).count()
    assert counts.types == Counter({("order", "Order"): 20, ("order", "Line"): 20})
    assert (counts.items, counts.gone, counts.others) == (40, 0, 5)
    assert len(store.items) == 45


def test_items_of_others_stay() -> None:
    store = filled()
    counts = Undo(store, TABLE, frozenset({"order"}), no_fence, segments=3, workers=2).delete()
    assert (counts.items, counts.gone, counts.others) == (40, 40, 5)
    assert sorted(str(key[0]) for key in store.items) == ["P#90", "P#91", "P#92", "P#93", "P#94"]
    again = Undo(store, TABLE, frozenset({"order"}), no_fence).delete()
    assert (again.items, again.gone) == (0, 0)


def test_tombstones_and_the_control_item_are_neither_ours_nor_anothers() -> None:
    store = filled()
    dead: Item = {"PK": "P#7", "SK": "OLD", "type": TOMBSTONE, "_src": "order:[7]", "_tk": 3}
    store.put([dead])
    store.raise_control(3)
    undo = Undo(store, TABLE, frozenset({"order"}), no_fence)
    assert (undo.count().items, undo.count().others) == (40, 5)
    counts = undo.delete()
    assert (counts.items, counts.gone, counts.others) == (40, 40, 5)
    assert store.items["P#7", "OLD"] == dead
    assert store.read_control().ticket == 3


def test_an_item_that_changes_hands_before_its_delete_stays() -> None:
    store = filled()

    def meanwhile() -> None:
        store.items["P#7", "S"]["_src"] = "user:[7]"

    counts = Undo(store, TABLE, frozenset({"order"}), meanwhile, segments=1).delete()
    assert counts.gone == 39
    assert ("P#7", "S") in store.items


def test_it_stops_when_asked_and_when_the_lease_is_lost() -> None:
    stop = Event()
    stop.set()
    with pins.refused(Interrupted):
        Undo(filled(), TABLE, frozenset({"order"}), no_fence, stop=stop).delete()

    def lost() -> None:
        raise StoppedError("the lease")

    store = filled()
    with pytest.raises(StoppedError):
        Undo(store, TABLE, frozenset({"order"}), lost).delete()
    assert len(store.items) == 45
