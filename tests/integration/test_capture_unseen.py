"""Rows that a database changes without firing their triggers: MariaDB's cascades, SQLite's REPLACE."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.integration.test_capture_triggers import images
from tests.support_capture import captured, capturing, new_sqlite


def test_a_table_that_cascades_to_itself_is_refused_on_mariadb(mysql_database: str) -> None:
    with capturing("mariadb", mysql_database) as made:
        made.run(
            "CREATE TABLE part (id integer PRIMARY KEY, of_id integer REFERENCES part (id) ON DELETE CASCADE)"
        )
        (refusal,) = made.capture.refusals([captured(made.table("part"), ["id", "of_id"])])
        assert refusal == pins.text()
        made.run("ALTER TABLE part DROP FOREIGN KEY part_ibfk_1")
        assert made.capture.refusals([captured(made.table("part"), ["id"])]) == []


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_a_row_that_replace_takes_away_leaves_a_mark(tmp_path: Path, recursive: str) -> None:
    with capturing("sqlite", new_sqlite(tmp_path / "a.db")) as made:
        made.run(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, code TEXT UNIQUE, parent INTEGER)",
            "INSERT INTO t VALUES (1, 'a', 7), (2, 'b', 8), (3, 'c', 9)",
        )
        made.install(captured(made.table("t"), ["id", "code", "parent"]))
        with made.service() as service:
            service.execute(f"PRAGMA recursive_triggers = {recursive}")
            service.execute("INSERT INTO t VALUES (4, 'd', 1)")
            assert images(made.left()) == [("t", None, (4, "d", 1))]
            service.execute("INSERT OR REPLACE INTO t VALUES (1, 'b', 5)")
            found = images(made.left())
            assert ("t", (1, "a", 7), None) in found
            assert ("t", (2, "b", 8), None) in found
            assert ("t", None, (1, "b", 5)) in found
            service.execute("UPDATE OR REPLACE t SET code = 'b' WHERE id = 3")
            found = images(made.left())
            assert ("t", (1, "b", 5), None) in found
            assert ("t", (3, "c", 9), (3, "b", 9)) in found
            service.execute("UPDATE t SET parent = 2, code = 'b', id = 3 WHERE id = 3")
            assert images(made.left()) == [("t", (3, "b", 9), (3, "b", 2))]


INDEXES = {
    "a collation": "(name COLLATE NOCASE)",
    "two": "(n, name COLLATE NOCASE DESC)",
    "an expression": "(lower( name ) /* a, b */, ifnull([n], 0) DESC)",
    "an expression with a collation": "((name || 'name') COLLATE NOCASE)",
    "a type of a column's name": "(CAST(lower(name) AS text) , +n)",
    "a condition": '(name COLLATE NOCASE) WHERE "N" > 0 AND name IS NOT NULL',
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_so_does_one_that_it_meets_in_another_index(tmp_path: Path, index: str) -> None:
    with capturing("sqlite", new_sqlite(tmp_path / "a.db")) as made:
        made.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, n INTEGER, text TEXT)")
        made.run(
            f"CREATE UNIQUE INDEX wide ON t {index}",
            "INSERT INTO t (id, name, n) VALUES (1, 'Ann', 7), (2, 'Bob', 8)",
        )
        made.install(captured(made.table("t"), ["id"]))
        made.run("INSERT OR REPLACE INTO t (id, name, n) VALUES (3, 'ANN', 7)")
        assert images(made.left()) == [("t", (1,), None), ("t", None, (3,))]
        made.run("UPDATE OR REPLACE t SET name = 'ann', n = 7 WHERE id = 2")
        assert images(made.left()) == [("t", (3,), None), ("t", (2,), (2,))]
        made.run("INSERT INTO t (id, name, n) VALUES (4, 'Cid', 7)", "UPDATE t SET n = -1 WHERE id = 4")
        assert images(made.left()) == [("t", None, (4,)), ("t", (4,), (4,))]
        assert made.capture.limits() == []


def test_conflicting_rows_are_found_by_the_indexes(tmp_path: Path) -> None:
    with capturing("sqlite", new_sqlite(tmp_path / "a.db")) as made:
        made.run(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE UNIQUE, b TEXT, c TEXT, d INTEGER)"
        )
        made.run(
            "CREATE UNIQUE INDEX b ON t (b COLLATE NOCASE)",
            "CREATE UNIQUE INDEX c ON t (lower(c))",
            "CREATE UNIQUE INDEX d ON t (d) WHERE c IS NOT NULL",
        )
        asked = " OR ".join(f"({one.sql.replace('NEW', 'new')})" for one in made.table("t").unique_conflicts)
        with made.service() as service:
            row = "SELECT ? AS id, ? AS a, ? AS b, ? AS c, ? AS d"
            plan = service.execute(
                f"EXPLAIN QUERY PLAN SELECT * FROM ({row}) AS new JOIN t AS gone ON {asked}", ("x",) * 5
            )
            assert not any("SCAN gone" in one[3] for one in plan), list(plan)
