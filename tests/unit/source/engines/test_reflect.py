from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from migrator.mapping.model.facts import ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins


def facts_of(url: str) -> SchemaFacts:
    source = SqlSource(source_url(url))
    try:
        return source.facts()
    finally:
        source.close()


@contextmanager
def sqlite_schema(path: Path, script: str) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    yield str(path)


def sqlite_facts(tmp_path: Path, script: str) -> SchemaFacts:
    with sqlite_schema(tmp_path / "schema.db", script) as path:
        return facts_of(path)


def postgresql_facts(url: str, script: str) -> SchemaFacts:
    with psycopg.connect(url) as connection:
        connection.execute(script.encode())
    return facts_of(url)


# ── SQLite ──


def test_sqlite_types_are_the_authors_words(tmp_path: Path) -> None:
    script = "CREATE TABLE t (a UUID, b DATETIME, c NUMERIC(10,2), d STRING, e, f TIMESTAMP WITH TIME ZONE)"
    columns = sqlite_facts(tmp_path, script).tables["t"].columns
    assert [column.kind for column in columns] == [
        Kind("uuid"),
        Kind("timestamp"),
        Kind("number", scale=2),
        Kind("plain"),
        Kind("plain"),
        Kind("timestamp", zone=True),
    ]
    assert [column.declared for column in columns][:4] == ["UUID", "DATETIME", "NUMERIC(10,2)", "STRING"]


def test_only_the_rowid_and_not_null_are_never_null_in_sqlite(tmp_path: Path) -> None:
    script = "CREATE TABLE a (id INTEGER PRIMARY KEY, b TEXT NOT NULL, c TEXT); CREATE TABLE d (id TEXT PRIMARY KEY);"
    tables = sqlite_facts(tmp_path, script).tables
    assert [column.nullable for column in tables["a"].columns] == [False, False, True]
    assert [column.nullable for column in tables["d"].columns] == [True]


def test_unique_columns_of_sqlite_hold_for_every_row(tmp_path: Path) -> None:
    script = """
        CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT DEFAULT 'x' UNIQUE, b, c, UNIQUE (c, b));
        CREATE UNIQUE INDEX whole ON t (b);
        CREATE UNIQUE INDEX partial ON t (c) WHERE c IS NOT NULL;
        CREATE UNIQUE INDEX expression ON t (lower(c));
        CREATE INDEX not_unique ON t (c);
    """
    assert sqlite_facts(tmp_path, script).tables["t"].unique == (("a",), ("c", "b"), ("b",))


def test_sqlite_unique_rows_meet_by_collation_not_only_by_value(tmp_path: Path) -> None:
    script = """
        CREATE TABLE same (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE);
        CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b TEXT, UNIQUE (b COLLATE NOCASE));
        CREATE UNIQUE INDEX "an (index" ON t (a, x'61' || lower([B]) ASC) WHERE "a" <> 'b,b' OR b IS NULL;
        CREATE UNIQUE INDEX plain ON t (a, b);
    """
    tables = sqlite_facts(tmp_path, script).tables
    assert tables["same"].unique_conflicts == ()
    found = {one.columns: one for one in tables["t"].unique_conflicts}
    assert found.keys() == {("b",), ("a", "b")}
    assert found["b",].whole
    assert found["b",].sql == pins.text()
    assert not found["a", "b"].whole
    assert found["a", "b"].sql == (
        '(gone."a") = (NEW."a") COLLATE "NOCASE"'
        """ AND (x'61' || lower(gone."b")) = (x'61' || lower(NEW."b")) COLLATE "BINARY\""""
        """ AND (gone."a" <> 'b,b' OR gone."b" IS NULL) AND (NEW."a" <> 'b,b' OR NEW."b" IS NULL)"""
    )


def test_sqlite_foreign_key_may_have_any_case_and_no_columns(tmp_path: Path) -> None:
    script = """
        CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY);
        CREATE TABLE album (a REFERENCES ARTIST, b REFERENCES artist (artistid), c REFERENCES gone (id));
    """
    album = sqlite_facts(tmp_path, script).tables["album"]
    expected = [ForeignKey((name,), "Artist", ("ArtistId",)) for name in "ab"]
    assert sorted(album.foreign_keys, key=lambda key: key.columns) == expected


def test_sqlite_view_has_columns_without_key_unless_broken(tmp_path: Path) -> None:
    script = """
        CREATE TABLE t (id INTEGER PRIMARY KEY, a VARCHAR(5));
        CREATE TABLE gone (a);
        CREATE VIEW good AS SELECT id, a FROM t;
        CREATE VIEW broken AS SELECT a FROM gone;
        DROP TABLE gone;
    """
    tables = sqlite_facts(tmp_path, script).tables
    assert set(tables) == {"t", "good"}
    assert tables["good"].primary_key == ()
    assert tables["good"].columns[1].kind == Kind("text", length=5)


def test_the_systems_tables_and_ours_are_left_out(tmp_path: Path) -> None:
    script = """
        CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE TABLE migrator_mark (id INTEGER);
        CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY);
    """
    assert set(sqlite_facts(tmp_path, script).tables) == {"t", "alembic_version"}


