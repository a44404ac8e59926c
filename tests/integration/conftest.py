"""One empty database of each engine, with capture's edges; `each` is one engine after the other."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import dynamodb_client
from migrator.mapping.model.table import KeyAttribute, TableDesign
from tests.support_capture import ENGINES, Capturing, capturing, new_sqlite


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


@pytest.fixture(params=ENGINES)
def each(request: pytest.FixtureRequest) -> Capturing:
    """A test of some engines alone parametrizes it indirectly."""
    made: Capturing = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def parts(each: Capturing) -> Capturing:
    each.run(
        "CREATE TABLE part (id integer PRIMARY KEY, name varchar(9), n integer)",
        "INSERT INTO part VALUES (1, 'a', 1), (2, 'b', 1)",
    )
    return each


@pytest.fixture
def shop(each: Capturing, request: pytest.FixtureRequest) -> Capturing:
    """With the tables of the module's `SCHEMA`."""
    each.run(*request.module.SCHEMA)
    return each


@pytest.fixture
def design(dynamodb_url: str) -> Iterator[TableDesign]:
    made = TableDesign(f"T{secrets.token_hex(6)}", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    client = dynamodb_client(region=None, profile=None, endpoint=dynamodb_url)
    DynamoTableAdmin(client).create(made)
    yield made
    client.delete_table(TableName=made.name)
