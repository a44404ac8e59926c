"""Items become rows: in any order, killed at any step, and no row is absent that some item holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.facts import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.mapping.model.live import WaitingRow
from migrator.mapping.model.table import Item
from migrator.runtime.values import replace
from migrator.stages.reverse.stage import Reverse, Spellings, WrittenTable, row_key
from tests.fakes.source import MemorySource
from tests.support_mapping import parse_mapping
from tests.unit.stages.core.reverse_world import Shop, customer, hot, line, order
from tests.unit.stages.core.stream_world import Killed, Steps

ROW = ("orders", "[7]")


def test_children_that_come_before_their_parents_wait() -> None:
    shop = Shop()
    shop.put(line(7, 1), order(7, 1))
    shop.drain(2, 1.0)
    assert shop.there() == {"customer": set(), "orders": set(), "line": set()}
    assert {(one.waits, one.why) for one in shop.journal.waits.values()} == {("refused", "foreign key")}
    shop.put(customer(1))
    shop.drain()
    assert shop.is_equal()


def test_parents_deleted_before_their_children_wait() -> None:
    shop = Shop()
    shop.put(customer(1), order(7, 1), line(7, 1))
    shop.drain()
    shop.writer.written = shop.never_absent()
    shop.delete(customer(1), order(7, 1))
    shop.drain()
    assert shop.there() == {"customer": {1}, "orders": {7}, "line": {(7, 1)}}
    assert {one.waits for one in shop.journal.waits.values()} == {"gone"}
    shop.delete(line(7, 1))
    shop.drain(30)
    assert shop.is_equal()
    assert not shop.rows["customer"]
    assert not shop.journal.keys


def test_a_row_whose_item_moves_never_vanishes() -> None:
    """The trap: the record of the old key is worked in one shard long before that of the new one in another."""
    shop = Shop()
    shop.put(customer(1), customer(2), order(7, 1))
    shop.drain()
    shop.writer.written = shop.never_absent()
    for _ in range(3):
        shop.world.fake.split()
    shop.put(order(7, 2))
    shop.delete(order(7, 1))
    # One reader has the shard of the old key, and another, which is slow, that of the new one.
    old, new = shop.shard_of("C#1"), shop.shard_of("C#2")
    assert old != new
    fast = shop.reverse()
    (removed,) = [record for record in shop.records(old) if record.new is None]
    fast.work([removed], lambda: None)
    shop.world.fake.advance(3600)
    assert fast.again(shop.passed_at(), lambda: None) == 0
    assert shop.there()["orders"] == {7}
    shop.drain()
    assert shop.is_equal()
    assert [row["customer_id"] for row in shop.rows["orders"]] == [2]


def test_row_is_deleted_after_all_shards_passed_its_time_twice() -> None:
    shop = Shop()
    shop.put(customer(1))
    shop.drain()
    shop.delete(customer(1))
    reverse = shop.reverse()
    with shop.world.reader("one", work=reverse.work) as reader:
        shop.turn(reader, reverse)
        now = shop.clock()
        for passed_at, is_there in ((now + 14, True), (now + 15, True), (now + 29, True), (now + 30, False)):
            reverse.again(passed_at, lambda: None)
            assert bool(shop.rows["customer"]) is is_there


def test_an_item_of_a_row_that_was_migrated_is_found_by_the_row() -> None:
    """No key of it was ever remembered: a change of one item must not lose what another one says."""
    shop = Shop()
    shop.put(customer(1), order(7, 1), hot(7))
    shop.rows["customer"].append({"id": 1, "name": "n1"})
    shop.rows["orders"].append({"id": 7, "customer_id": 1, "total": None, "hot": True})
    for shard in shop.world.fake.shards:
        shard.records.clear()
    shop.put(order(7, 1, 9))
    shop.drain()
    assert shop.is_equal()
    assert shop.rows["orders"] == [{"id": 7, "customer_id": 1, "total": 9, "hot": True}]


def test_item_that_fits_no_row_is_a_finding_and_nothing_is_lost() -> None:
    shop = Shop()
    shop.put(customer(1))
    shop.drain()
    shop.put({**customer(1), "name": 5}, {**customer(2), "id": "two"}, order(7, 1))
    shop.drain(2, 1.0)
    assert shop.there() == {"customer": {1}, "orders": {7}, "line": set()}
    waiting = shop.journal.waiting()
    assert [(one.waits, one.is_finding) for one in waiting] == [("misfit", True)] * 2
    assert all("Customer" in one.why and "two" not in one.why for one in waiting)
    shop.put(customer(1, "new"), customer(2))
    shop.drain()
    assert shop.is_equal()


def test_item_that_fits_no_row_is_a_finding_each_time_it_comes() -> None:
    shop = Shop()
    for _ in range(2):
        shop.put(odd := {**customer(2), "id": "two"})
        shop.drain(2, 1.0)
        assert [one.waits for one in shop.journal.waiting()] == ["misfit"]
        shop.delete(odd)
        shop.drain(2, 1.0)
        assert shop.journal.waiting() == []


def test_two_items_that_claim_one_row_are_a_finding() -> None:
    shop = Shop()
    shop.put(customer(1), customer(2), order(7, 1, 5), order(7, 2, 6))
    shop.drain(20)
    assert shop.rows["orders"] == []
    (waiting,) = shop.journal.waiting()
    assert (waiting.row, waiting.waits, waiting.is_finding) == (("orders", "[7]"), "claims", True)
    shop.delete(order(7, 1))
    shop.drain()
    assert shop.is_equal()


def test_row_refused_by_the_source_is_a_finding_after_some_tries() -> None:
    shop = Shop()
    shop.put(customer(1, "same"), customer(2, "same"), customer(3))
    shop.drain(3, 1.0)
    assert shop.there()["customer"] == {1, 3}
    assert [one.is_finding for one in shop.journal.waiting()] == [False]
    shop.drain(20)
    assert [(one.why, one.is_finding) for one in shop.journal.waiting()] == [("unique", True)]
    shop.put(customer(1, "other"))
    shop.drain(20)
    assert shop.is_equal()


def test_rows_swapping_a_unique_value_are_written_together() -> None:
    shop = Shop()
    shop.put(customer(1, "a"), customer(2, "b"))
    shop.drain()
    shop.put(customer(1, "b"))
    shop.drain(3, 1.0)
    assert [(one.row[1], one.why) for one in shop.journal.waiting()] == [("[1]", "unique")]
    shop.put(customer(2, "a"))
    shop.drain()
    assert shop.is_equal()
    assert shop.journal.waiting() == []


def test_items_of_other_types_are_nothing_of_ours() -> None:
    shop = Shop()
    shop.put({"PK": "COUNTER", "SK": "order", "type": "Counter", "last": 5}, {"PK": "X", "SK": "Y"})
    shop.drain()
    assert shop.there() == {"customer": set(), "orders": set(), "line": set()}
    assert not shop.journal.waits


def _storm(shop: Shop, rng: random.Random, count: int) -> None:
    """Moves of keys, children before parents, parents before children, now and then a split of a shard."""
    for _ in range(count):
        # Orders from 4 on have no lines: no foreign key would keep one that goes too soon.
        number, of = rng.randint(1, 8), rng.randint(1, 3)
        orders = [item for item in shop.world.fake.items.values() if item["type"] == "Order"]
        before = next((item for item in orders if item["id"] == number), None)
        action = rng.choice(["customer", "order", "order", "move", "line", "line", "hot", "drop", "split"])
        if action == "customer":
            shop.put(customer(of, f"n{of}"))
        elif action == "order" and before is None:
            shop.put(order(number, of, rng.randint(1, 99)))
        elif action == "order" and before is not None:
            shop.put({**before, "total": rng.randint(1, 99)})
        elif action == "move" and before is not None and before["customer_id"] != of:
            # In one transaction, or so that both are there for a moment, which services do not read.
            shop.put(order(number, of, 7))
            shop.delete(before)
        elif action == "line":
            shop.put(line(rng.randint(1, 3), rng.randint(1, 2), rng.choice("ab")))
        elif action == "hot":
            rng.choice([shop.put, shop.delete])(hot(number))
        elif action == "drop":
            gone: list[Item] = [*shop.world.fake.items.values()]
            shop.delete(rng.choice(gone)) if gone else None
        elif action == "split" and len(shop.world.fake.open_shards) < 4:
            shop.world.fake.split(rng.randint(0, 3))


def _mend(shop: Shop) -> None:
    """What foreign keys ask for, and the other item of a hot order: services keep to it in the end."""
    held = shop.held()
    for number in {order_id for order_id, _ in held["line"]} - held["orders"]:
        shop.put(order(number, 1))
    for item in list(shop.world.fake.items.values()):
        id_ = item.get("id")
        if item["type"] == "Hot" and id_ not in shop.held()["orders"]:
            assert isinstance(id_, int)
            shop.put(order(id_, 1))
    for item in list(shop.world.fake.items.values()):
        of = item.get("customer_id")
        if item["type"] == "Order" and of not in shop.held()["customer"]:
            assert isinstance(of, int)
            shop.put(customer(of))


# ── two processes and one row that goes and comes back ──


def _about_to_go(shop: Shop) -> Reverse:
    """A process that takes the order's row away at its next look."""
    shop.put(customer(1), order(7, 1, 5))
    shop.drain()
    shop.delete(order(7, 1, 5))
    slow = shop.reverse()
    with shop.world.reader("one", work=slow.work) as reader:
        reader.turn()
    slow.again(shop.clock() + 15, lambda: None)
    assert shop.there()["orders"] == {7}
    return slow


