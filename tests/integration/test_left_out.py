"""Tables that are not the application's, or that cannot be read, are left out of the schema, with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from migrator.model.errors import MappingError
from tests.golden.heart import HEAD, check
from tests.journeys.in_process import run_here
from tests.support_capture import Capturing

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


def test_init_names_what_it_leaves_out(sqlite: Capturing, tmp_path: Path) -> None:
    seen(
        sqlite,
        [*SQLITE, "CREATE TABLE audit (id INTEGER PRIMARY KEY, note_id INTEGER REFERENCES notes (id))"],
    )
    words = ["init", sqlite.url, "--out", str(tmp_path / "notes.yaml"), "--statements", "none"]
    words += ["--no-prove", "--leave-out", "audit"]
    ended = run_here(words, tmp_path, {})
    assert "left out: notes_fts_data (a shadow table" in ended.out
    assert "left out: audit (--leave-out)" in ended.out
    assert not re.search("audit|fts|stale", (tmp_path / "notes.yaml").read_text())
    assert "region" not in (tmp_path / "notes.job.yaml").read_text()
    ended = run_here([*words[:-1], "autdi", "--force"], tmp_path, {})
    assert "--leave-out: the source has no table 'autdi'" in ended.err


def test_a_mapping_of_a_shadow_table_is_refused(sqlite: Capturing) -> None:
    seen(sqlite, SQLITE)
    text = 'entities: {notes_fts_data: {items: {Data: {key: ["D#{id}", D]}}}}'
    with pytest.raises(MappingError, match="cannot be migrated: it is a shadow table"):
        check(text, sqlite.source.facts(), HEAD)


def test_postgresql_leaves_out_unpopulated_views(postgresql: Capturing) -> None:
    tables, left_out = seen(postgresql, POSTGRESQL)
    assert tables == ["filled", "notes"]
    assert list(left_out) == ["empty"]


def test_mariadb_leaves_out_broken_views(mariadb: Capturing) -> None:
    tables, left_out = seen(mariadb, MARIADB)
    assert tables == ["notes"]
    assert list(left_out) == ["stale"]


def test_keys_of_versioned_rows_are_those_of_current_rows(mariadb: Capturing) -> None:
    seen(mariadb, [VERSIONED])
    table = mariadb.source.facts().tables["priced"]
    assert (table.primary_key, table.unique) == (("id",), (("code",),))
