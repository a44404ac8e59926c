"""Rows and the rows that items make are compared both ways, in pages; what differs is named by key, and mended."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from migrator.mapping.model.live import RowsVerified
from migrator.mapping.model.table import Item
from migrator.settings.transforms import with_writes
from migrator.stages.reverse.daemon import DirectChangedError, WhileDirect
from migrator.stages.reverse.verify import RowVerify
from tests.fakes.progress import Silent
from tests.unit.stages.core.reverse_world import Shop, customer, hot, line, order


class Waiting(Event):
    """An event of which nobody waits really: `meanwhile` happens instead."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.meanwhile = meanwhile
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        self.meanwhile()
        return self.is_set()


@dataclass
class Compared:
    """`stop.meanwhile`: what happens while a difference is waited for."""

    shop: Shop
    stop: Waiting = field(default_factory=lambda: Waiting(lambda: None))

    def _pages(self) -> Iterator[list[Item]]:
        items = [dict(item) for item in self.shop.world.fake.items.values()]
        yield from (items[start : start + 2] for start in range(0, len(items), 2))

    def verify(self) -> RowVerify:
        shop = self.shop
        edges = (shop.reverse(), shop.source, shop.checked.entities, self._pages)
        return RowVerify(*edges, self.stop, shop.clock, Silent(), page_rows=2, settle_s=15.0)

    def run(self) -> RowsVerified:
        return self.verify().run()


def told(result: RowsVerified) -> set[tuple[str, str, str, str]]:
    assert sum(result.counts.values()) == len(result.differences)
    return {(one.kind, one.table, one.key, one.why) for one in result.differences}


def _equal() -> Shop:
    shop = Shop()
    shop.put(*(customer(n) for n in range(1, 6)), *(order(n, n % 5 + 1, n) for n in range(1, 8)), line(7, 1))
    shop.put(hot(3))
    shop.drain()
    assert shop.is_equal()
    return shop


def test_equal_sides_are_clean_and_are_looked_at_once() -> None:
    compared = Compared(_equal())
    result = compared.run()
    assert (result.is_clean, result.counts, compared.stop.waited) == (True, {}, [])
    assert (dict(result.rows), result.items) == ({"customer": 5, "orders": 7, "line": 1}, 14)


def test_attributes_that_no_row_keeps_are_counted_by_name() -> None:
    shop = _equal()
    shop.put(
        *({**customer(n), "nickname": "x", "_src": "of nobody"} for n in (1, 2)), {**customer(3), "visits": 3}
    )
    shop.put({**hot(3), "id": 3, "extra": None}, {**customer(4), "name": 7, "nickname": "x"})
    shop.drain()
    found = Compared(shop).run().unkept
    assert (found.extra, found.forms) == (
        {("Customer", "nickname"): 2, ("Customer", "visits"): 1, ("Hot", "extra"): 1},
        {},
    )
    assert Compared(shop).verify().unkept() == found
    shop.checked = with_writes(shop.checked, (), ["nickname", "visits", "extra"])
    assert not Compared(shop).run().unkept


def test_null_attribute_of_a_null_column_is_kept_by_its_row() -> None:
    shop = _equal()
    shop.put({**order(1, 2), "total": None})
    shop.drain()
    result = Compared(shop).run()
    assert (result.is_clean, bool(result.unkept)) == (True, False)


def _lose(rows: list[dict[str, Any]], number: int) -> None:
    rows[:] = [row for row in rows if row["id"] != number]


def test_each_difference_is_named_by_its_row() -> None:
    shop = _equal()
    shop.delete(customer(5), hot(3))
    _lose(shop.rows["customer"], 4)
    shop.rows["orders"][0]["total"] = 999
    shop.put(order(6, 1, 6), {**customer(2), "name": 7}, {**customer(9), "id": "nine"})
    assert told(Compared(shop).run()) == {
        ("no item", "customer", "[5]", ""),
        ("no row", "customer", "[4]", ""),
        ("different", "orders", "[1]", "total"),
        ("different", "orders", "[3]", "hot"),
        ("misfit", "customer", "[2]", "an item of type Customer: name, for column name: it is of another type than the column (text)"),
        ("misfit", "", '["C#2","M"]', "an item of type Customer: name, for column name: it is of another type than the column (text)"),
        ("misfit", "", '["C#9","M"]', "an item of type Customer: id, for column id: it is of another type than the column (integer)"),
        ("claims", "orders", "[6]", _CLAIMS),
    }  # fmt: skip


