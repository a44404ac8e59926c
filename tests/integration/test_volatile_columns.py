"""Columns made by SQL that gives another value for the same row: mapping check says it, for no mark ever will."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psycopg

from tests import support_mysql
from tests.journeys.in_process import run_here

MAPPING = """\
mapping: 1
table: {{name: Things, key: [PK, SK], type: type}}
entities:
  thing:
    columns: {{made: {{sql: "{sql}", type: {type}}}}}
    items: {{Thing: {{key: ["T#{{id}}", META], attributes: {{made: made}}}}}}
"""
TABLE = "CREATE TABLE thing (id INTEGER PRIMARY KEY, name VARCHAR(80), price INTEGER)"
SAME = ("upper(name)", "coalesce(name, 'now and then')", "price * 2", "concat(name, '-', price)")
OTHER = {
    "sqlite": ("random()", "datetime('now')", "CURRENT_TIMESTAMP", "strftime('%s')"),
    "postgresql": (
        "now()::text",
        "random()::text",
        "CURRENT_DATE::text",
        "'now'::timestamp::text",
        "tables_read(id)",
    ),
    "mariadb": ("now()", "rand()", "UUID()", "CURRENT_TIMESTAMP", "tables_read(id)", "chance(id)"),
}


def checked(folder: Path, url: str, sql: str) -> tuple[int, str]:
    file = folder / "mapping.yaml"
    file.write_text(MAPPING.format(sql=sql, type="text"))
    ended = run_here(["mapping", "check", str(file), "--source", url], folder, dict(os.environ))
    return ended.code, " ".join((ended.out + ended.err).split())


def is_told(folder: Path, url: str) -> Callable[[str], bool]:
    def told(sql: str) -> bool:
        code, said = checked(folder, url, sql)
        assert code == 0, said
        return "No change of the row shows when the value changes" in said

    return told


def test_sqlite_knows_clocks_and_chance(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute(TABLE)
    connection.close()
    told = is_told(tmp_path, f"sqlite:///{tmp_path}/a.db")
    assert [sql for sql in SAME[:3] if told(sql)] == []
    assert [sql for sql in OTHER["sqlite"] if not told(sql)] == []
    assert not told("date(name)")


def test_postgresql_asks_the_catalogue(tmp_path: Path, postgres_database: str) -> None:
    body = "LANGUAGE sql AS $$ SELECT name FROM thing WHERE id = $1 $$"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(TABLE)
        connection.execute(f"CREATE FUNCTION tables_read(integer) RETURNS text STABLE {body}")
        connection.execute(
            "CREATE FUNCTION pure(integer) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'x' $$"
        )
    told = is_told(tmp_path, postgres_database)
    assert [sql for sql in (*SAME, "pure(id)", "public.pure(id)") if told(sql)] == []
    assert [sql for sql in (*OTHER["postgresql"], "public.tables_read(id)") if not told(sql)] == []


def test_mariadb_asks_the_catalogue(tmp_path: Path, mysql_database: str) -> None:
    support_mysql.run_script(
        mysql_database,
        f"{TABLE};"
        "CREATE FUNCTION tables_read(n INT) RETURNS TEXT DETERMINISTIC READS SQL DATA"
        " RETURN (SELECT name FROM thing WHERE id = n);"
        "CREATE FUNCTION chance(n INT) RETURNS TEXT NOT DETERMINISTIC RETURN n;"
        "CREATE FUNCTION pure(n INT) RETURNS TEXT DETERMINISTIC NO SQL RETURN n;",
    )
    told = is_told(tmp_path, mysql_database)
    assert [sql for sql in (*SAME, "pure(id)") if told(sql)] == []
    assert [sql for sql in OTHER["mariadb"] if not told(sql)] == []
