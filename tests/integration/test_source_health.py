"""What servers say of themselves."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from migrator.mapping.model.edges import SourceHealth
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.server_facts import source_health


def health(url: str) -> SourceHealth:
    address = source_url(url)
    source = SqlSource(address)
    try:
        return source_health(address.get_backend_name(), source.query, source.pooling())
    finally:
        source.close()


def test_the_clock_of_postgresql_is_read(postgres_database: str) -> None:
    found = health(postgres_database)
    assert found.clock_s is not None
    assert abs(found.clock_s - time.time()) < 60
    assert found.replica is False
    assert found.timeout
    assert found.version.startswith("PostgreSQL ")
    assert found.pooling == ""


def test_the_clock_of_mariadb_is_read(new_mysql_database: Callable[[], str]) -> None:
    found = health(new_mysql_database())
    assert found.clock_s is not None
    assert abs(found.clock_s - time.time()) < 60
    assert found.replica is False
    assert ("MariaDB" in found.version) or found.version.startswith("MySQL ")
    assert found.pooling == ""


def test_engine_without_a_server_reports_only_its_version(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert health(f"sqlite:///{tmp_path}/shop.db") == SourceHealth(f"SQLite {sqlite3.sqlite_version}")
