"""What is made in other people's databases: capture's tables and triggers, and the journal's tables."""

from __future__ import annotations

import difflib
import re

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from syrupy.assertion import SnapshotAssertion

from migrator.journal import schema
from tests.integration.conftest import mariadb as mariadb
from tests.integration.conftest import postgresql as postgresql_source
from tests.integration.conftest import sqlite as sqlite_source
from tests.support_capture import Capturing, captured

__all__ = ["mariadb", "postgresql_source", "sqlite_source"]

_INSTALLATION = re.compile("'[0-9a-f]{32}'")
_DIGEST = re.compile("_[0-9a-f]{8}(?=`)")
"""At the end of a trigger's name on MariaDB: of a text with the database's name in it."""
_NOTE = re.compile(r'\["[0-9a-f]{8}"')
"""The same in the comment of a trigger."""
_TABLES = (
    "CREATE TABLE customer (id integer PRIMARY KEY, name varchar(9))",
    "CREATE TABLE invoice (id integer PRIMARY KEY, customer_id integer NOT NULL, total decimal(9, 2),"
    " FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE)",
)


def _journal(dialect: Dialect) -> list[str]:
    made = [f"-- version {schema.VERSION}"]
    for table in schema.tables_on(dialect.name):
        made.append(str(CreateTable(table).compile(dialect=dialect)).strip())
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return "\n\n".join(made).replace("\t", "    ").splitlines()


def test_the_journals_tables_are_the_pinned_ones(pinned: SnapshotAssertion) -> None:
    """Those of PostgreSQL, and what is another line on the others."""
    whole = _journal(make_url("postgresql://").get_dialect()())
    parts = ["\n".join(whole)]
    for name, dialect in (("sqlite", sqlite.dialect()), ("mysql", mysql.dialect())):
        changed = [line for line in difflib.ndiff(whole, _journal(dialect)) if line[0] in "+-"]
        parts.append(
            "\n".join([f"-- {name}", *sorted(set(changed), key=lambda line: (line[2:].split(), line))])
        )
    assert "\n\n".join(parts) + "\n" == pinned


@pytest.mark.parametrize("fixture", ["sqlite_source", "postgresql_source", "mariadb"])
def test_what_capture_installs_is_the_pinned_text(
    fixture: str, request: pytest.FixtureRequest, pinned: SnapshotAssertion
) -> None:
    source: Capturing = request.getfixturevalue(fixture)
    source.run(*_TABLES)
    tables = [
        captured(source.table("customer"), ["id", "name"], ["name"]),
        captured(source.table("invoice"), ["id", "customer_id", "total"]),
    ]
    steps = source.capture.install_steps(tables, "shop")
    text = "\n".join(f"{statement};" for step in steps for statement in step.statements)
    database = source.url.rsplit("/", 1)[1]
    text = _INSTALLATION.sub("'<installation>'", text).replace(database, "<database>")
    assert _NOTE.sub('["<digest>"', _DIGEST.sub("_<digest>", text)) + "\n" == pinned
