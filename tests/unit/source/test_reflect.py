from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from migrator.model.errors import SettingsError
from migrator.model.facts import Column, ForeignKey, Kind, SchemaFacts, TableFacts
from migrator.model.mapping import NameRule
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.reflect import clashes, expression_advice, snake_case, statement_advice, written_names
from tests import pins


def facts_of(url: str, names: NameRule = "exact") -> SchemaFacts:
    source = SqlSource(source_url(url), names)
    try:
        return source.facts()
    finally:
        source.close()


@contextmanager
def sqlite_schema(path: Path, script: str) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    yield str(path)


def sqlite_facts(tmp_path: Path, script: str, names: NameRule = "exact") -> SchemaFacts:
    with sqlite_schema(tmp_path / "schema.db", script) as path:
        return facts_of(path, names)


def postgresql_facts(url: str, script: str) -> SchemaFacts:
    with psycopg.connect(url) as connection:
        connection.execute(script.encode())
    return facts_of(url, "snake_case")


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


def test_where_more_rows_of_sqlite_meet_than_those_of_the_same_values(tmp_path: Path) -> None:
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


def test_a_foreign_key_of_sqlite_may_be_written_in_any_case_and_without_columns(tmp_path: Path) -> None:
    script = """
        CREATE TABLE Artist (ArtistId INTEGER PRIMARY KEY);
        CREATE TABLE album (a REFERENCES ARTIST, b REFERENCES artist (artistid), c REFERENCES gone (id));
    """
    album = sqlite_facts(tmp_path, script, "snake_case").tables["album"]
    expected = [ForeignKey((name,), "artist", ("artist_id",)) for name in "ab"]
    assert sorted(album.foreign_keys, key=lambda key: key.columns) == expected


def test_a_view_has_columns_and_no_key_and_a_broken_one_is_left_out(tmp_path: Path) -> None:
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


def test_every_clash_of_names_is_reported_at_once(tmp_path: Path) -> None:
    script = (
        'CREATE TABLE t (TrackId, track_id); CREATE TABLE "Order Line" (a); CREATE TABLE OrderLine (A, "a ");'
    )
    with pytest.raises(SettingsError) as caught:
        sqlite_facts(tmp_path, script, "snake_case")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert pins.said(lines[0], "line")
    assert pins.said(lines[2], "columns")
    assert all("names: exact" in line for line in lines)


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


