"""What a page's SELECTs cost, as the database says before they are run."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from migrator.model.facts import EntityPlan, TableFacts
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from tests.support_mysql import run_script
from tests.support_source import INTEGER, TEXT, column, list_of, plan_of

PARENT = TableFacts(
    "parent", "parent", (column("id", INTEGER, nullable=False), column("code", TEXT, nullable=False)), ("id",)
)
CHILD = TableFacts(
    "child", "Child Row", (column("id", INTEGER, nullable=False), column("parent_code", TEXT)), ("id",)
)
TABLES = """
CREATE TABLE parent (id INTEGER PRIMARY KEY, code VARCHAR(20) NOT NULL);
CREATE TABLE "Child Row" (id INTEGER PRIMARY KEY, parent_code VARCHAR(20));
CREATE TABLE few (id INTEGER PRIMARY KEY, parent_id INTEGER);
INSERT INTO few VALUES (1, 1), (2, 1), (3, 2);
"""
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
ROWS = f"""
INSERT INTO parent {NUMBERS} SELECT i, 'c' || i FROM n;
INSERT INTO "Child Row" {NUMBERS} SELECT i, 'c' || i FROM n;
"""
MYSQL_ROWS = f"""
SET max_recursive_iterations = 5000;
INSERT INTO parent {NUMBERS} SELECT i, CONCAT('c', i) FROM n;
INSERT INTO "Child Row" {NUMBERS} SELECT i, CONCAT('c', i) FROM n;
"""
BY_KEY = plan_of(PARENT)
BY_TEXT = plan_of(PARENT, key=(PARENT.columns[1],))
WITH_CHILDREN = plan_of(
    PARENT, collections=[list_of("rows", CHILD, (("parent_code", "code"),), ["id", "parent_code"])]
)
FEW = TableFacts("few", "few", (column("id", INTEGER, nullable=False), column("parent_id", INTEGER)), ("id",))
WITH_FEW = plan_of(PARENT, collections=[list_of("rows", FEW, (("parent_id", "id"),), ["id", "parent_id"])])


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> closing[SqlSource]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "p.db")) as database:
            database.executescript(TABLES + ROWS)
        return closing(SqlSource(source_url(f"sqlite:///{tmp_path / 'p.db'}")))
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_database")
        with psycopg.connect(url, autocommit=True) as server:
            server.execute((TABLES + ROWS + 'ANALYZE parent; ANALYZE "Child Row"').encode())
    else:
        url = request.getfixturevalue("mysql_database")
        run_script(url, TABLES + MYSQL_ROWS + 'ANALYZE TABLE parent; ANALYZE TABLE "Child Row"')
    return closing(SqlSource(source_url(url)))


def whole_tables(source: SqlSource, plan: EntityPlan, page_rows: int = 100) -> list[tuple[str, list[str]]]:
    found = source.explain(plan, page_rows)
    assert all(one.lines for one in found)
    return [(one.what, list(one.whole_tables)) for one in found]


def test_a_page_by_the_primary_key_reads_no_whole_table(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_KEY) == [("rows", [])]


def test_a_page_without_an_index_reads_the_whole_table(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_TEXT) == [("rows", ["parent"])]


def test_children_without_an_index_are_read_as_a_whole(source: closing[SqlSource]) -> None:
    with source as opened:
        rows, children = whole_tables(opened, WITH_CHILDREN)
    assert rows == ("rows", [])
    assert children == ("list rows", ["Child Row"])


def test_a_table_of_no_more_rows_than_a_page_may_be_read_as_a_whole(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, WITH_FEW) == [("rows", []), ("list rows", [])]
        assert whole_tables(opened, WITH_FEW, 2)[1] in [("list rows", ["few"]), ("list rows", [])]


def test_the_only_page_may_read_all(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_TEXT, 5000) == [("rows", [])]
