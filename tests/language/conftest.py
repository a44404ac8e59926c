"""Databases for mappings to be laid over: one script, every engine."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.language.engines import ENGINES
from tests.support_mysql import run_script

Database = Callable[[str], str]
"""From the script of a schema and its rows to the URL of a new database that holds them."""


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Every test that asks for it runs on every engine."""
    return database_on(request.param, request, tmp_path)


def database_on(engine: str, request: pytest.FixtureRequest, folder: Path) -> Database:
    if engine == "sqlite":
        numbers = itertools.count()
        return lambda script: _sqlite(folder / f"source{next(numbers)}.db", script)
    if engine == "mariadb":
        make = request.getfixturevalue("new_mysql_database")
        return lambda script: _mariadb(make(), script)
    make = request.getfixturevalue("new_postgres_database")
    return lambda script: _postgresql(make(), script)


def _sqlite(path: Path, script: str) -> str:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def _mariadb(url: str, script: str) -> str:
    run_script(url, script)
    return url


def _postgresql(url: str, script: str) -> str:
    with psycopg.connect(url) as connection:
        connection.execute(script)
    return url
