"""Async sessions leave the same marks, without keeping their loop from others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from tests.service.shop import Order, Shop, User
from tests.service.test_outbox import a_user
from tests.support_adapter import ASYNC_DRIVERS, service_url

Sessions = async_sessionmaker[AsyncSession]


def run(shop: Shop, work: Callable[[Sessions], Awaitable[None]]) -> None:
    """The work of an async service with an engine of its own."""

    async def whole() -> None:
        url = shop.engine.url.render_as_string(hide_password=False)
        isolated = {} if shop.engine_name == "sqlite" else {"isolation_level": "READ COMMITTED"}
        engine = create_async_engine(service_url(shop.engine_name, url, ASYNC_DRIVERS), **isolated)
        if shop.engine_name == "sqlite":
            keys = "PRAGMA foreign_keys = ON"
            sa.event.listen(engine.sync_engine, "connect", lambda connection, _: connection.execute(keys))
        try:
            await work(async_sessionmaker(engine))
        finally:
            await engine.dispose()

    asyncio.run(whole())


def test_flush_continues_outside_the_loop(shop: Shop) -> None:
    ticks = 0

    async def work(sessions: Sessions) -> None:
        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        with shop.migration() as migration:
            migration.dual_write(sessions, flush=True)
            ticking = asyncio.create_task(tick())
            async with sessions.begin() as session:
                session.add(a_user(1))
            ticking.cancel()

    run(shop, work)
    assert ("USER#1", "META") in shop.items()
    assert ticks > 3


@pytest.mark.engines("postgresql", "mariadb")
def test_strict_mode_writes_before_the_commit_outside_the_loop(shop: Shop) -> None:
    async def work(sessions: Sessions) -> None:
        with shop.migration() as migration:
            migration.dual_write(sessions, mode="strict", longest_write_s=120)
            async with sessions.begin() as session:
                session.add(a_user(1, orders=[Order(id=10, total=1)]))
            assert shop.items()["USER#1", "ORDER#10"]["user_name"] == "User 1"

            async def rename(number: int) -> None:
                async with sessions.begin() as session:
                    session.add(a_user(number))

            await asyncio.gather(*(rename(number) for number in range(2, 8)))
            async with sessions.begin() as session:
                await session.delete(await session.get_one(User, 1))
            assert len(shop.items()) == 12

    run(shop, work)
    shop.comes_to_rest()
