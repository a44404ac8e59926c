"""Every driver that docs/adapter.md names leaves marks; dual_write refuses others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from migrator.runtime.errors import MigratorError, SettingsError, UnmarkedError
from tests import pins
from tests.service.shop import Order, Shop, User
from tests.service.test_outbox import a_user

SYNC = {
    "postgresql": ["postgresql+psycopg", "postgresql+psycopg2"],
    "mariadb": ["mysql+pymysql"],
    "sqlite": ["sqlite+pysqlite"],
}
COMPILED = {"mariadb": ["mysql+mysqldb", "mariadb+mysqldb"]}
"""mysqlclient is compiled against the server's headers: `.ci/nightly engines` installs it."""
ASYNC = {
    "postgresql": ["postgresql+psycopg_async", "postgresql+asyncpg"],
    "mariadb": ["mysql+aiomysql", "mysql+asyncmy", "mariadb+asyncmy"],
    "sqlite": ["sqlite+aiosqlite"],
}


def urls(shop: Shop, drivers: dict[str, list[str]]) -> Iterator[sa.URL]:
    for name in drivers[shop.engine_name]:
        if name.startswith("mariadb") and not getattr(shop.engine.dialect, "is_mariadb", False):
            continue  # SQLAlchemy's dialect for MariaDB refuses MySQL
        url = shop.engine.url.set(drivername=name)
        url = url.set(query={}) if url.get_driver_name() == "asyncpg" else url
        try:
            url.get_dialect().import_dbapi()
        except ImportError:
            pytest.skip(f"{name} is not installed")
        yield url


def isolated(shop: Shop) -> dict[str, str]:
    return {} if shop.engine_name == "sqlite" else {"isolation_level": "READ COMMITTED"}


def test_sync_drivers_leave_marks_by_all_statements(shop: Shop) -> None:
    for url in urls(shop, SYNC):
        _write(shop, url)
        assert shop.marks() == 8, url.drivername
        shop.comes_to_rest()


@pytest.mark.nightly
@pytest.mark.engines("mariadb")
def test_compiled_drivers_leave_marks_by_all_statements(shop: Shop) -> None:
    for url in urls(shop, COMPILED):
        _write(shop, url)
        assert shop.marks() == 8, url.drivername
        shop.comes_to_rest()


def _write(shop: Shop, url: sa.URL) -> None:
    engine = sa.create_engine(url, **isolated(shop))
    sessions = sessionmaker(engine)
    with shop.migration() as migration:
        migration.dual_write(sessions, unknown_rows="lock")
        with sessions.begin() as session:
            session.add(a_user(1, orders=[Order(id=10, total=1), Order(id=11, total=2)]))
        with sessions.begin() as session:
            session.get_one(User, 1).name = "Ada"
            session.execute(sa.update(Order).where(Order.total == 2).values(total=3))
        with sessions.begin() as session:
            session.execute(sa.text("DELETE FROM orders WHERE id = 10"))
        with sessions() as session:
            session.execute(sa.text("DELETE FROM orders WHERE id = 11"))
            session.rollback()
        with sessions.begin() as session:
            session.delete(session.get_one(Order, 11))
        with sessions.begin() as session:
            session.delete(session.get_one(User, 1))
    engine.dispose()


def test_async_drivers_leave_marks_by_all_statements(shop: Shop) -> None:
    for url in urls(shop, ASYNC):
        asyncio.run(_write_awaiting(shop, url))
        assert shop.marks() == 8, url.drivername
        shop.comes_to_rest()


async def _write_awaiting(shop: Shop, url: sa.URL) -> None:
    engine = create_async_engine(url, **isolated(shop))
    sessions = async_sessionmaker(engine)
    with shop.migration() as migration:
        migration.dual_write(sessions, unknown_rows="lock")
        async with sessions.begin() as session:
            session.add(a_user(1, orders=[Order(id=10, total=1), Order(id=11, total=2)]))
        async with sessions.begin() as session:
            (await session.get_one(User, 1)).name = "Ada"
            await session.execute(sa.update(Order).where(Order.total == 2).values(total=3))
        async with sessions.begin() as session:
            await session.execute(sa.text("DELETE FROM orders WHERE id = 10"))
        async with sessions() as session:
            await session.execute(sa.text("DELETE FROM orders WHERE id = 11"))
            await session.rollback()
        async with sessions.begin() as session:
            await session.delete(await session.get_one(Order, 11))
        async with sessions.begin() as session:
            await session.delete(await session.get_one(User, 1))
        with pytest.raises(UnmarkedError):
            async with sessions.begin() as session:
                await session.execute(sa.text("INSERT INTO orders (id, total) SELECT id, 1 FROM users"))
    await engine.dispose()


@pytest.mark.engines("postgresql", "mariadb")
def test_strict_mode_refuses_drivers_that_it_cannot_read_through(shop: Shop) -> None:
    fit = {"postgresql+psycopg", "postgresql+psycopg_async", "mysql+pymysql", "mysql+aiomysql"}
    made: list[tuple[sa.URL, object]] = [
        *((url, sessionmaker(sa.create_engine(url))) for url in urls(shop, SYNC)),
        *((url, async_sessionmaker(create_async_engine(url))) for url in urls(shop, ASYNC)),
    ]
    for url, sessions in made:
        with shop.migration() as migration:
            if url.drivername in fit:
                migration.dual_write(sessions, mode="strict", longest_write_s=120)
            else:
                with pytest.raises(SettingsError, match="in strict mode; use one of"):
                    migration.dual_write(sessions, mode="strict", longest_write_s=120)


def test_autocommit_is_refused_with_each_sync_driver(shop: Shop) -> None:
    for url in urls(shop, SYNC):
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with shop.migration() as migration:
            migration.dual_write(sessionmaker(engine))
            with engine.connect() as connection, pins.refused(MigratorError):
                connection.execute(sa.text("DELETE FROM orders WHERE id = 1"))
        engine.dispose()


@pytest.mark.engines("postgresql", "mariadb")
def test_autocommit_is_refused_with_each_async_driver(shop: Shop) -> None:
    async def work(url: sa.URL) -> None:
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        with shop.migration() as migration:
            migration.dual_write(async_sessionmaker(engine))
            async with engine.connect() as connection:
                with pins.refused(MigratorError):
                    await connection.execute(sa.text("DELETE FROM orders WHERE id = 1"))
        await engine.dispose()

    for url in urls(shop, ASYNC):
        asyncio.run(work(url))


@pytest.mark.engines("sqlite")
def test_a_driver_that_is_not_tested_is_refused(shop: Shop) -> None:
    engine = sa.create_engine("postgresql+pg8000://", module=_Dbapi)
    with shop.migration() as migration, pytest.raises(MigratorError, match="'postgresql\\+pg8000'"):
        migration.dual_write(sessionmaker(engine))


class _Dbapi:
    """A DB-API module that is never connected."""

    __version__ = "1.31.2"
    paramstyle = "format"
    Error = Exception