_CLAIMS = "an item of type Order: column customer_id has a value that differs from another item of its row"


def test_row_with_an_item_under_another_key_differs_once() -> None:
    """Neither side finds the other by its own key."""
    shop = _equal()
    shop.delete(order(7, 3, 7))
    shop.put(order(7, 2, 7))
    assert told(Compared(shop).run()) == {("different", "orders", "[7]", "customer_id")}


def test_what_is_on_its_way_is_looked_at_again() -> None:
    shop = _equal()
    shop.put(order(1, 2, 8), customer(6))
    shop.delete(line(7, 1))
    compared = Compared(shop, Waiting(shop.drain))
    assert compared.run().is_clean
    assert compared.stop.waited


@pytest.mark.parametrize("seed", range(6))
def test_repair_makes_rows_what_items_say(seed: int) -> None:
    """Whatever was lost: no record of it is left, and rows of all kinds of differences are there."""
    rng, shop = random.Random(seed), _equal()
    shop.put(order(7, 2, 7), order(20, 3, 1), customer(7), line(20, 2))
    shop.delete(order(7, 3, 7), customer(5), order(4, 5, 4), line(7, 1), hot(3))
    for shard in shop.world.fake.shards:
        shard.records.clear()
    shop.journal.keys.clear()
    if seed % 2:
        shop.rows["line"].clear()
    for row in rng.sample(shop.rows["orders"], 2):
        row["total"] = 77
    shop.writer.written = shop.never_absent()
    assert Compared(shop).verify().repair(lambda: None, deletes=True)
    assert not Compared(shop).run().is_clean
    shop.drain(30)
    result = Compared(shop).run()
    assert (told(result), shop.journal.waits) == (set(), {})
    assert shop.is_equal()


def test_an_empty_copy_is_filled() -> None:
    shop = _equal()
    for rows in shop.rows.values():
        rows.clear()
    shop.journal.keys.clear()
    assert {kind for kind, *_ in told(Compared(shop).run())} == {"no row"}
    Compared(shop).verify().repair(lambda: None, deletes=False)
    shop.drain()
    assert shop.is_equal()
    assert Compared(shop).run().is_clean


def test_row_with_an_item_that_moves_during_a_repair_stays() -> None:
    """The scan saw neither: the old key was not asked yet, the new one no more. The stream saw both."""
    shop = _equal()
    verify = Compared(shop).verify()
    shop.writer.written = shop.never_absent()
    pages = list(verify.pages())
    verify.pages = lambda: iter(pages[:-1])
    shop.delete(order(7, 3, 7))
    shop.put(order(7, 2, 7))
    verify.repair(lambda: None, deletes=True)
    shop.drain(20)
    assert shop.is_equal()
    assert Compared(shop).run().is_clean


def test_rows_that_no_item_holds_stay_unless_they_are_to_go() -> None:
    shop = _equal()
    shop.rows["customer"].append({"id": 8, "name": "never had an item"})
    shop.rows["orders"][0]["total"] = 77
    Compared(shop).verify().repair(lambda: None, deletes=False)
    shop.drain(30)
    result = Compared(shop).run()
    assert told(result) == {("no item", "customer", "[8]", "")}
    assert (result.of_kinds("no item"), result.of_kinds("different", "no row")) == (1, 0)
    Compared(shop).verify().repair(lambda: None, deletes=True)
    shop.drain(30)
    assert Compared(shop).run().is_clean
    assert shop.is_equal()


def test_repair_writes_nothing_once_other_entities_are_direct() -> None:
    """The way back ran to its end while a page was read, and a row has been written to SQL since."""
    shop = _equal()
    shop.rows["orders"][0]["total"] = 77
    before = {name: list(rows) for name, rows in shop.rows.items()}
    work = WhileDirect(shop.reverse(), frozenset({"orders"}), frozenset[str])
    with pytest.raises(DirectChangedError):
        Compared(shop).verify().repair(work.need_direct, deletes=True)
    assert shop.rows == before
