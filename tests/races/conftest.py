"""One shop an engine for all races, one table a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import support_mysql
from tests import support_services as services
from tests.races.harness import Race
from tests.races.shop import MAPPING, TABLES, Shop, log_needs, open_shop
from tests.support_capture import ENGINES, new_sqlite

LOGS = {"postgresql": "postgres_log", "mariadb": "mysql_log"}
"""By engine what a race of triggers is played on besides: the log is read in their place."""


@pytest.fixture(scope="session")
def shops(
    request: pytest.FixtureRequest, dynamodb_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Shop]]:
    """Opens the shop of an engine."""
    with opened_shops(request, dynamodb_url, tmp_path_factory) as opened:
        yield opened


@contextmanager
def opened_shops(
    request: pytest.FixtureRequest,
    endpoint: str,
    folders: pytest.TempPathFactory,
    mapping: str = MAPPING,
    tables: Sequence[str] = TABLES,
) -> Iterator[Callable[[str], Shop]]:
    with ExitStack() as stack:

        @cache
        def opened(name: str) -> Shop:
            engine = next((engine for engine, log in LOGS.items() if log == name), name)
            folder = folders.mktemp("races")
            url = stack.enter_context(_DATABASES[name](request, folder))
            from_log = name != engine
            more = log_needs(engine, tables) if from_log else []
            opening = open_shop(
                *(engine, url, endpoint, folder), mapping=mapping, tables=[*tables, *more], from_log=from_log
            )
            return stack.enter_context(opening)

        yield opened


@contextmanager
def _database_of_log(*_: object) -> Iterator[str]:
    with services.own_postgres("wal_level=logical") as server:
        yield server.url


def _database_of_mysql(request: pytest.FixtureRequest, _: Path) -> AbstractContextManager[str]:
    return support_mysql.mysql_database(request.getfixturevalue("mysql_url"))


_DATABASES: dict[str, Callable[[pytest.FixtureRequest, Path], AbstractContextManager[str]]] = {
    "postgresql": lambda request, _: services.postgres_database(request.getfixturevalue("postgres_url")),
    "postgres_log": _database_of_log,
    "mariadb": _database_of_mysql,
    "mysql_log": _database_of_mysql,
    "sqlite": lambda _, folder: nullcontext(new_sqlite(folder / "shop.db")),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "race" in metafunc.fixturenames:
        named = metafunc.definition.get_closest_marker("engines")
        names = named.args if named else ENGINES
        logs = (
            []
            if metafunc.definition.get_closest_marker("triggers")
            else [LOGS[name] for name in names if name in LOGS]
        )
        at_night = [pytest.param(log, marks=pytest.mark.nightly) for log in logs]
        metafunc.parametrize("engine", [*(_at_a_landing(name, names) for name in names), *at_night])


def _at_a_landing(name: str, names: Sequence[str]) -> Any:
    """A race that SQLite can play is an order of our own steps: a landing plays it there, and servers at night."""
    only_more = "sqlite" in names and name != "sqlite"
    return pytest.param(name, marks=pytest.mark.nightly) if only_more else name


@pytest.fixture
def race(shops: Callable[[str], Shop], engine: str) -> Iterator[Race]:
    """An empty, captured shop and an empty table, on each engine that the test names (all, if it names none)."""
    shop = shops(engine)
    shop.clear()
    target = shop.new_target()
    state = target.admin.state(target.design)
    assert state is not None
    yield Race(shop, target, state.table_id)
    target.store.client.delete_table(TableName=target.design.name)
