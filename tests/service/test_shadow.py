"""The other side of a service's reads: what differs is found and classed, and a caller never notices any of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.api import Migration
from migrator.mapping.model.evidence import DiffKey, Window
from migrator.mapping.model.table import TOMBSTONE, Item
from migrator.runtime.errors import StoppedError
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.service.reading import ReadShop, open_read_shop, part_of, seen
from tests.support_capture import new_sqlite
from tests.support_items import put_items

pytestmark = pytest.mark.slow

KEY = ("USER#2", "ORDER#000019")


def spoiled(shop: ReadShop, **changed: Any) -> None:
    """One order's item otherwise; None takes the attribute away."""
    item = {**shop.store.get([KEY])[KEY], **changed}
    put_items(shop.store, [{name: value for name, value in item.items() if value is not None}])


def missing(shop: ReadShop) -> None:
    shop.store.delete([KEY])


def unexpected(shop: ReadShop) -> None:
    item: Item = {
        **shop.store.get([KEY])[KEY],
        "SK": "ORDER#000022",
        "orderId": 22,
        "total": 7,
        "status": "x",
    }
    put_items(shop.store, [{**item, "placedAt": "never", "paid": False}])


def moved(shop: ReadShop) -> None:
    """The newest order stands where the oldest would."""
    item = shop.store.get([KEY])[KEY]
    put_items(shop.store, [{**item, "SK": "ORDER#000000"}, {**item, "type": TOMBSTONE}])


CORRUPTIONS: dict[str, tuple[Callable[[ReadShop], None], dict[DiffKey, int]]] = {
    "missing row": (missing, {DiffKey("missing"): 1}),
    "unexpected row": (unexpected, {DiffKey("unexpected"): 1}),
    "value": (lambda shop: spoiled(shop, total=1), {DiffKey("value", "", "total"): 1}),
    "type": (lambda shop: spoiled(shop, total="19.5"), {DiffKey("type", "", "total"): 1}),
    "missing attribute": (lambda shop: spoiled(shop, paid=None), {DiffKey("missing", "", "paid"): 1}),
    "order": (moved, {DiffKey("order"): 1}),
}


