"""A service reads by access pattern: from the side that the phase names, with the same values from both."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from typing import Any

import pytest

from migrator.api import Migration
from migrator.mapping.model.table import TOMBSTONE, Value
from migrator.runtime.errors import SettingsError
from migrator.stages.reads.reads import PatternCall
from tests import pins
from tests.service.reading import ALL, ReadShop, records, seen
from tests.support_items import put_items

FIRST = {"orderId": 19, "total": Decimal("19.5"), "status": "open", "paid": True}


def typed(value: Any) -> Any:
    """The value with the types of everything in it."""
    if isinstance(value, dict):
        return {name: typed(one) for name, one in value.items()}
    if isinstance(value, list):
        return [typed(one) for one in value]
    return type(value).__name__, repr(value)


def asked(migration: Migration) -> list[Any]:
    return [
        migration.read("recent_orders", user_id=2, limit=3),
        migration.read("recent_orders", user_id=2),
        migration.read("recent_orders", user_id=99),
        migration.read("user_and_orders", user_id=1),
        migration.read("user_and_orders", user_id=99),
        migration.read("by_status", status="sent"),
        migration.read("session_by_id", session_id="new"),
        migration.read("session_by_id", session_id="old"),
    ]


def test_both_sides_give_the_same_values_of_the_same_types(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        from_sql = asked(migration)
        # MariaDB's TIMESTAMP is a moment with a zone, the others' has none.
        assert from_sql[0][0].pop("placedAt").rstrip("Z") == "2026-01-19T10:00:00.000000"
        assert from_sql[0][0] == FIRST
        assert [len(one) for one in from_sql[:3]] == [3, 10, 0]
        assert from_sql[3]["user"] == {"name": "Ada", "email": "ada@example.com"}
        assert from_sql[4] == {"user": None, "orders": []}
        assert from_sql[-2:] == [[{"sessionId": "new", "user_id": 1}], []]
        read_shop.move("live")
        for name in ALL:
            seen(migration, "live", name)
        from_table = asked(migration)
        del from_table[0][0]["placedAt"]
        assert typed(from_table) == typed(from_sql)
    found = read_shop.windows()["recent_orders"]
    assert found.answered["sql"] >= 3
    assert found.answered["table"] >= 3
    assert found.different == 0


@pytest.mark.engines("sqlite")
def test_a_ramp_is_sticky_and_has_its_share(read_shop: ReadShop) -> None:
    read_shop.sql("UPDATE orders SET status = 'sql'", "DELETE FROM orders WHERE id > 2")
    read_shop.move("ramp", 50, "user_and_orders")
    with read_shop.migration() as migration:
        reads = migration._reads()

        def sides() -> list[str]:
            pattern = reads.questions["user_and_orders"].pattern
            calls = [PatternCall(pattern, {"user_id": number}, None) for number in range(400)]
            return [reads.reads.side_of(call) for call in calls]

        first = sides()
        assert sides() == first
        assert 140 < first.count("table") < 260
        in_share = first.index("table")
        read_shop.move("ramp", 60, "user_and_orders")
        time.sleep(0.4)
        # A reader that was in the share stays in it.
        assert all(
            after == "table" for before, after in zip(first, sides(), strict=True) if before == "table"
        )
        assert migration.read("user_and_orders", user_id=in_share) is not None


@pytest.mark.engines("sqlite")
def test_tombstones_and_expired_items_are_never_returned(read_shop: ReadShop) -> None:
    read_shop.move("live")
    keys = [("USER#2", f"ORDER#{n:06}") for n in (19, 17)]
    kept = read_shop.store.get(keys)
    hidden = [{**kept[keys[0]], "type": TOMBSTONE}, {**kept[keys[1]], "expiresAt": int(time.time()) - 1}]
    put_items(read_shop.store, [{k: v for k, v in one.items() if not k.startswith("GSI")} for one in hidden])
    with read_shop.migration() as migration:
        found = records(migration.read("recent_orders", user_id=2, limit=3))
        assert [one["orderId"] for one in found] == [15, 13, 11]
        page = migration.read_page("recent_orders", user_id=2, size=4)
        assert [one["orderId"] for one in page.items] == [15, 13, 11, 9]


@pytest.mark.engines("sqlite", "postgresql")
def test_an_async_service_reads_outside_its_loop(read_shop: ReadShop) -> None:
    async def work(migration: Migration) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        found = await asyncio.gather(
            *(migration.read_async("recent_orders", user_id=2, limit=2) for _ in range(40))
        )
        ticking.cancel()
        assert ticks > 3
        assert all(records(one)[0]["orderId"] == 19 for one in found)
        page = await migration.read_page_async("recent_orders", user_id=2, size=3)
        assert len(page.items) == 3
        with pins.refused(SettingsError):
            await migration.read_async("recent_orders")

    with read_shop.migration() as migration:
        asyncio.run(work(migration))


# ── pages ──


def pages(migration: Migration, size: int, cursor: str | None = None) -> list[Value]:
    found: list[Value] = []
    while True:
        page = migration.read_page("recent_orders", user_id=2, size=size, cursor=cursor)
        assert len(page.items) <= size
        found += [one["orderId"] for one in page.items]
        cursor = page.next
        if cursor is None:
            return found


def test_pages_of_both_sides_are_the_whole_answer(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        for phase in ("off", "live"):
            read_shop.move(phase, 0, "recent_orders")
            seen(migration, phase)
            for size in (1, 4, 10, 100):
                assert pages(migration, size) == list(range(19, 0, -2))


@pytest.mark.engines("sqlite")
def test_cursor_stays_on_its_side_and_works_in_every_process(read_shop: ReadShop) -> None:
    read_shop.sql("UPDATE orders SET status = 'sql'")
    with read_shop.migration() as one, read_shop.migration() as other:
        first = one.read_page("recent_orders", user_id=2, size=2)
        read_shop.move("live")
        seen(one, "live")
        seen(other, "live")
        for migration in (one, other):
            second = migration.read_page("recent_orders", user_id=2, size=2, cursor=first.next)
            assert [(two["orderId"], two["status"]) for two in second.items] == [(15, "sql"), (13, "sql")]
        assert one.read_page("recent_orders", user_id=2, size=1).items[0]["status"] == "open"
        read_shop.move("complete")
        seen(one, "complete")
        with pins.refused(SettingsError):
            one.read_page("recent_orders", user_id=2, size=2, cursor=first.next)


@pytest.mark.engines("sqlite")
def test_a_cursor_of_something_else_is_refused(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        cursor = migration.read_page("recent_orders", user_id=2, size=2).next
        assert cursor is not None
        for pattern, params, text in (
            ("by_status", {"status": "sent"}, cursor),
            ("recent_orders", {"user_id": 1}, cursor),
            ("recent_orders", {"user_id": 2}, cursor[:-1] + "A" + cursor[-1]),
        ):
            with pins.refused(SettingsError, "cursor"):
                migration.read_page(pattern, cursor=text, **params)
        for size in (0, -1, 1001, True, "3"):
            with pins.refused(SettingsError, "size"):
                migration.read_page("recent_orders", user_id=2, size=size)  # type: ignore[arg-type]
        with pins.refused(SettingsError, "parts"):
            migration.read_page("user_and_orders", user_id=2)
    changed = (read_shop.folder / "mapping.yaml").read_text().replace("ORDER#{id:06}", "ORDER#{id:07}")
    (read_shop.folder / "mapping.yaml").write_text(changed)
    with read_shop.migration() as migration, pins.refused(SettingsError, "revision"):
        migration.read_page("recent_orders", user_id=2, cursor=cursor)
    read_shop.job.write_text(read_shop.job.read_text().replace("  cursor_key: 0123456789abcdef\n", ""))
    with read_shop.migration() as migration, pins.refused(SettingsError, "cursors"):
        migration.read_page("recent_orders", user_id=2)
