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
from migrator.model.errors import SourceError
from migrator.model.facts import TableFacts
from migrator.model.journal import RunIdentity
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
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
def test_texts_are_utf8_whatever_the_database_keeps(url: str, asked: str) -> None:
    with closing(SqlSource(source_url(url + asked))) as source:
        assert list(source.facts().tables) == ["customer"]
        assert source.read_page(CUSTOMER, None, None) == [(1, "Zoë")]


def test_a_text_of_other_bytes_is_an_error_that_says_where(postgres_url: str) -> None:
    with database(postgres_url, "SQL_ASCII") as url:
        with psycopg.connect(url) as server:
            server.execute("CREATE TABLE customer (id int PRIMARY KEY, name text)")
            server.execute("INSERT INTO customer VALUES (1, convert_from('\\x5ae9', 'SQL_ASCII'))")
        with closing(SqlSource(source_url(url))) as source, pytest.raises(SourceError) as caught:
            source.read_page(CUSTOMER, None, None)
    assert "entity customer (table customer): CharacterNotInRepertoire: a text holds bytes" in str(
        caught.value
    )
    assert "convert_to(" in str(caught.value)


def test_a_journal_may_be_in_such_a_database(url: str) -> None:
    with closing(SqlJournal(url)) as journal:
        assert journal.start_run(RunIdentity("backfill", "zoë", "table-1", "rev1")).id == 1
        assert [run.identity.job for run in journal.runs("zoë")] == ["zoë"]
