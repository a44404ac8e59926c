"""An access pattern that a service answers by two functions of its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast

import boto3
import pytest
import sqlalchemy as sa
from boto3.dynamodb.conditions import Key

from migrator.api import Migration
from migrator.mapping.model.evidence import DiffKey
from migrator.runtime.errors import SettingsError
from migrator.stages.reads.functions import RoutedPattern
from tests import pins
from tests.service.reading import ReadShop, seen

pytestmark = pytest.mark.engines("sqlite")


def by_sql(shop: ReadShop, user_id: int) -> list[dict[str, Any]]:
    statement = sa.text(
        "SELECT id AS orderId, total, status, placed_at AS placedAt, paid FROM orders"
        " WHERE user_id = :user_id ORDER BY id DESC"
    )
    with shop.engine.connect() as connection:
        return [dict(one._mapping) for one in connection.execute(statement, {"user_id": user_id})]


def by_boto3(shop: ReadShop, user_id: int) -> list[dict[str, Any]]:
    endpoint = shop.store.client.meta.endpoint_url
    words = {"region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    table = boto3.resource("dynamodb", endpoint_url=endpoint, **words).Table(shop.store.design.name)
    condition = Key("PK").eq(f"USER#{user_id}") & Key("SK").begins_with("ORDER#")
    found: list[dict[str, Any]] = table.query(KeyConditionExpression=condition, ScanIndexForward=False)[
        "Items"
    ]
    return found


def recent(
    migration: Migration, sql: Callable[[int], Any], table: Callable[[int], Any] | None = None
) -> RoutedPattern:
    @migration.pattern("recent_orders")
    def recent(user_id: int, limit: int | None = None) -> Any:
        """Recent orders."""
        return sql(user_id)

    if table is not None:

        @recent.table
        def in_table(user_id: int, limit: int | None = None) -> Any:
            return table(user_id)

    assert recent.__doc__ == "Recent orders."
    return recent


def test_calls_are_routed_and_compared(read_shop: ReadShop) -> None:
    shop = read_shop
    with shop.migration() as migration:
        asked = recent(migration, lambda user: by_sql(shop, user), lambda user: by_boto3(shop, user))
        assert asked(2)[0]["orderId"] == 19
        shop.move("shadow")
        seen(migration, "shadow")
        first = asked(user_id=2)
        # What the caller does with its answer is no difference.
        for one in first:
            one.clear()
        found = shop.until(migration, "recent_orders", lambda one: one.compared == 1)
        assert (found.same, found.found) == (1, {}), shop.samples("recent_orders")
        shop.move("live")
        seen(migration, "live")
        assert asked(2)[0]["PK"] == "USER#2"
        shop.until(migration, "recent_orders", lambda one: one.same == 2)


class Named(NamedTuple):
    orderId: int
    total: Decimal
    status: str
    placedAt: datetime
    paid: bool | None


@dataclass
class Plain:
    orderId: int
    total: Decimal
    status: str
    placedAt: datetime
    paid: bool | None


def test_rows_may_have_several_forms(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    for number, form in enumerate((Named, Plain), start=1):
        with shop.migration() as migration:
            asked = rows_as(migration, shop, form)
            assert len(asked(2)) == 10
            assert shop.until(migration, "recent_orders", lambda one, n=number: one.same == n)  # type: ignore[misc]
    for number, wrong in enumerate((lambda **fields: tuple(fields), lambda **fields: 5), start=1):
        with shop.migration() as migration:
            asked = rows_as(migration, shop, wrong)
            assert len(asked(2)) == 10
            shop.until(migration, "recent_orders", lambda one, n=number: one.errors.get("sql") == n)  # type: ignore[misc]
            assert pins.said(shop.samples("recent_orders")[0].why)


def rows_as(migration: Migration, shop: ReadShop, form: Callable[..., Any]) -> RoutedPattern:
    return recent(
        migration, lambda user: [form(**one) for one in by_sql(shop, user)], lambda user: by_boto3(shop, user)
    )


def test_names_that_differ_are_reported(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")

    def renamed(user: int) -> list[dict[str, Any]]:
        return [{"order_id": one.pop("orderId"), **one} for one in by_sql(shop, user)]

    with shop.migration() as migration:
        asked = recent(migration, renamed, lambda user: by_boto3(shop, user))
        asked(2)
        found = shop.until(migration, "recent_orders", lambda one: one.errors.get("sql") == 1)
        assert found.compared == 0
        why = shop.samples("recent_orders")[0].why
        assert why == pins.text()


def test_shadow_function_error_is_counted_without_its_message(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")

    def fails(user: int) -> Any:
        raise ValueError("a secret value")

    with shop.migration() as migration:
        asked = recent(migration, lambda user: by_sql(shop, user), fails)
        assert len(asked(2)) == 10
        found = shop.until(migration, "recent_orders", lambda one: one.errors.get("table") == 1)
        assert found.found == {DiffKey("error", "", "table"): 1}
        assert shop.samples("recent_orders")[0].why == "ValueError was raised"
        shop.move("live")
        seen(migration, "live")
        with pins.refused(ValueError):
            asked(2)


def test_without_a_table_function_sql_continues_alone(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    with shop.migration() as migration:
        asked = recent(migration, lambda user: by_sql(shop, user))
        assert len(asked(2)) == 10
        shop.until(migration, "recent_orders", lambda one: one.errors.get("table") == 1)
        assert pins.said(shop.samples("recent_orders")[0].why, "give")
        shop.move("live")
        seen(migration, "live")
        with pins.refused(SettingsError, "function"):
            asked(2)


def asynchronous(migration: Migration, shop: ReadShop) -> RoutedPattern:
    @migration.pattern("recent_orders")
    async def recent(user_id: int, limit: int | None = None) -> Any:
        return await asyncio.to_thread(by_sql, shop, user_id)

    @recent.table
    async def in_table(user_id: int, limit: int | None = None) -> Any:
        await asyncio.sleep(0.3)
        return await asyncio.to_thread(by_boto3, shop, user_id)

    return recent


def test_a_shadow_that_wants_to_end_the_process_ends_no_loop(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    with shop.migration() as migration:

        @migration.pattern("recent_orders")
        async def recent(user_id: int, limit: int | None = None) -> Any:
            return await asyncio.to_thread(by_sql, shop, user_id)

        @recent.table
        async def in_table(user_id: int, limit: int | None = None) -> Any:
            raise SystemExit(3)

        async def work() -> None:
            assert len(await recent(user_id=2)) == 10
            counts = (migration, "recent_orders", lambda one: one.errors == {"table": 1})
            await asyncio.to_thread(shop.until, *counts)

        asyncio.run(work())
        assert "SystemExit was raised" in shop.samples("recent_orders")[0].why


def test_asynchronous_pattern_can_be_called_before_its_loop_runs(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        recent = asynchronous(migration, read_shop)
        asked = recent(user_id=2)
        assert inspect.iscoroutine(asked)
        assert len(asyncio.run(asked)) == 10
        with pins.refused(SettingsError):
            asyncio.run(recent(user=2))


def test_closed_loop_is_not_an_error_of_a_side(read_shop: ReadShop) -> None:
    """One loop a request, as Flask's async views have it; where it ends before the shadow begins, and while it runs."""
    shop = read_shop
    shop.move("shadow")
    with shop.migration() as migration:
        recent = asynchronous(migration, shop)

        async def ask(pause_s: float) -> None:
            assert len(await recent(user_id=2)) == 10
            await asyncio.sleep(pause_s)

        for pause_s in (0.0, 0.1):
            asyncio.run(ask(pause_s))
        stopped = asyncio.new_event_loop()
        stopped.run_until_complete(ask(0.1))
        found = shop.until(migration, "recent_orders", lambda one: sum(one.dropped.values()) == 3)
        assert (found.dropped, found.errors) == ({"broken": 3}, {})
        stopped.run_until_complete(asyncio.sleep(0.5))
        stopped.close()


