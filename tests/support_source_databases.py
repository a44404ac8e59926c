"""Real databases that hold the schema and the rows of support_source."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import sqlalchemy as sa
from psycopg import sql
from psycopg.types.json import Jsonb
from sqlalchemy.engine import make_url

from migrator.mapping.model.facts import Kind, TableFacts
from migrator.source.reader import SqlSource
from tests import support_mysql
from tests.support_source import (
    INTEGER,
    NUMBER,
    TABLES,
    TEXT,
    TIMESTAMP,
    ZONED,
    column_of,
    rows_of_the_schema,
)

PRODUCT_SQL = 'SELECT product FROM "Purchase Line" WHERE "PurchaseId" = :id ORDER BY product'
OUR_SELECTS: dict[str, list[tuple[str | int, ...]]] = {
    "SELECT 'a:b %', 1 AS x": [("a:b %", 1)],
    "SELECT 1 AS x FROM (SELECT 1 AS y) AS z WHERE y > 1": [],
}

TYPES = {
    "sqlite": {
        INTEGER: "INTEGER",
        NUMBER: "NUMERIC(10, 2)",
        TEXT: "TEXT",
        TIMESTAMP: "TIMESTAMP",
        ZONED: "TIMESTAMP WITH TIME ZONE",
        Kind("uuid"): "UUID",
        Kind("date"): "DATE",
        Kind("time"): "TIME",
        Kind("binary"): "BLOB",
        Kind("boolean"): "BOOLEAN",
        Kind("float"): "DOUBLE PRECISION",
        Kind("json"): "JSON",
    },
}
TYPES["postgresql"] = {**TYPES["sqlite"], INTEGER: "BIGINT", Kind("binary"): "BYTEA", Kind("json"): "JSONB"}


TYPES["mariadb"] = {
    **TYPES["sqlite"],
    INTEGER: "BIGINT",
    TEXT: "VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin",
    TIMESTAMP: "DATETIME(6)",
    ZONED: "TIMESTAMP(6)",
    Kind("time"): "TIME(6)",
    Kind("binary"): "VARBINARY(60)",
}
TYPES["mysql"] = {**TYPES["mariadb"], Kind("uuid"): "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin"}


def create_table(table: TableFacts, dialect: str) -> str:
    types = TYPES[dialect]
    parts = [
        f"{_quoted(column.real)} {types[column.kind]}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    ]
    parts += [f"PRIMARY KEY ({_list(table, table.primary_key)})"] if table.primary_key else []
    parts += [f"UNIQUE ({_list(table, names)})" for names in table.unique]
    for key in table.foreign_keys:
        other = TABLES[key.table]
        referred = f"{_quoted(other.real)} ({_list(other, key.referred)})"
        parts.append(f"FOREIGN KEY ({_list(table, key.columns)}) REFERENCES {referred}")
    return f"CREATE TABLE {_quoted(table.real)} ({', '.join(parts)})"


def _quoted(real: str) -> str:
    return '"' + real.replace('"', '""') + '"'


def _list(table: TableFacts, names: Sequence[str]) -> str:
    return ", ".join(_quoted(column_of(table, name).real) for name in names)


def make_sqlite(path: Path) -> str:
    """The URL of a new SQLite file that holds the schema and its rows, in WAL mode."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for table in TABLES.values():
            connection.execute(create_table(table, "sqlite"))
        for real, rows in rows_of_the_schema().items():
            for row in rows:
                places = ", ".join("?" * len(row))
                names = ", ".join(_quoted(name) for name in row)
                values = [_sqlite_value(value) for value in row.values()]
                connection.execute(f"INSERT INTO {_quoted(real)} ({names}) VALUES ({places})", values)
    connection.close()
    return f"sqlite:///{quote(str(path))}"


def _sqlite_value(value: Any) -> Any:
    """How a program would store the value in SQLite."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (date, time, uuid.UUID)):
        return value.isoformat(" ") if isinstance(value, datetime) else str(value)
    return '{"a": [1, null, "ä"]}' if isinstance(value, dict) else value


@contextmanager
def postgresql_database(server_url: str, *locale: str) -> Iterator[str]:
    """The URL of a new, empty UTF-8 database, dropped at the end; `locale`: first choice of its clauses."""
    name = f"source_{uuid.uuid4().hex[:12]}"
    url = make_url(server_url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as server:
        _create_database(server, name, [*locale, "LC_COLLATE 'C' LC_CTYPE 'C'"])
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


LINGUISTIC = ("LC_COLLATE 'en_US.UTF-8' LC_CTYPE 'en_US.UTF-8'", "LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
"""Orders in which 'a b' stands after 'ab', unlike its bytes; the first that the server knows is taken."""


def _create_database(server: psycopg.Connection[Any], name: str, locales: Sequence[str]) -> None:
    for number, locale in enumerate(locales, 1):
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' " + locale)
        try:
            server.execute(create.format(sql.Identifier(name)))
        except psycopg.Error:
            if number == len(locales):
                raise
        else:
            return


def fill_postgresql(url: str) -> None:
    with psycopg.connect(url) as connection:
        for table in TABLES.values():
            connection.execute(create_table(table, "postgresql").encode())
        order = [table.real for table in TABLES.values()]
        rows = rows_of_the_schema()
        for real in order:
            for row in rows[real]:
                names = sql.SQL(", ").join(sql.Identifier(name) for name in row)
                places = sql.SQL(", ").join(sql.Placeholder() for _ in row)
                insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                    sql.Identifier(real), names, places
                )
                connection.execute(insert, [_postgresql_value(value) for value in row.values()])


def fill_mysql(url: str) -> None:
    dialect = "mariadb" if support_mysql.is_mariadb(url) else "mysql"
    support_mysql.run_script(url, ";".join(create_table(table, dialect) for table in TABLES.values()))
    with support_mysql.connect(url) as connection, connection.cursor() as cursor:
        rows = rows_of_the_schema()
        for real in (table.real for table in TABLES.values()):
            for row in rows[real]:
                names = ", ".join(_quoted(name) for name in row)
                places = ", ".join(["%s"] * len(row))
                values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
                cursor.execute(f"INSERT INTO {_quoted(real)} ({names}) VALUES ({places})", values)


def _postgresql_value(value: Any) -> Any:
    return Jsonb(value) if isinstance(value, dict) else value


def past_the_gate(source: SqlSource, statement: str) -> list[tuple[Any, ...]]:
    """Rows of a statement that no mapping may hold: what a connection itself lets pass, or takes its time for."""
    return source._rows("a statement of the tests", sa.text(statement))
