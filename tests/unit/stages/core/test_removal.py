"""Strip: what is ours, what is others', and where it goes on."""

from __future__ import annotations

from collections import Counter
from threading import Event

import pytest

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.journal import Run, RunIdentity
from migrator.mapping.model.table import CONTROL, TOMBSTONE, Item, KeyAttribute, TableDesign
from migrator.runtime.errors import Interrupted, StoppedError
from migrator.runtime.values import replace
from migrator.stages.core.removal import Strip, Undo
from tests import pins
from tests.fakes.store import FakeStore
from tests.fakes.stripping import FakeStripping
from tests.support_fence import no_fence
from tests.support_items import put_items

TABLE = TableDesign("T", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
ENTITIES = frozenset({"order"})


def item(number: int, source: object, type_: str = "Order") -> Item:
    return {"PK": f"P#{number:03}", "SK": "S", "type": type_, "_src": source}  # type: ignore[dict-item]


ITEMS = [
    *(item(number, f"order:[{number}]") for number in range(40)),
    item(90, "user:[1]"),
    item(91, "order"),
    item(92, 7),
    item(93, "order:[93]", TOMBSTONE),
    item(94, "", CONTROL),
]


class Shop:
    def __init__(self) -> None:
        self.store = FakeStore(TABLE, no_fence)
        put_items(self.store, ITEMS)
        self.stripping = FakeStripping(self.store)
        self.journal = SqlJournal.in_memory()
        self.run: Run = self.journal.start_run(RunIdentity("strip", "shop", "T", "rev"))
        self.stage = Strip(
            self.store, TABLE, ENTITIES, no_fence, segments=1, workers=1, stripping=self.stripping
        )


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_a_count_changes_nothing(shop: Shop) -> None:
    assert shop.stage.count() == Counter(items=40, own=2, others=3)
    assert len([one for one in shop.store.items.values() if "_src" in one]) == 45


def test_ours_are_stripped_our_own_go_and_others_stay(shop: Shop) -> None:
    stage = replace(shop.stage, segments=3, workers=2)
    assert stage.run(shop.journal, shop.run) == Counter(items=40, stripped=40, own=2, removed=2, others=3)
    left = {key[0] for key, one in shop.store.items.items() if "_src" in one}
    assert left == {"P#090", "P#091", "P#092"}
    assert len(shop.store.items) == 43
    assert stage.run(shop.journal, shop.run) == Counter(items=40, stripped=40, own=2, removed=2, others=3)
    assert sum(shop.stripping.asked) == 40


def test_it_resumes_behind_the_last_page_that_is_done(shop: Shop) -> None:
    pages = 3

    def check() -> None:
        nonlocal pages
        pages -= 1
        if pages < 0:
            raise StoppedError("the lease is lost")

    with pytest.raises(StoppedError):
        replace(shop.stage, check=check).run(shop.journal, shop.run)
    done = sum(shop.stripping.asked)
    assert 0 < done < 40
    assert shop.stage.run(shop.journal, shop.run) == Counter(
        items=40, stripped=40, own=2, removed=2, others=3
    )
    assert sum(shop.stripping.asked) == 40


def test_it_stops_when_requested(shop: Shop) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Interrupted):
        replace(shop.stage, stop=stop).run(shop.journal, shop.run)
    assert shop.stripping.asked == []


def sourced(number: int, source: str | None) -> Item:
    made: Item = {"PK": f"P#{number}", "SK": "S", "type": "Order" if number % 2 else "Line"}
    return made if source is None else {**made, "_src": source}


SOURCED = [
    *(sourced(number, f"order:[{number}]") for number in range(40)),
    sourced(90, None),
    sourced(91, "user:[1]"),
    sourced(92, "order"),
    sourced(93, "order:no key"),
    sourced(94, "ordering:[1]"),
]


def filled() -> FakeStore:
    store = FakeStore(TABLE, no_fence)
    put_items(store, SOURCED)
    return store


def test_count_reports_a_deletes_items_and_deletes_nothing() -> None:
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


def test_tombstones_and_control_item_are_neither_ours_nor_others() -> None:
    store = filled()
    dead: Item = {"PK": "P#7", "SK": "OLD", "type": TOMBSTONE, "_src": "order:[7]", "_tk": 3}
    put_items(store, [dead])
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


def test_removal_stops_on_request_and_on_a_lost_lease() -> None:
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
