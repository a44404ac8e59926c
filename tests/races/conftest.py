"""One shop an engine for all races, one table a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import support_mysql
from tests import support_services as services
from tests.races.harness import Race
from tests.races.shop import MAPPING, TABLES, Shop, open_shop
from tests.support_capture import ENGINES, new_sqlite


@pytest.fixture(scope="session")
def postgresql_shop(
    postgres_url: str, dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    with (
        services.postgres_database(postgres_url) as url,
        open_shop("postgresql", url, dynamodb_url, tmp_path_factory.mktemp("races")) as shop,
    ):
        yield shop


@pytest.fixture(scope="session")
def log_shop(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """PostgreSQL's, whose log is read in place of triggers."""
    with open_log_shop(dynamodb_url, tmp_path_factory.mktemp("races"), MAPPING, TABLES) as shop:
        yield shop


@contextmanager
def open_log_shop(endpoint: str, folder: Path, mapping: str, tables: Sequence[str]) -> Iterator[Shop]:
    names = [statement.split()[2] for statement in tables if statement.startswith("CREATE TABLE")]
    identities = [f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in names]
    with (
        services.own_postgres("wal_level=logical") as server,
        open_shop(
            *("postgresql", server.url, endpoint, folder),
            mapping=mapping,
            tables=[*tables, *identities],
            from_log=True,
        ) as shop,
    ):
        yield shop


@pytest.fixture(scope="session")
def mariadb_shop(
    mysql_url: str, dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    with (
        support_mysql.mysql_database(mysql_url) as url,
        open_shop("mariadb", url, dynamodb_url, tmp_path_factory.mktemp("races")) as shop,
    ):
        yield shop


@pytest.fixture(scope="session")
def sqlite_shop(dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder: Path = tmp_path_factory.mktemp("races")
    with open_shop("sqlite", new_sqlite(folder / "shop.db"), dynamodb_url, folder) as shop:
        yield shop


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "race" in metafunc.fixturenames:
        named = metafunc.definition.get_closest_marker("engines")
        names = named.args if named else ENGINES
        has_log = "postgresql" in names and not metafunc.definition.get_closest_marker("triggers")
        more = [pytest.param("log", marks=pytest.mark.nightly)] if has_log else []
        metafunc.parametrize("engine", [*(_at_a_landing(name, names) for name in names), *more])


def _at_a_landing(name: str, names: Sequence[str]) -> Any:
    """A race that SQLite can play is an order of our own steps: a landing plays it there, and servers at night."""
    only_more = "sqlite" in names and name != "sqlite"
    return pytest.param(name, marks=pytest.mark.nightly) if only_more else name


@pytest.fixture
def race(request: pytest.FixtureRequest, engine: str) -> Iterator[Race]:
    """An empty, captured shop and an empty table, on each engine that the test names (all, if it names none)."""
    shop: Shop = request.getfixturevalue(f"{engine}_shop")
    shop.clear()
    target = shop.new_target()
    state = target.admin.state(target.design)
    assert state is not None
    yield Race(shop, target, state.table_id)
    target.store.client.delete_table(TableName=target.design.name)
