"""Statements of services, each marked as the triggers mark it or refused: adapter.yaml, and what takes more than statements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import ENGINES, Capturing


def cases() -> list[Any]:
    made = []
    for case in yaml.safe_load(Path(__file__).with_name("adapter.yaml").read_text(encoding="utf-8")):
        for engine in case.get("engines", ENGINES):
            name, _, alone = engine.partition(" ")
            marks = [pytest.mark.mariadb] if alone else []
            made.append(pytest.param(name, case, marks=marks, id=f"{name}-{case['case']}"))
    return made


def refused(engine: sa.Engine, statement: str) -> None:
    with engine.connect() as connection, pins.refused(UnmarkedError):
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(("each", "case"), cases(), indirect=["each"])
def test_a_statement_is_marked_or_refused(parts: Capturing, case: dict[str, Any]) -> None:
    parts.run(*case["tables"])
    with heard(parts, case["captured"]) as (engine, seen):
        for statement in case.get("refused", ()):
            refused(engine, statement)
        with engine.begin() as connection:
            for statement in case["done"]:
                done = connection.exec_driver_sql(statement)
                if done.returns_rows:
                    done.all()
        assert_same(parts, seen, case["marks"])


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_view_in_another_schema_differs_from_a_table_of_its_name(each: Capturing) -> None:
    each.run(
        "CREATE SCHEMA api",
        "CREATE TABLE account (id integer PRIMARY KEY, n integer)",
        "CREATE TABLE login (id integer PRIMARY KEY, n integer)",
        "CREATE VIEW api.between AS SELECT * FROM account",
        "CREATE VIEW api.login AS SELECT * FROM api.between",
        "INSERT INTO account VALUES (1, 1)",
    )
    with heard(each, ["account"]) as (engine, seen):
        refused(engine, "UPDATE api.login SET n = 2 WHERE id = 1")
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO login VALUES (1, 1)")
            connection.exec_driver_sql("UPDATE public.login SET n = 2 WHERE id = 1")
            connection.exec_driver_sql("SET search_path = api, public")
            with pins.refused(UnmarkedError):
                connection.exec_driver_sql("UPDATE login SET n = 2 WHERE id = 1")
        assert_same(each, seen, 0)


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_a_cascade_over_several_databases_is_marked(each: Capturing) -> None:
    other = f"{sa.make_url(each.url).database}_x"
    each.run(
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.grand (id integer PRIMARY KEY)",
        f"CREATE TABLE {other}.parent (id integer PRIMARY KEY, g integer,"
        f" FOREIGN KEY (g) REFERENCES {other}.grand (id) ON DELETE CASCADE)",
        f"CREATE TABLE kid (id integer PRIMARY KEY, p integer,"
        f" FOREIGN KEY (p) REFERENCES {other}.parent (id) ON DELETE CASCADE)",
        f"INSERT INTO {other}.grand VALUES (1)",
        f"INSERT INTO {other}.parent VALUES (1, 1)",
        "INSERT INTO kid VALUES (1, 1), (2, 1)",
    )
    try:
        with heard(each, ["kid"]) as (engine, seen):
            with engine.begin() as connection:
                connection.exec_driver_sql(f"DELETE FROM {other}.grand WHERE id = 1")
            assert_same(each, seen, 2)
    finally:
        each.run("DROP TABLE kid", f"DROP DATABASE {other}")