def _comes_back(shop: Shop) -> None:
    """A service makes the item anew, and another process works that."""
    shop.put(order(7, 1, 6))
    (put,) = [one for one in shop.records(shop.shard_of("C#1")) if one.new and one.new.get("total") == 6]
    shop.reverse().work([put], lambda: None)


def _once(edge: Any, name: str, first: Callable[[], None]) -> None:
    """Something that happens right before the call."""
    call = getattr(edge, name)

    def late(*words: Any) -> Any:
        setattr(edge, name, call)
        first()
        return call(*words)

    setattr(edge, name, late)


@pytest.mark.parametrize("call", ["write", "forget"])
def test_row_that_returns_during_its_delete_elsewhere_stays(call: str) -> None:
    shop = Shop()
    slow = _about_to_go(shop)
    _once(shop.writer if call == "write" else shop.journal, call, lambda: _comes_back(shop))
    slow.again(shop.clock() + 45, lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [6]
    shop.drain()
    assert shop.is_equal()


def test_keys_are_kept_of_a_row_that_is_back_after_its_delete() -> None:
    """The item is there again at the last reading: its keys say where to look, and only a row that is gone loses them."""
    shop = Shop()
    slow = _about_to_go(shop)
    forgotten: list[Any] = []
    write = shop.writer.write
    shop.journal.forget = forgotten.extend  # type: ignore[method-assign,assignment]

    def written(changes: Any, check: Any) -> Any:
        refused = write(changes, check)
        if not shop.rows["orders"]:
            shop.put(order(7, 1, 6))
        return refused

    shop.writer.write = written  # type: ignore[method-assign]
    slow.again(shop.clock() + 45, lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [6]
    assert forgotten == []
    assert shop.journal.keys_of([ROW])[ROW]


@pytest.mark.parametrize("has_parent", [True, False])
def test_row_forgotten_by_another_process_is_still_known(has_parent: bool) -> None:
    """The keys of the row go right after the process that works the new item has remembered them; without a parent its row
    is refused, and waits."""
    shop = Shop()
    slow = _about_to_go(shop)
    if not has_parent:
        shop.rows["customer"].clear()

    def forgets_late() -> None:
        _once(shop.journal, "keys_of", forget)
        _comes_back(shop)

    gone = shop.journal.waiting_of([ROW])

    def forget() -> None:
        shop.journal.forget(gone)

    _once(shop.journal, "forget", forgets_late)
    slow.again(shop.clock() + 45, lambda: None)
    if not has_parent:
        shop.rows["customer"].append({"id": 1, "name": "n1"})
        shop.world.fake.advance(61.0)
        shop.reverse().again(shop.clock(), lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [6]


def test_rows_waiting_for_each_other_go_together_when_one_is_due() -> None:
    shop, asked = Shop(), list[int]()
    now = shop.clock()
    for number, due_at in ((1, now), (2, now + 30)):
        row = ("customer", f"[{number}]")
        shop.journal.waits[row] = WaitingRow(row, "gone", due_at, "foreign key", looks=1, tries=1)
    write = shop.writer.write

    def counted(changes: Any, check: Any) -> Any:
        asked.append(len(changes))
        return write(changes, check)

    shop.writer.write = counted  # type: ignore[method-assign]
    shop.reverse().again(now, lambda: None)
    assert (asked, shop.journal.waits) == ([2], {})


def test_row_waiting_by_a_fast_clock_is_retried_at_once() -> None:
    shop = Shop()
    shop.put(order(7, 1, 1))
    shop.drain(2, 1.0)
    shop.rows["customer"].append({"id": 1, "name": "n1"})
    shop.journal.waits[ROW] = replace(shop.journal.waits[ROW], due_at=shop.clock() + 600)
    shop.reverse().again(shop.clock(), lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [1]


def test_waiting_row_left_stale_by_a_killed_process_is_retried() -> None:
    """It read the items, another one worked a newer change, and it was killed right after its write."""
    shop = Shop()
    shop.put(order(7, 1, 1))
    shop.drain(2, 1.0)
    assert list(shop.journal.waits) == [ROW]
    shop.rows["customer"].append({"id": 1, "name": "n1"})
    shop.world.fake.advance(61.0)
    write = shop.writer.write

    def killed(changes: Any, check: Any) -> Any:
        shop.writer.write = write  # type: ignore[method-assign]
        shop.put(order(7, 1, 2))
        (put,) = [one for one in shop.records(shop.shard_of("C#1")) if one.new and one.new.get("total") == 2]
        shop.reverse().work([put], lambda: None)
        write(changes, check)
        raise Killed

    shop.writer.write = killed  # type: ignore[method-assign]
    with suppress(Killed):
        shop.reverse().again(shop.clock(), lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [1]
    shop.reverse().again(shop.clock(), lambda: None)
    assert [row["total"] for row in shop.rows["orders"]] == [2]
    assert not shop.journal.waits


def test_row_with_changing_items_is_read_until_they_settle() -> None:
    """Another process that is slow writes what it read before, right behind the last write of this one."""
    shop = Shop()
    shop.put(customer(1), order(7, 1, 0))
    shop.drain()
    shop.put(order(7, 1, 1))
    (put,) = [one for one in shop.records(shop.shard_of("C#1")) if one.new and one.new.get("total") == 1]
    totals, write = iter(range(2, 7)), shop.writer.write

    def written(changes: Any, check: Any) -> Any:
        refused = write(changes, check)
        shop.put(order(7, 1, next(totals)))
        return refused

    shop.writer.write = written  # type: ignore[method-assign]
    shop.reverse().work([put], lambda: None)
    shop.writer.write = write  # type: ignore[method-assign]
    shop.rows["orders"][0]["total"] = 0
    shop.reverse().again(shop.clock(), lambda: None)
    assert shop.is_equal()
    assert not shop.journal.waits


@pytest.mark.parametrize("seed", range(8))
def test_storm_with_kills_at_any_step_ends_with_rows_equal_items(seed: int) -> None:
    rng = random.Random(seed)
    shop = Shop()
    shop.writer.written = shop.never_absent()
    for life in range(25):
        _storm(shop, rng, 6)
        shop.world.fake.advance(61.0)
        steps = Steps(rng.choice([3, 9, 17, 40, 90, float("inf")]))
        reverse = shop.reverse(steps)
        with suppress(Killed), shop.world.reader(f"life{life}", steps, reverse.work) as reader:
            for _ in range(3):
                shop.turn(reader, reverse)
                shop.world.fake.advance(9.0)
    _mend(shop)
    shop.drain(60)
    assert shop.is_equal(), (shop.journal.waits, shop.items_of_rows(), shop.world.fake.items)


@pytest.mark.parametrize("seed", range(4))
def test_records_in_another_order_and_twice_end_the_same(seed: int) -> None:
    rng = random.Random(seed)
    shop = Shop()
    _storm(shop, rng, 60)
    _mend(shop)
    fake = shop.world.fake
    pages = [record for shard in fake.shards for record in shop.records(shard.id)]
    rng.shuffle(pages)
    reverse = shop.reverse()
    while pages:
        size = rng.randint(1, 9)
        page, pages = pages[:size], pages[size:]
        reverse.work(page, lambda: None)
        reverse.work(page[::-1], lambda: None)
    shop.drain(60)
    assert shop.is_equal()


def _visits(rows: list[dict[str, Any]]) -> tuple[Spellings, dict[str, WrittenTable]]:
    """Of a table that has a time as its key, and one that refers to it, in a source without types."""
    at = Column("at", "at", Kind("timestamp"), nullable=False)
    number = Column("no", "no", Kind("integer"), nullable=False)
    visit = TableFacts("visit", "visit", (at,), ("at",))
    step = TableFacts(
        "step", "step", (at, number), ("at", "no"), foreign_keys=(ForeignKey(("at",), "visit", ("at",)),)
    )
    facts = SchemaFacts("memory", {"visit": visit, "step": step}, loosely_typed=True)
    text = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  visit: {items: {Visit: {key: ["V#{at|text|hash}", M], keep: [at]}}}
"""
    checked = check_mapping(parse_mapping(text, "visits.yaml"), facts)
    spellings = Spellings.read(MemorySource(facts, {"visit": rows, "step": []}), checked.entities, 1)
    return spellings, {table.name: WrittenTable(table, table.primary_key) for table in (visit, step)}


def test_rows_keep_the_spelling_of_their_keys() -> None:
    kept = ["2024-03-31T02:30", "2024-04-01 00:00:00.500", "2024-04-02 00:00:00"]
    spellings, tables = _visits([{"at": text} for text in kept])
    moments = [datetime.fromisoformat(text) for text in kept]
    written = [spellings.written(tables["visit"], {"at": moment}, tables) for moment in moments]
    assert written == [{"at": kept[0]}, {"at": kept[1]}, {"at": moments[2]}]
    step = {"at": moments[0], "no": 1}
    assert spellings.written(tables["step"], step, tables) == {"at": kept[0], "no": 1}
    assert spellings.written(tables["step"], {"at": None, "no": 1}, tables) == {"at": None, "no": 1}


def test_a_row_with_a_key_that_no_item_can_have_is_named_as_the_source_does() -> None:
    """Such as a date 'infinity', whose row was refused."""
    (entity, *_) = Shop().checked.entities
    assert row_key(entity, (Decimal("7.5"), "x")) == '["7.5"]'
