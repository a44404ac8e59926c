"""A connection that was taken out of its pool leaves marks, and strict mode writes its items."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tests.service.shop import Shop
from tests.support_adapter import ASYNC_DRIVERS, service_url

INSERT = sa.text("INSERT INTO users (id, name) VALUES (7, 'Ada')")


@pytest.mark.parametrize("mode", ["outbox", "strict"])
@pytest.mark.parametrize("attached", ["before", "after"])
def test_a_detached_connection_leaves_marks(
    shop: Shop, mode: Literal["outbox", "strict"], attached: str
) -> None:
    if shop.engine_name == "sqlite":
        mode = "outbox"
    isolated = {} if shop.engine_name == "sqlite" else {"isolation_level": "READ COMMITTED"}
    engine = shop.engine.execution_options(**isolated)
    with shop.migration() as migration, engine.connect() as connection:
        if attached == "after":
            connection.detach()
        migration.dual_write(engine if attached == "before" else connection, mode=mode, longest_write_s=120)
        if attached == "before":
            connection.detach()
        connection.execute(INSERT)
        connection.commit()
    assert (("USER#7", "META") in shop.items()) == (mode == "strict")
    shop.comes_to_rest()
    assert ("USER#7", "META") in shop.items()


def test_a_detached_async_connection_leaves_marks(shop: Shop) -> None:
    async def work() -> None:
        url = shop.engine.url.render_as_string(hide_password=False)
        engine = create_async_engine(service_url(shop.engine_name, url, ASYNC_DRIVERS))
        with shop.migration() as migration:
            migration.dual_write(engine)
            async with engine.connect() as connection:
                await connection.run_sync(lambda sync: sync.detach())
                await connection.execute(INSERT)
                await connection.commit()
        await engine.dispose()

    asyncio.run(work())
    assert shop.marks() == 1