@pytest.mark.engines("sqlite")
def test_every_corruption_is_found_and_a_clean_table_has_none(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    before = [item for page in shop.store.scan(0, 1) for item in page.items]
    with shop.migration() as migration:
        asked: dict[str, dict[str, Any]] = {
            "recent_orders": {"user_id": 2, "limit": 50},
            "user_and_orders": {"user_id": 1},
            "by_status": {"status": "open"},
            "session_by_id": {"session_id": "old"},
        }
        for name, params in asked.items():
            # One by one: beside so many others a shadow may be dropped.
            for number in range(1, 6):
                migration.read(name, **params)
                found = shop.until(migration, name, lambda one, n=number: one.compared == n)  # type: ignore[misc]
            assert (found.same, found.found, found.answered) == (5, {}, {"sql": 5, "table": 5})
        assert found.kinds == {"": 5}
        assert shop.windows()["recent_orders"].kinds == {"limit": 5}
        for number, (named, (spoil, expected)) in enumerate(CORRUPTIONS.items(), start=1):
            spoil(shop)
            migration.read("recent_orders", user_id=2)
            found = shop.until(migration, "recent_orders", lambda one, n=number: one.different == n)  # type: ignore[misc]
            counted = {key: found.found.get(key, 0) for key in expected}
            assert counted == expected, named
            for item in [item for page in shop.store.scan(0, 1) for item in page.items]:
                if item not in before:
                    shop.store.delete([shop.store.design.key_of(item)])
            put_items(shop.store, before)
        assert found.same + found.transient == 5


@pytest.mark.engines("sqlite")
def test_samples_show_both_sides_and_redact_hidden_attributes(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    shop.sql("UPDATE users SET email = 'other@example.com', name = 'Eve' WHERE id = 1")
    with shop.migration() as migration:
        assert part_of(migration.read("user_and_orders", user_id=1), "user")["name"] == "Eve"
        shop.until(migration, "user_and_orders", lambda one: one.different == 1)
        samples = shop.samples("user_and_orders")
        assert {(one.key.kind, one.key.part, one.key.attribute) for one in samples} == {
            ("value", "user", "name"),
            ("value", "user", "email"),
        }
        assert [one.params for one in samples] == [{"user_id": "1"}] * 2
        row = next(one for one in samples if one.row)
        assert (row.attributes, row.row and row.row[0]) == (("name", "email"), '"Eve"')
        assert "example.com" not in str(samples)


# ── a side that does not answer ──


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def slow_shop(dynamodb_url: str, tmp_path: Path, faults: Faults) -> Iterator[ReadShop]:
    """Its table is asked through a proxy, and a shadow has half a second."""
    with (
        FaultProxy(dynamodb_url, faults) as proxy,
        open_read_shop(
            "sqlite",
            new_sqlite(tmp_path / "shop.db"),
            proxy.url,
            tmp_path,
            deadline_s=0.5,
            settle_s=0.3,
            items_from=dynamodb_url,
        ) as shop,
    ):
        yield shop


def read(migration: Migration, times: int, pause_s: float = 0.0) -> list[float]:
    """What each call took."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        assert len(migration.read("recent_orders", user_id=2)) == 10
        took.append(time.perf_counter() - began)
        time.sleep(pause_s)
    return took


def test_a_table_that_hangs_slows_no_caller(slow_shop: ReadShop, faults: Faults) -> None:
    slow_shop.move("shadow")
    with slow_shop.migration() as migration:
        read(migration, 20)
        faults.late, faults.late_s = 1.0, 3.0
        took = read(migration, 200)
        # A request that hangs lasts three seconds, and of those four hang; a busy machine holds up single ones.
        assert sorted(took)[-4] < 2.5
        found = slow_shop.until(migration, "recent_orders", lambda one: one.errors.get("table", 0) >= 4)
        # Four at once hang, all else is dropped and counted.
        assert found.dropped["busy"] > 0
        assert found.dropped["busy"] + found.dropped.get("breaker", 0) >= 150
        assert found.answered["sql"] == 220
        assert "sql" not in found.errors
        assert found.found[DiffKey("error", "", "table")] == found.errors["table"]
        assert slow_shop.samples("recent_orders")[0].why


@pytest.mark.parametrize("fault", ["unavailable", "late"])
def test_table_error_reaches_the_caller_if_the_table_answers(
    slow_shop: ReadShop, faults: Faults, fault: str
) -> None:
    slow_shop.move("live")
    with slow_shop.migration() as migration:
        read(migration, 1)
        setattr(faults, fault, 1.0)
        faults.late_s, began = 60.0, time.monotonic()
        with pytest.raises(StoppedError):
            migration.read("recent_orders", user_id=2)
        assert time.monotonic() - began < 15
        found = slow_shop.until(migration, "recent_orders", lambda one: one.errors.get("table", 0) == 1)
        assert found.answered["table"] == 1


# ── too much ──


def test_an_answer_of_too_many_rows_is_not_compared(dynamodb_url: str, tmp_path: Path) -> None:
    url = new_sqlite(tmp_path / "shop.db")
    with open_read_shop("sqlite", url, dynamodb_url, tmp_path, max_rows=5) as shop:
        with shop.migration() as migration:
            shop.move("shadow")
            seen(migration, "shadow")
            assert len(migration.read("recent_orders", user_id=2)) == 10
            # The caller's own answer is as large: not a fault.
            found = shop.until(migration, "recent_orders", lambda one: one.dropped == {"large": 1})
            assert (found.compared, found.errors) == (0, {})
            shop.move("live")
            seen(migration, "live")
            assert len(migration.read("recent_orders", user_id=2)) == 10
            assert len(migration.read_page("recent_orders", user_id=2, size=6).items) == 6
            found = shop.until(migration, "recent_orders", lambda one: one.dropped == {"large": 3})
            assert (found.compared, found.errors) == (0, {})
            shop.move("shadow")
            seen(migration, "shadow")
            shop.sql("DELETE FROM orders WHERE id > 5")
            assert len(migration.read("recent_orders", user_id=2)) == 3
            found = shop.until(migration, "recent_orders", lambda one: one.errors.get("table") == 1)
            assert pins.said(shop.samples("recent_orders")[0].why)
        assert found.compared == 0


@pytest.mark.parametrize("size", [2, 5, 9])
def test_first_pages_are_compared_and_later_ones_are_not(
    size: int, dynamodb_url: str, tmp_path: Path
) -> None:
    url = new_sqlite(tmp_path / "shop.db")
    with (
        open_read_shop("sqlite", url, dynamodb_url, tmp_path, max_rows=9) as shop,
        shop.migration() as migration,
    ):
        for phase, same in (("shadow", 1), ("live", 2)):
            shop.move(phase)
            seen(migration, phase)
            page = migration.read_page("recent_orders", user_id=2, size=size)
            assert len(page.items) == size
            migration.read_page("recent_orders", user_id=2, size=size, cursor=page.next)

            def is_settled(one: Window, n: int = same) -> bool:
                return one.compared == n or bool(one.errors)

            found = shop.until(migration, "recent_orders", is_settled)
            assert (found.same, found.errors, found.dropped) == (same, {}, {})