def test_async_functions_run_on_the_service_s_own_loop(read_shop: ReadShop) -> None:
    shop = read_shop
    shop.move("shadow")
    loops: set[int] = set()

    async def work(migration: Migration) -> None:
        async def through(ask: Callable[[ReadShop, int], Any], user: int) -> Any:
            loops.add(id(asyncio.get_running_loop()))
            return await asyncio.to_thread(ask, shop, user)

        @migration.pattern("recent_orders")
        async def recent(user_id: int, limit: int | None = None) -> Any:
            return await through(by_sql, user_id)

        @recent.table
        async def in_table(user_id: int, limit: int | None = None) -> Any:
            return await through(by_boto3, user_id)

        assert (await recent(user_id=2))[0]["orderId"] == 19
        await asyncio.to_thread(shop.until, migration, "recent_orders", lambda one: one.same == 1)
        assert len(loops) == 1
        with pins.refused(SettingsError):
            migration.pattern("recent_orders")(inspect.unwrap(recent)).table(lambda user_id, limit=None: [])

    with shop.migration() as migration:
        asyncio.run(work(migration))


def test_functions_take_the_parameters_of_their_pattern(read_shop: ReadShop) -> None:
    with read_shop.migration() as migration:
        route = migration.pattern("recent_orders")
        for function in (
            lambda user_idd, limit: None,
            lambda session, user_id, limit: None,
            lambda user_id: None,
            lambda user_id, /, limit: None,
            5,
            max,
            lambda **named: None,
        ):
            with pins.refused(SettingsError, "function"):
                route(cast("Any", function))
        asked = recent(migration, lambda user: [])
        for given in ({"user": 2}, {}, {"user_id": "2"}):
            with pins.refused(SettingsError, "call"):
                asked(**given)
        with pins.refused(SettingsError, "already"):
            recent(migration, lambda user: [], lambda user: []).table(lambda user_id, limit=None: [])
        with pins.refused(SettingsError, "mean"):
            migration.pattern("recent_order")
