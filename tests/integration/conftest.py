"""One empty database of each engine, with capture's edges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support_capture import Capturing, capturing, new_sqlite


@pytest.fixture
def postgresql(postgres_database: str) -> Iterator[Capturing]:
    with capturing("postgresql", postgres_database) as shop:
        yield shop


@pytest.fixture
def mariadb(mysql_database: str) -> Iterator[Capturing]:
    with capturing("mariadb", mysql_database) as shop:
        yield shop


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Capturing]:
    with capturing("sqlite", new_sqlite(tmp_path / "a.db")) as shop:
        yield shop
