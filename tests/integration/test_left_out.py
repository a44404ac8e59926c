"""Tables that are not the application's, or that cannot be read, are left out of the schema, with a reason."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.engine import URL, make_url

from migrator.runtime.errors import MappingError
from migrator.source.engines.catalogue import UNREADABLE
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.golden.heart import HEAD, check
from tests.journeys.in_process import run_here
from tests.support_capture import Capturing, captured

SQLITE = [
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)",
    "CREATE VIRTUAL TABLE notes_fts USING fts5(body, content='notes', content_rowid='id')",
    "CREATE TABLE gone (id INTEGER)",
    "CREATE VIEW stale AS SELECT id FROM gone",
    "DROP TABLE gone",
]
POSTGRESQL = [
    "CREATE TABLE notes (id int PRIMARY KEY, body text)",
    "CREATE MATERIALIZED VIEW empty AS SELECT id FROM notes WITH NO DATA",
    "CREATE MATERIALIZED VIEW filled AS SELECT id FROM notes",
]
MARIADB = [
    "CREATE TABLE notes (id INT PRIMARY KEY, body TEXT, FULLTEXT (body))",
    "CREATE TABLE gone (id INT)",
    "CREATE VIEW stale AS SELECT id FROM gone",
    "DROP TABLE gone",
    "CREATE SEQUENCE numbers",
]
VERSIONED = """CREATE TABLE priced (id INT PRIMARY KEY, price INT, code INT UNIQUE,
    since TIMESTAMP(6) GENERATED ALWAYS AS ROW START, until TIMESTAMP(6) GENERATED ALWAYS AS ROW END,
    PERIOD FOR SYSTEM_TIME (since, until)) WITH SYSTEM VERSIONING"""


def seen(capturing: Capturing, statements: Sequence[str]) -> tuple[list[str], Mapping[str, str]]:
    for statement in statements:
        capturing.run(statement)
    facts = capturing.source.facts()
    return sorted(facts.tables.keys() - {"first_of_all"}), facts.left_out


def test_sqlite_leaves_out_virtual_and_shadow_tables(sqlite: Capturing) -> None:
    tables, left_out = seen(sqlite, SQLITE)
    assert tables == ["notes"]
    shadows = ["notes_fts_config", "notes_fts_data", "notes_fts_docsize", "notes_fts_idx"]
    assert sorted(left_out) == ["notes_fts", *shadows, "stale"]
    assert "shadow table" in left_out["notes_fts_data"]


def test_capture_ignores_tables_of_full_text_and_spatial_indexes(sqlite: Capturing) -> None:
    sqlite.run(
        *SQLITE[:2],
        "CREATE VIRTUAL TABLE places USING rtree(id, west, east)",
        "CREATE TRIGGER indexed AFTER INSERT ON notes BEGIN"
        " INSERT INTO notes_fts (rowid, body) VALUES (new.id, new.body);"
        " INSERT INTO places VALUES (new.id, 1, 2); END",
    )
    tables = sqlite.source.facts().tables.values()
    sqlite.install(*(captured(table, [column.name for column in table.columns]) for table in tables))
    sqlite.run("INSERT INTO notes (body) VALUES ('one word'), ('another word')")
    assert [mark.table for mark in sqlite.left()] == ["notes", "notes"]
    found = (
        "SELECT count(*) FROM notes JOIN places USING (id) WHERE id IN (SELECT rowid FROM notes_fts('word'))"
    )
    with closing(sqlite3.connect(str(make_url(sqlite.url).database))) as connection:
        assert connection.execute(found).fetchall() == [(2,)]


def test_init_names_what_it_leaves_out(sqlite: Capturing, tmp_path: Path) -> None:
    seen(
        sqlite,
        [*SQLITE, "CREATE TABLE audit (id INTEGER PRIMARY KEY, note_id INTEGER REFERENCES notes (id))"],
    )
    words = ["init", sqlite.url, "--out", str(tmp_path / "notes.yaml"), "--statements", "none"]
    words += ["--no-prove", "--leave-out", "audit"]
    ended = run_here(words, tmp_path, {})
    assert pins.said(ended.out, "left")
    assert pins.said(ended.out, "leave")
    assert not re.search("audit|fts|stale", (tmp_path / "notes.yaml").read_text())
    assert "region" not in (tmp_path / "notes.job.yaml").read_text()
    ended = run_here([*words[:-1], "autdi", "--force"], tmp_path, {})
    assert pins.said(ended.err, "source")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--leave-out audit_*", {"orders", "order_lines", "users", "weird[x]"}),
        ("--leave-out *s --leave-out audit_?", {"weird[x]"}),
        ("--leave-out weird[x]", {"audit_a", "audit_b", "orders", "order_lines", "users"}),
        ("--only order*", {"orders", "order_lines"}),
        ("--only order* --only users --leave-out *_lines", {"orders", "users"}),
    ],
)
def test_init_takes_patterns_of_tables(words: str, kept: set[str], sqlite: Capturing, tmp_path: Path) -> None:
    tables = {"audit_a", "audit_b", "orders", "order_lines", "users", "weird[x]"}
    sqlite.run(*(f'CREATE TABLE "{name}" (id INTEGER PRIMARY KEY)' for name in sorted(tables)))
    out = tmp_path / "shop.yaml"
    common = ["init", sqlite.url, "--out", str(out), "--statements", "none", "--no-prove"]
    ended = run_here([*common, *words.split(), "--leave-out", "first_of_al*"], tmp_path, {})
    assert ended.code == 0, ended.err
    sheet = out.with_name("shop.patterns.md").read_text()
    assert {name for name in tables if f"| {name} | --" in sheet} == tables - kept
    ended = run_here([*common, "--force", "--only", "ordr*", "--leave-out", "x*"], tmp_path, {})
    assert ended.err.count("the source has no table") == 2


def test_a_mapping_of_a_shadow_table_is_refused(sqlite: Capturing) -> None:
    seen(sqlite, SQLITE)
    text = 'entities: {notes_fts_data: {items: {Data: {key: ["D#{id}", D]}}}}'
    with pins.refused(MappingError):
        check(text, sqlite.source.facts(), HEAD)


def test_postgresql_leaves_out_unpopulated_views(postgresql: Capturing) -> None:
    tables, left_out = seen(postgresql, POSTGRESQL)
    assert tables == ["filled", "notes"]
    assert list(left_out) == ["empty"]


def test_postgresql_leaves_out_tables_of_extensions(postgresql: Capturing) -> None:
    made = [f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("notes", "spatial_ref_sys")]
    tables, left_out = seen(postgresql, [*made, "ALTER EXTENSION plpgsql ADD TABLE spatial_ref_sys"])
    assert (tables, list(left_out)) == (["notes"], ["spatial_ref_sys"])


def test_init_names_why_a_key_does_not_hold(postgresql: Capturing, tmp_path: Path) -> None:
    seen(
        postgresql,
        ["CREATE TABLE animal (id int PRIMARY KEY)", "CREATE TABLE dog (bark text) INHERITS (animal)"],
    )
    words = ["init", postgresql.url, "--out", str(tmp_path / "animals.yaml"), "--statements", "none"]
    out = run_here(words, tmp_path, {}).out
    assert "animal has no key that holds for all rows (tables inherit from it," in out
    assert "dog has no primary key and no unique key without NULL" in out


def test_init_leaves_out_a_view_with_unreadable_rows(postgresql: Capturing, tmp_path: Path) -> None:
    postgresql.run("CREATE TABLE notes (id int PRIMARY KEY, word text)", "INSERT INTO notes VALUES (1, 'a')")
    postgresql.run("CREATE VIEW broken AS SELECT 1 / (id - id) AS x, id FROM notes")
    (tmp_path / "asked.sql").write_text(
        "SELECT word FROM notes WHERE id = :id;\nSELECT id FROM broken WHERE x = :x ORDER BY id;\n"
    )
    words = ["init", postgresql.url, "--out", str(tmp_path / "notes.yaml"), "--no-prove"]
    ended = run_here([*words, "--statements", str(tmp_path / "asked.sql")], tmp_path, {})
    assert "left out: broken (reading it fails)" in ended.out
    assert "broken" not in (tmp_path / "notes.yaml").read_text()


SECRET = "CREATE TABLE secret (id INT PRIMARY KEY)"
PUBLIC = "CREATE TABLE public_ (id INT PRIMARY KEY, secret INT REFERENCES secret (id), name VARCHAR(9))"


def test_postgresql_leaves_out_unreadable_tables(postgresql: Capturing, tmp_path: Path) -> None:
    role = f"reader_{uuid.uuid4().hex[:8]}"
    postgresql.run(SECRET, PUBLIC, f"CREATE ROLE {role} LOGIN", f"GRANT SELECT ON public_ TO {role}")
    try:
        left_out(make_url(postgresql.url).set(username=role), tmp_path)
    finally:
        postgresql.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_mariadb_leaves_out_unreadable_tables(mariadb: Capturing, tmp_path: Path) -> None:
    user = f"reader_{uuid.uuid4().hex[:8]}"
    mariadb.run(SECRET, PUBLIC, f"CREATE USER {user}@'%'")
    mariadb.run(f"GRANT SELECT ON public_ TO {user}@'%'", f"GRANT INSERT ON secret TO {user}@'%'")
    try:
        left_out(make_url(mariadb.url).set(username=user, password=None), tmp_path)
    finally:
        mariadb.run(f"DROP USER {user}@'%'")


def left_out(url: URL, folder: Path) -> None:
    """Assert that facts, init and check go on without the table that the user may not read, and name it."""
    text = url.render_as_string(hide_password=False)
    with closing(SqlSource(source_url(text))) as source:
        facts = source.facts()
    assert facts.tables.keys() == {"public_"}
    assert facts.left_out["secret"] == UNREADABLE
    words = ["init", text, "--out", str(folder / "shop.yaml"), "--statements", "none", "--no-prove"]
    assert f"left out: secret ({UNREADABLE})" in run_here(words, folder, {}).out
    assert run_here(["mapping", "check", str(folder / "shop.yaml"), "--source", text], folder, {}).code == 0
    mapped = 'entities: {secret: {items: {Secret: {key: ["S#{id}", S]}}}}'
    with pytest.raises(MappingError, match="cannot be migrated"):
        check(mapped, facts, HEAD)


@pytest.mark.mariadb
def test_mariadb_leaves_out_broken_views(mariadb: Capturing) -> None:
    tables, left_out = seen(mariadb, MARIADB)
    assert tables == ["notes"]
    assert list(left_out) == ["stale"]


@pytest.mark.mariadb
def test_keys_of_versioned_rows_are_those_of_current_rows(mariadb: Capturing) -> None:
    seen(mariadb, [VERSIONED])
    table = mariadb.source.facts().tables["priced"]
    assert (table.primary_key, table.unique) == (("id",), (("code",),))
