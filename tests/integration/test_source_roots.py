"""Many root rows of one parent are found page by page, each page from an index."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects import sqlite

from migrator.mapping.items.changes import captured_tables
from migrator.mapping.model.facts import EntityPlan, JoinPlan, Lookup
from migrator.mapping.model.table import decode_key
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.selects import roots_select
from tests import support_mysql
from tests.support_source import INTEGER, TEXT, column, list_of, plan_of, table_of

PARENT = table_of("parent", ["id"], [column("id", INTEGER), column("name", TEXT)])
CHILD = table_of("child", ["id"], [column("id", INTEGER), column("parent_id", INTEGER)])
OF_CHILD = JoinPlan("parent", "", PARENT, (("parent_id", "id"),))
CHILDREN = plan_of(CHILD, ["id", "parent.name"], [OF_CHILD])
GRANDCHILD = table_of(
    "grandchild", ["id"], [column("id", INTEGER), column("child_id", INTEGER), column("parent_id", INTEGER)]
)
GRANDCHILDREN = list_of("all", GRANDCHILD, (("child_id", "id"),), ["parent.name"], joins=[OF_CHILD])
BY_GRANDCHILDREN = plan_of(CHILD, ["id"], collections=[GRANDCHILDREN])
COUNT = 100_000
SCRIPT = """
CREATE TABLE parent (id INTEGER PRIMARY KEY, name VARCHAR(20));
CREATE TABLE child (id INTEGER PRIMARY KEY, parent_id INTEGER NOT NULL);
CREATE TABLE grandchild (id INTEGER PRIMARY KEY, child_id INTEGER NOT NULL, parent_id INTEGER NOT NULL);
CREATE INDEX child_parent ON child (parent_id);
CREATE INDEX grandchild_child ON grandchild (child_id);
CREATE INDEX grandchild_parent ON grandchild (parent_id);
"""
SERIES = f"""
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 2 * {COUNT})
INSERT INTO child SELECT n, CASE WHEN n % 2 = 0 THEN 1 ELSE n END FROM number
"""
GRAND = "INSERT INTO grandchild SELECT id, id, parent_id FROM child"


def filled_sqlite(file: Path) -> str:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(f"{SCRIPT}; {SERIES}; {GRAND}; ANALYZE")
    return f"sqlite:///{file}"


def filled_postgresql(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in (*SCRIPT.split(";")[:-1], SERIES, GRAND, "ANALYZE"):
            connection.execute(statement.encode())
    return url


def filled_mysql(url: str) -> str:
    with support_mysql.connect(url) as connection, connection.cursor() as cursor:
        one = f"INSERT INTO child SELECT seq, CASE WHEN seq % 2 = 0 THEN 1 ELSE seq END FROM {support_mysql.numbers(2 * COUNT)}"
        for statement in (*SCRIPT.split(";")[:-1], one, GRAND, "ANALYZE TABLE child, grandchild"):
            cursor.execute(statement)
        connection.commit()
    return url


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        url = filled_sqlite(tmp_path / "many.db")
    elif request.param == "postgresql":
        url = filled_postgresql(request.getfixturevalue("postgres_database"))
    else:
        url = filled_mysql(request.getfixturevalue("mysql_database"))
    made = SqlSource(source_url(url))
    yield made
    made.close()


def lookup_of(plan: EntityPlan, table: str) -> Lookup:
    return next(one for one in captured_tables([plan])[table].lookups if not one.is_root)


@pytest.mark.slow
@pytest.mark.parametrize("plan", [CHILDREN, BY_GRANDCHILDREN], ids=["joined", "joined to a list's child"])
def test_a_hundred_thousand_children_of_one_parent_come_in_pages(source: SqlSource, plan: EntityPlan) -> None:
    lookup, found, after = lookup_of(plan, "parent"), [], None
    while page := source.find_roots(plan, lookup, [[1]], after, 5000):
        found += page
        after = page[-1]
    assert [decode_key(key)[0] for key in found] == [1, *range(2, 2 * COUNT + 1, 2)]
    assert source.find_roots(plan, lookup, [[77]], None, 5000) == ["[77]"]


@pytest.mark.parametrize(
    ("plan", "table"), [(CHILDREN, "parent"), (BY_GRANDCHILDREN, "parent"), (BY_GRANDCHILDREN, "grandchild")]
)
def test_no_page_reads_a_whole_table(tmp_path: Path, plan: EntityPlan, table: str) -> None:
    url = filled_sqlite(tmp_path / "many.db")
    statement = roots_select(plan, lookup_of(plan, table), [[1]], (50,), 100)
    compiled = statement.compile(dialect=sqlite.dialect())
    values = [compiled.params[name] for name in compiled.positiontup or ()]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {compiled}", values)]
    assert steps
    assert not [step for step in steps if step.startswith("SCAN")], steps