# ── PostgreSQL ──


def test_postgresql_types_have_kinds_through_enums_and_domains(postgres_database: str) -> None:
    script = """
        CREATE TYPE mood AS ENUM ('a', 'b');
        CREATE DOMAIN code AS varchar(7); CREATE DOMAIN inner_code AS code; CREATE DOMAIN feeling AS mood;
        CREATE DOMAIN cents AS numeric(12, 3);
        CREATE TABLE t (a mood, b code, c mood[], d timestamptz(3), e numeric(10, 2), f numeric(10), g bpchar(3),
            h jsonb, i interval, j "char", k bigserial, l uuid, m bytea, n real,
            o inner_code, p feeling, q cents)
    """
    columns = postgresql_facts(postgres_database, script).tables["t"].columns
    assert [column.kind for column in columns] == [
        Kind("text"),
        Kind("text", length=7),
        Kind("list", element=Kind("text")),
        Kind("timestamp", zone=True),
        Kind("number", scale=2),
        Kind("number", scale=0),
        Kind("text", length=3),
        Kind("json"),
        Kind("text"),
        Kind("text"),
        Kind("integer"),
        Kind("uuid"),
        Kind("binary"),
        Kind("float"),
        Kind("text", length=7),
        Kind("text"),
        Kind("number", scale=3),
    ]
    assert columns[3].declared == pins.text()


def test_postgresql_facts_have_own_default_schema_tables_only(
    postgres_database: str,
) -> None:
    script = """
        CREATE TABLE "Order Line" ("Id" int PRIMARY KEY, a text, b text NOT NULL, UNIQUE (b, a));
        CREATE UNIQUE INDEX ON "Order Line" (b) INCLUDE (a);
        CREATE UNIQUE INDEX ON "Order Line" (a) WHERE a <> '';
        CREATE UNIQUE INDEX ON "Order Line" (lower(a));
        CREATE TABLE part (id int PRIMARY KEY, line int REFERENCES "Order Line") PARTITION BY RANGE (id);
        CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (1) TO (10);
        CREATE VIEW seen AS SELECT id FROM part;
        CREATE MATERIALIZED VIEW kept AS SELECT id FROM part;
        CREATE SCHEMA migrator; CREATE TABLE migrator.mark (id int); CREATE TABLE migrator_mark (id int);
        CREATE SCHEMA other; CREATE TABLE other.part (id int PRIMARY KEY);
        CREATE TABLE abroad (id int PRIMARY KEY REFERENCES other.part);
    """
    tables = postgresql_facts(postgres_database, script).tables
    assert set(tables) == {"Order Line", "part", "seen", "kept", "abroad"}
    line = tables["Order Line"]
    assert (line.real, line.schema, line.primary_key) == ("Order Line", "public", ("Id",))
    assert set(line.unique) == {("b", "a"), ("b",)}
    assert [column.nullable for column in line.columns] == [False, True, False]
    assert tables["part"].foreign_keys == (ForeignKey(("line",), "Order Line", ("Id",)),)
    assert tables["abroad"].foreign_keys == ()
    assert tables["seen"].primary_key == ()


# ── Chinook ──


def test_chinook_in_sqlite_is_understood(chinook_sqlite: Path) -> None:
    check_chinook(facts_of(str(chinook_sqlite)))


def test_postgresql_key_not_validated_for_all_rows_is_unproved(postgres_database: str) -> None:
    script = """CREATE TABLE up (id integer PRIMARY KEY);
        CREATE TABLE t (id integer PRIMARY KEY, a integer REFERENCES up, b integer);
        ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES up NOT VALID;"""
    keys = postgresql_facts(postgres_database, script).tables["t"].foreign_keys
    assert [(key.columns, key.proved) for key in keys] == [(("a",), True), (("b",), False)]


def test_chinook_in_postgresql_is_understood(chinook_postgres: str) -> None:
    check_chinook(facts_of(chinook_postgres))


def check_chinook(facts: SchemaFacts) -> None:
    """By the names of PostgreSQL's script: those of others have no underlines, and letters of any case."""
    tables = {_plain(name): table for name, table in facts.tables.items()}
    assert len(tables) == 11
    track = tables["track"]
    kinds = {_plain(column.name): column.kind for column in track.columns}
    assert kinds["trackid"] == Kind("integer")
    assert kinds["name"] == Kind("text", length=200)
    assert kinds["unitprice"] == Kind("number", scale=2)
    assert list(map(_plain, track.primary_key)) == ["trackid"]
    assert ("albumid", "album", "albumid") in _keys(track)
    assert ("invoiceid", "invoice", "invoiceid") in _keys(tables["invoiceline"])
    assert list(map(_plain, tables["playlisttrack"].primary_key)) == ["playlistid", "trackid"]
    assert _keys(tables["employee"]) == [("reportsto", "employee", "employeeid")]
    assert {_plain(one.name): one.kind for one in tables["invoice"].columns}["invoicedate"] == Kind(
        "timestamp"
    )


def _keys(table: TableFacts) -> list[tuple[str, ...]]:
    return [tuple(map(_plain, (*key.columns, key.table, *key.referred))) for key in table.foreign_keys]


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
