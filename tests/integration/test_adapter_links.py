"""Rows that change because others do: through partitions, inheritance, TRUNCATE … CASCADE, keys over several schemas."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import Capturing


def refused(engine: sa.Engine, statement: str) -> None:
    with engine.connect() as connection, pins.refused(UnmarkedError):
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO log_1 VALUES (2, 1)",
        "UPDATE public.log_1_a SET n = 2 WHERE id = 1",
        "DELETE FROM cold.log_2 WHERE id = 12",
        "TRUNCATE log_1_a",
        "COPY log_1_a FROM STDIN",
    ],
)
def test_what_is_written_straight_into_a_partition_is_refused(each: Capturing, statement: str) -> None:
    each.run(
        "CREATE SCHEMA cold",
        "CREATE TABLE log (id integer PRIMARY KEY, n integer) PARTITION BY RANGE (id)",
        "CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE log_1_a PARTITION OF log_1 FOR VALUES FROM (0) TO (5)",
        "CREATE TABLE cold.log_2 PARTITION OF log FOR VALUES FROM (10) TO (20)",
        "INSERT INTO log VALUES (1, 1), (12, 1)",
    )
    with heard(each, ["log"]) as (engine, seen):
        refused(engine, statement)
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO log VALUES (2, 1), (13, 1)")
            connection.exec_driver_sql("UPDATE log SET n = 2 WHERE id = 1")
        assert_same(each, seen, 3)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_table_that_captured_ones_inherit_from_is_not_written_over_them(each: Capturing) -> None:
    each.run(
        "CREATE TABLE thing (id integer PRIMARY KEY, n integer)",
        "CREATE TABLE middle (id integer PRIMARY KEY) INHERITS (thing)",
        "CREATE TABLE heir (id integer PRIMARY KEY) INHERITS (middle)",
        "INSERT INTO heir VALUES (1, 1)",
    )
    with heard(each, ["heir"]) as (engine, seen):
        for statement in (
            "UPDATE thing SET n = 2 WHERE id = 1",
            "DELETE FROM public.middle WHERE id = 1",
            "TRUNCATE thing",
        ):
            refused(engine, statement)
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO thing VALUES (1, 1)")
            connection.exec_driver_sql("UPDATE heir SET n = 2 WHERE id = 1")
        assert_same(each, seen, 1)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_view_in_another_schema_is_told_from_a_table_of_its_name(each: Capturing) -> None:
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


_TREE = (
    "CREATE TABLE root (id integer PRIMARY KEY)",
    "CREATE TABLE parent (id integer PRIMARY KEY, root integer REFERENCES root)",
    "CREATE TABLE kid (id integer PRIMARY KEY, parent integer REFERENCES parent)",
    "CREATE TABLE leaf (id integer PRIMARY KEY, kid integer REFERENCES kid)",
    "CREATE TABLE lone (id integer PRIMARY KEY)",
)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_truncate_that_cascades_to_captured_tables_is_refused_and_another_is_not(each: Capturing) -> None:
    each.run(*_TREE)
    with heard(each, ["kid"]) as (engine, seen):
        for statement in (
            "TRUNCATE parent CASCADE",
            "truncate table lone, root restart identity cascade",
            "SELECT 1; TRUNCATE ROOT CASCADE",
            "TRUNCATE leaf, kid",
        ):
            refused(engine, statement)
        with engine.begin() as connection:
            connection.exec_driver_sql("TRUNCATE lone CASCADE")
            connection.exec_driver_sql("TRUNCATE leaf CASCADE")
            connection.exec_driver_sql("INSERT INTO root VALUES (1)")
            connection.exec_driver_sql("UPDATE root SET id = 2")
        assert_same(each, seen, 0)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_truncate_that_cascades_to_a_partition_of_a_captured_table_is_refused(each: Capturing) -> None:
    each.run(
        "CREATE TABLE other (id integer PRIMARY KEY)",
        "CREATE TABLE log (id integer PRIMARY KEY, other integer) PARTITION BY RANGE (id)",
        "CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE log_1 ADD FOREIGN KEY (other) REFERENCES other ON DELETE CASCADE",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO log VALUES (1, 1)",
    )
    with heard(each, ["log"]) as (engine, seen):
        refused(engine, "TRUNCATE other CASCADE")
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM other WHERE id = 1")
        assert_same(each, seen, 1)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_cascade_over_several_schemas_is_marked(each: Capturing) -> None:
    each.run(
        "CREATE SCHEMA x",
        "CREATE SCHEMA y",
        "CREATE TABLE y.grand (id integer PRIMARY KEY)",
        "CREATE TABLE x.parent (id integer PRIMARY KEY, g integer REFERENCES y.grand ON DELETE CASCADE)",
        "CREATE TABLE kid (id integer PRIMARY KEY, p integer REFERENCES x.parent ON DELETE SET NULL ON UPDATE CASCADE)",
        "INSERT INTO y.grand VALUES (1)",
        "INSERT INTO x.parent VALUES (1, 1), (2, 1), (3, NULL)",
        "INSERT INTO kid VALUES (1, 1), (2, 2), (3, 3)",
    )
    with heard(each, ["kid"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE x.parent SET id = 30 WHERE id = 3")
            connection.exec_driver_sql("DELETE FROM y.grand WHERE id = 1")
        assert_same(each, seen, 3)


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


@pytest.mark.parametrize("each", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "key",
    [
        "a integer REFERENCES account ON DELETE CASCADE",
        "a integer REFERENCES ACCOUNT (ID) ON UPDATE CASCADE ON DELETE SET NULL",
        "a integer, FOREIGN KEY (A) REFERENCES [Account] (id) ON DELETE CASCADE",
        "a integer DEFAULT NULL REFERENCES account (id) ON DELETE SET DEFAULT DEFERRABLE",
    ],
)
def test_a_foreign_key_is_followed_however_it_is_written(each: Capturing, key: str) -> None:
    each.run(
        "CREATE TABLE account (id integer PRIMARY KEY)",
        f"CREATE TABLE login (id integer PRIMARY KEY, {key})",
        "INSERT INTO account VALUES (1)",
        "INSERT INTO login VALUES (1, 1)",
    )
    with heard(each, ["login"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            connection.exec_driver_sql("DELETE FROM account WHERE id = 1")
        assert_same(each, seen, 1)


def test_rows_that_go_along_with_a_captured_one_and_are_not_captured_are_passed_by(each: Capturing) -> None:
    act = "REFERENCES account (id) ON DELETE CASCADE"
    each.run(
        "CREATE TABLE account (id integer PRIMARY KEY)",
        f"CREATE TABLE login (id integer PRIMARY KEY, account integer, FOREIGN KEY (account) {act})",
        "INSERT INTO account VALUES (1), (2)",
        "INSERT INTO login VALUES (1, 1)",
    )
    with heard(each, ["account"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM account WHERE id = 1")
        assert_same(each, seen, 1)


@pytest.mark.parametrize(
    "each", ["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)], indirect=True
)
def test_an_insert_without_columns_gives_none_for_hidden_ones(each: Capturing) -> None:
    hidden = (
        "name varchar(9) AS (n) STORED" if each.engine == "sqlite" else "name integer INVISIBLE DEFAULT 7"
    )
    each.run(f"CREATE TABLE part ({hidden}, id integer PRIMARY KEY, n integer)")
    with heard(each, ["part"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO part VALUES (5, 1)")
            connection.exec_driver_sql("INSERT INTO part VALUES (6, 3) RETURNING *").all()
        assert_same(each, seen, 2)


@pytest.mark.parametrize("each", [pytest.param("mariadb", marks=pytest.mark.mariadb)], indirect=True)
def test_a_parent_that_is_not_captured_may_have_hidden_columns(each: Capturing) -> None:
    each.run(
        "CREATE TABLE account (name integer INVISIBLE DEFAULT 7, id integer PRIMARY KEY, n integer)",
        "CREATE TABLE login (id integer PRIMARY KEY, account integer,"
        " FOREIGN KEY (account) REFERENCES account (id) ON DELETE CASCADE)",
        "INSERT INTO account VALUES (1, 2), (2, 1)",
        "INSERT INTO login VALUES (1, 1), (2, 2)",
    )
    with heard(each, ["login"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("REPLACE INTO account VALUES (1, 5)")
        assert_same(each, seen, 1)