def test_postgresql_tables_are_the_default_schemas_without_partitions_and_ours(
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
    assert set(tables) == {"order_line", "part", "seen", "kept", "abroad"}
    line = tables["order_line"]
    assert (line.real, line.schema, line.primary_key) == ("Order Line", "public", ("id",))
    assert set(line.unique) == {("b", "a"), ("b",)}
    assert [column.nullable for column in line.columns] == [False, True, False]
    assert tables["part"].foreign_keys == (ForeignKey(("line",), "order_line", ("id",)),)
    assert tables["abroad"].foreign_keys == ()
    assert tables["seen"].primary_key == ()


# ── Chinook ──


def test_chinook_in_sqlite_is_understood(chinook_sqlite: Path) -> None:
    check_chinook(facts_of(str(chinook_sqlite), "snake_case"))


def test_chinook_in_postgresql_is_understood(chinook_postgres: str) -> None:
    check_chinook(facts_of(chinook_postgres, "snake_case"))


def check_chinook(facts: SchemaFacts) -> None:
    assert len(facts.tables) == 11
    track, line = facts.tables["track"], facts.tables["invoice_line"]
    kinds = {column.name: column.kind for column in track.columns}
    assert kinds["track_id"] == Kind("integer")
    assert kinds["name"] == Kind("text", length=200)
    assert kinds["unit_price"] == Kind("number", scale=2)
    assert track.primary_key == ("track_id",)
    assert ForeignKey(("album_id",), "album", ("album_id",)) in track.foreign_keys
    assert ForeignKey(("invoice_id",), "invoice", ("invoice_id",)) in line.foreign_keys
    assert facts.tables["playlist_track"].primary_key == ("playlist_id", "track_id")
    assert facts.tables["employee"].foreign_keys == (
        ForeignKey(("reports_to",), "employee", ("employee_id",)),
    )
    invoice_date = facts.tables["invoice"].column("invoice_date")
    assert invoice_date is not None
    assert invoice_date.kind == Kind("timestamp")


def table(real: str, *columns: str) -> TableFacts:
    facts = tuple(Column(snake_case(name), name, Kind("integer")) for name in columns)
    return TableFacts(snake_case(real), real, facts)


TABLES = [
    table("Track", "TrackId", "Name"),
    table("Order Line", "Line No", "TrackId", "name"),
    table("plain", "id", "name"),
]


def facts(dialect: str) -> SchemaFacts:
    return SchemaFacts(dialect, {one.name: one for one in TABLES}, loosely_typed=dialect == "sqlite")


def advice(dialect: str, sql: str, *, refused: bool = True) -> str:
    return statement_advice(sql, facts(dialect), refused=refused).rpartition("; write ")[2]


@pytest.mark.parametrize(
    ("dialect", "sql", "words"),
    [
        ("postgresql", "SELECT track_id FROM track", '"Track" for track, "TrackId" for track_id'),
        ("postgresql", "SELECT t.name FROM track t", '"Track" for track, "Name" for name'),
        ("postgresql", "SELECT TrackId FROM Track", '"Track" for Track, "TrackId" for TrackId'),
        ("postgresql", 'SELECT "TrackId" FROM "Track" WHERE track_id = 1', '"TrackId" for track_id'),
        ("postgresql", 'SELECT name FROM "Track", plain', ""),  # plain has it
        ("postgresql", 'SELECT "TrackId" AS track_id FROM "Track" ORDER BY track_id', ""),
        ("postgresql", "WITH track AS (SELECT id FROM plain) SELECT id FROM track", ""),
        ("postgresql", 'SELECT 1 FROM "Track" WHERE EXISTS (SELECT 1 FROM order_line)', '"Order Line" for order_line'),
        ("mysql", "SELECT track_id, name FROM track", "`Track` for track, `TrackId` for track_id"),
        ("sqlite", "SELECT track_id, name FROM track", '"TrackId" for track_id'),
        ("sqlite", "SELECT name FROM nowhere", ""),
        ("sqlite", "SELECT FROM WHERE", ""),
    ],
)  # fmt: skip
def test_what_to_write_instead_of_each_name_of_the_mapping(dialect: str, sql: str, words: str) -> None:
    assert advice(dialect, sql) == words


def test_sqlite_takes_an_unknown_quoted_name_for_a_text_so_it_is_told_of_though_nothing_is_refused() -> None:
    assert advice("sqlite", 'SELECT "track_id", name FROM track', refused=False) == '"TrackId" for track_id'
    assert advice("sqlite", 'SELECT "trackid" FROM track', refused=False) == ""
    assert advice("postgresql", 'SELECT "track_id" FROM "Track"', refused=False) == ""


def test_an_expression_is_advised_alike() -> None:
    line = TABLES[1]
    found = expression_advice("line_no + name", line, facts("postgresql"), refused=True)
    assert found.endswith('; write "Line No" for line_no')
    assert expression_advice('"line_no"', line, facts("sqlite"), refused=False).endswith("for line_no")
    assert expression_advice('"Line No"', line, facts("sqlite"), refused=False) == ""


@pytest.mark.parametrize(
    ("real", "written"),
    [
        ("TrackId", "track_id"),
        ("HTTPServer", "http_server"),
        ("already_snake", "already_snake"),
        ("Order Details", "order_details"),
        ("Track_Id", "track_id"),
        ("orderID", "order_id"),
        ("ID", "id"),
        ("line2Total", "line2_total"),
        ("Unit Price ($)", "unit_price"),
        ("ÜberTrack", "über_track"),
        ("_private", "_private"),
        ("$", "$"),
    ],
)
def test_snake_case_splits_words_and_lowers_them(real: str, written: str) -> None:
    assert snake_case(real) == written
    assert snake_case(written) == written


def test_exact_names_are_kept() -> None:
    assert written_names(["TrackId", "Order Details"], "exact") == {
        "TrackId": "TrackId",
        "Order Details": "Order Details",
    }


def test_two_names_written_alike_are_a_clash_that_names_both() -> None:
    written = written_names(["TrackId", "track_id", "Name"], "snake_case")
    assert clashes(written) == [pins.text()]
    assert clashes(written_names(["TrackId", "track_id"], "exact")) == []
