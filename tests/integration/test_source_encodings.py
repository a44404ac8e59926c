"""Databases in other encodings than UTF-8: texts are the same, and bytes that are no text are said."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from migrator.journal.runs import SqlJournal
from migrator.mapping.items.values import decoder
from migrator.mapping.model.facts import Kind, TableFacts
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.table import encode_key
from migrator.runtime.errors import RowError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_capture import captured, capturing
from tests.support_source import INTEGER, TEXT, column, plan_of

CUSTOMER = plan_of(
    TableFacts(
        "customer", "customer", (column("id", INTEGER, nullable=False), column("name", TEXT)), ("id",)
    ),
    ["id", "name"],
)


@contextmanager
def database(server_url: str, encoding: str) -> Iterator[str]:
    name = f"migrator_test_{secrets.token_hex(6)}"
    made = "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'"
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(sql.SQL(made).format(sql.Identifier(name), encoding))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server_url, autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def url(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[str]:
    with database(postgres_url, request.param) as made:
        with psycopg.connect(made, client_encoding="utf8") as server:
            server.execute("CREATE TABLE customer (id int PRIMARY KEY, name text)")
            server.execute("INSERT INTO customer VALUES (1, 'Zoë')")
        yield made


@pytest.mark.parametrize("asked", ["", "?client_encoding=latin1"])
def test_texts_are_utf8_in_any_encoding_of_the_database(url: str, asked: str) -> None:
    with closing(SqlSource(source_url(url + asked))) as source:
        assert list(source.facts().tables) == ["customer"]
        assert source.read_page(CUSTOMER, None, None) == [(1, "Zoë")]


@contextmanager
def with_a_bad_row(url: str) -> Iterator[str]:
    """Three customers; the second one's name is no UTF-8."""
    with psycopg.connect(url, client_encoding="utf8") as server:
        server.execute("CREATE TABLE customer (id int PRIMARY KEY, name text)")
        server.execute("INSERT INTO customer VALUES (1, 'a'), (3, 'Zo\u00eb')")
        server.execute("INSERT INTO customer VALUES (2, convert_from('\\x5ae9', 'SQL_ASCII'))")
    yield url


def test_a_text_of_other_bytes_refuses_its_row_and_no_page(postgres_url: str) -> None:
    with (
        database(postgres_url, "SQL_ASCII") as made,
        with_a_bad_row(made) as url,
        closing(SqlSource(source_url(url))) as source,
    ):
        rows = list(source.read_page(CUSTOMER, None, None))
        again = list(source.read_rows(CUSTOMER, [encode_key([2]), encode_key([3])]))
    decode = decoder(Kind("text"))
    assert [row[0] for row in rows] == [1, 2, 3]
    assert decode(rows[2][1]) == "Zoë"
    with pins.refused(RowError):
        decode(rows[1][1])
    assert sorted(again) == rows[1:]


def test_a_key_of_other_bytes_names_its_row(postgres_url: str) -> None:
    plan = plan_of(TableFacts("named", "named", (column("name", TEXT, nullable=False),), ("name",)), ["name"])
    with database(postgres_url, "SQL_ASCII") as url:
        with psycopg.connect(url) as server:
            server.execute("CREATE TABLE named (name text PRIMARY KEY)")
            server.execute("INSERT INTO named VALUES ('a'), (convert_from('\\x5ae9', 'SQL_ASCII'))")
        with closing(SqlSource(source_url(url))) as source:
            rows = list(source.read_page(plan, None, None))
            assert list(source.read_rows(plan, [encode_key(rows[1])])) == rows[1:]


def test_a_journal_may_be_in_such_a_database(url: str) -> None:
    with closing(SqlJournal(url)) as journal:
        assert journal.start_run(RunIdentity("backfill", "zoë", "table-1", "rev1")).id == 1
        assert [run.identity.job for run in journal.runs("zoë")] == ["zoë"]


def test_a_mark_of_such_a_row_is_read(postgres_url: str) -> None:
    with (
        database(postgres_url, "SQL_ASCII") as made,
        with_a_bad_row(made) as url,
        capturing("postgresql", url) as shop,
    ):
        shop.install(captured(shop.table("customer"), ["id", "name"]))
        with psycopg.connect(url) as service:
            service.execute("UPDATE customer SET name = 'b' WHERE id = 2")
            service.execute("UPDATE customer SET name = 'c' WHERE id = 3")
        images = [(mark.before, mark.after) for mark in shop.left()]
    assert [after for _, after in images] == [{"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    assert [before["name"] for before, _ in images if before] == ["Z\udce9", "Zoë"]
