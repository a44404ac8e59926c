"""A shop a test, on each engine that the test names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.stages.live import service
from tests.service.reading import ReadShop, open_read_shop
from tests.service.shop import Shop, open_shop
from tests.support_capture import ENGINES, new_sqlite

SERVERS = ("postgresql", "mariadb")
_DATABASES = {"postgresql": "postgres_database", "mariadb": "mysql_database"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        named = metafunc.definition.get_closest_marker("engines")
        metafunc.parametrize("engine_name", named.args if named else ENGINES)


@pytest.fixture(autouse=True)
def _patient_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the items of a commit may take longer than a service waits for them."""
    monkeypatch.setattr(service, "LONGEST_S", 120.0)


@pytest.fixture
def url(request: pytest.FixtureRequest, engine_name: str, tmp_path: Path) -> str:
    if engine_name == "sqlite":
        return new_sqlite(tmp_path / "shop.db")
    found: str = request.getfixturevalue(_DATABASES[engine_name])
    return found


@pytest.fixture
def shop(engine_name: str, url: str, dynamodb_url: str, tmp_path: Path) -> Iterator[Shop]:
    """Its changes are marked by services."""
    with open_shop(engine_name, url, dynamodb_url, tmp_path) as made:
        yield made


@pytest.fixture
def triggered_shop(engine_name: str, url: str, dynamodb_url: str, tmp_path: Path) -> Iterator[Shop]:
    """Its changes are marked by triggers."""
    with open_shop(engine_name, url, dynamodb_url, tmp_path, marked_by="triggers") as made:
        yield made


@pytest.fixture
def read_shop(engine_name: str, url: str, dynamodb_url: str, tmp_path: Path) -> Iterator[ReadShop]:
    """Its items are what its rows say."""
    with open_read_shop(engine_name, url, dynamodb_url, tmp_path) as made:
        yield made
