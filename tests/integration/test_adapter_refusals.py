"""What could go unmarked is refused or marked all the same: rows that come in between, other schemas, views, upserts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import UnmarkedError
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.support_adapter import listening, seen_marks, service_url
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import Capturing, captured


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE part SET name = 'x' WHERE n = 1",
        "DELETE FROM part WHERE n = 1",
        "INSERT INTO part VALUES (3, 'x', 1) ON CONFLICT (id) DO UPDATE SET name = 'x'",
        "UPDATE part SET name = 'x' WHERE id = 3",
    ],
)
def test_change_between_read_and_statement_is_never_unmarked(parts: Capturing, statement: str) -> None:
    """A row is committed right after the adapter has read, before the statement runs."""
    with heard(parts, ["part"], "lock") as (engine, seen):
        sa.event.listen(
            engine, "before_cursor_execute", lambda *_: parts.run("INSERT INTO part VALUES (3, 'new', 1)"), once=True
        )  # fmt: skip
        with engine.connect() as connection:
            with pins.refused(UnmarkedError):
                connection.exec_driver_sql(statement)
            connection.rollback()
        assert seen_marks(parts, seen) == []


@pytest.mark.parametrize("each", ["postgresql", "mariadb"], indirect=True)
def test_services_writing_rows_in_the_same_order_do_not_deadlock(
    parts: Capturing,
) -> None:
    statements = [
        "UPDATE part SET n = n + 1 WHERE id = 2",
        "UPDATE part SET n = n + 1 WHERE id = 1",
        "UPDATE part SET n = n + 1 WHERE n > 0",
    ]
    failures: list[BaseException] = []
    with heard(parts, ["part"], "lock") as (engine, _):

        def work() -> None:
            try:
                for _ in range(20):
                    with engine.begin() as connection:
                        for statement in statements:
                            connection.exec_driver_sql(statement)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    with parts.service() as service:
        found = service.execute("SELECT min(n) FROM part")
        assert (found if parts.engine == "postgresql" else service).fetchone()[0] == 81


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_two_upserts_of_new_rows_do_not_lock_each_others_gap(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, seen), engine.connect() as one, engine.connect() as two:
        for connection, key in ((one, 50), (two, 60)):
            connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 2")
            connection.exec_driver_sql(
                f"INSERT INTO part VALUES ({key}, 'x', 1) ON DUPLICATE KEY UPDATE name = 'y'"
            )
        one.commit()
        two.commit()
        assert_same(parts, seen, 2)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_table_of_the_sessions_schema_is_marked_of_two_schemas(parts: Capturing) -> None:
    parts.run(
        "CREATE SCHEMA other",
        "CREATE TABLE other.part (id integer PRIMARY KEY, name varchar(9), n integer)",
        "CREATE SCHEMA tenant",
        "CREATE TABLE tenant.part (id integer PRIMARY KEY, name varchar(9), n integer)",
    )
    source = SqlSource(source_url(parts.url), schemas=["public", "other"])
    facts = {one.schema: one for one in source.facts().tables.values() if one.real == "part"}
    found = [captured(one, ["id", "name"]) for one in facts.values()]
    source.close()
    assert len(found) == 2
    parts.install(*found)
    ears, seen = listening(parts, found)
    engine = sa.create_engine(service_url(parts.engine, parts.url))
    ears.attach(engine)
    with engine.begin() as connection:
        for path in ("public", "missing, other, public", "tenant, public"):
            connection.exec_driver_sql(f"SET search_path = {path}")
            connection.exec_driver_sql("INSERT INTO part VALUES (7, 'x', 1)")
            connection.exec_driver_sql("UPDATE part SET name = 'y' WHERE id = 7")
            connection.exec_driver_sql("UPDATE other.part SET name = 'z' WHERE id = 7")
    assert_same(parts, seen, 2 + 3 + 1)
    engine.dispose()


@pytest.mark.parametrize("each", ["postgresql", "mariadb"], indirect=True)
def test_names_that_differ_in_case_only_are_two_tables(parts: Capturing) -> None:
    quote = '"' if parts.engine == "postgresql" else "`"
    name = f"{quote}Part{quote}"
    parts.run('CREATE TABLE "Part" (id integer PRIMARY KEY, name varchar(9))')
    with heard(parts, ["part"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES (1, 'other')")
            connection.exec_driver_sql(f"UPDATE {name} SET name = 'x' WHERE id = 1")
            connection.exec_driver_sql("UPDATE part SET name = 'mine' WHERE id = 1")
        assert_same(parts, seen, 1)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_key_is_compared_in_the_type_of_its_column(parts: Capturing) -> None:
    parts.run("CREATE TABLE coded (code varchar(9) PRIMARY KEY, day date UNIQUE, n integer)")
    with heard(parts, ["coded"]) as (engine, seen):
        with engine.begin() as connection:
            insert = "INSERT INTO coded VALUES (%s, %s, 1)"
            connection.exec_driver_sql(insert, (5, datetime(2024, 1, 2, 3, 4)))
            connection.exec_driver_sql(
                insert + " ON CONFLICT (day) DO UPDATE SET n = 2", ("x", datetime(2024, 1, 2, 9))
            )
        assert_same(parts, seen, 2)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
@pytest.mark.parametrize("type_", ["numeric", "double precision", "numeric[]"])
def test_row_with_nan_in_its_key_is_updated_and_marked(parts: Capturing, type_: str) -> None:
    """In PostgreSQL NaN equals NaN; in Python it does not."""
    parts.run(f"CREATE TABLE measure (at {type_}, k integer, n integer, PRIMARY KEY (at, k))")
    key: Any = [Decimal("NaN")] if type_.endswith("[]") else Decimal("NaN")
    where = f"at = CAST(%s AS {type_})"
    with heard(parts, ["measure"], "lock") as (engine, seen):
        with engine.begin() as connection:
            for k in (1, 2):
                connection.exec_driver_sql(
                    f"INSERT INTO measure VALUES (CAST(%s AS {type_}), %s, 1)", (key, k)
                )
            connection.exec_driver_sql("UPDATE measure SET n = 2 WHERE at = %s AND k = %s", (key, 1))
            connection.exec_driver_sql(f"UPDATE measure SET n = 3 WHERE {where}", (key,))
            connection.exec_driver_sql("UPDATE measure SET k = 5 WHERE at = %s AND k = %s", (key, 2))
            connection.exec_driver_sql("DELETE FROM measure WHERE at = %s AND k = %s", (key, 1))
        assert_same(parts, seen, 7)


@pytest.mark.parametrize("each", ["sqlite"], indirect=True)
@pytest.mark.parametrize("index", ["(lower(name))", "(name COLLATE NOCASE)", "(name) WHERE n > 0"])
def test_replace_is_refused_on_an_expression_or_partial_index(parts: Capturing, index: str) -> None:
    parts.run(f"CREATE UNIQUE INDEX wide ON part {index}")
    with heard(parts, ["part"]) as (engine, seen):
        for words in ("REPLACE INTO", "INSERT OR REPLACE INTO", "UPDATE OR REPLACE part SET n = 1;"):
            statement = f"{words} part VALUES (3, 'A', 1)" if "INTO" in words else words
            with engine.connect() as connection, pins.refused(UnmarkedError):
                connection.exec_driver_sql(statement)
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO part VALUES (3, 'c', 1)")
            connection.exec_driver_sql("UPDATE part SET name = 'd' WHERE id = 3")
        assert_same(parts, seen, 2)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_key_unreadable_in_session_settings_is_read_in_others(
    parts: Capturing,
) -> None:
    parts.run("CREATE TABLE moment (at timestamptz PRIMARY KEY, n integer)")
    with heard(parts, ["moment"], connect_args={"options": "-c DateStyle=German"}) as (engine, seen):
        with engine.begin() as connection:
            key = (datetime(2024, 1, 1, tzinfo=UTC),)
            connection.exec_driver_sql("INSERT INTO moment VALUES (%s, 1)", key)
            connection.exec_driver_sql("UPDATE moment SET n = 2 WHERE at = %s", key)
            connection.exec_driver_sql("DELETE FROM moment WHERE at = %s", key)
        assert_same(parts, seen, 3)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_a_key_that_the_driver_cannot_read_at_all_is_refused(parts: Capturing) -> None:
    parts.run("CREATE TABLE span (i interval PRIMARY KEY, n integer)")
    with heard(parts, ["span"]) as (engine, _), engine.connect() as connection, pins.refused(UnmarkedError):
        connection.exec_driver_sql("INSERT INTO span VALUES (%s, 1)", (timedelta(days=3),))


def test_lock_timeout_in_the_adapter_is_sqlalchemys_own_error(parts: Capturing) -> None:
    words: dict[str, Any] = {"connect_args": {"timeout": 0.1}} if parts.engine == "sqlite" else {}
    limits = {
        "postgresql": "SET lock_timeout = '50ms'",
        "mariadb": "SET SESSION innodb_lock_wait_timeout = 1",
        "sqlite": "SELECT 1",
    }
    with (
        heard(parts, ["part"], **words) as (engine, _),
        engine.connect() as connection,
        parts.service() as other,
    ):
        other.execute("BEGIN IMMEDIATE" if parts.engine == "sqlite" else "BEGIN")
        other.execute("UPDATE part SET n = 5 WHERE id = 1")
        connection.exec_driver_sql(limits[parts.engine])
        with pytest.raises(sa.exc.OperationalError):
            connection.exec_driver_sql("UPDATE part SET n = 6 WHERE id = 1")
        other.execute("ROLLBACK")


_PREPARED = "PREPARE p AS UPDATE part SET n = 5 WHERE id = 1"
_PROCEDURE = "CREATE PROCEDURE change_part() UPDATE part SET n = 5 WHERE id = 1"


@pytest.mark.parametrize(
    ("each", "before", "statement"),
    [
        ("postgresql", [], 'UPDATE U&"\\0070art" SET n = 5 WHERE id = 1'),
        ("postgresql", [], 'UPDATE u&"p!0061rt" UESCAPE \'!\' SET n = 5 WHERE id = 1'),
        ("postgresql", [_PREPARED], "EXPLAIN ANALYZE EXECUTE p"),
        ("postgresql", [_PREPARED], "EXPLAIN (ANALYZE) EXECUTE p"),
        ("postgresql", [_PREPARED], "SELECT 1; EXECUTE p"),
        ("postgresql", [], "SELECT 1; DO $$ BEGIN UPDATE part SET n = 5; END $$"),
        ("postgresql", [], "CREATE TEMP TABLE was AS WITH g AS (DELETE FROM part RETURNING *) SELECT * FROM g"),
        ("mariadb", [_PROCEDURE], "SET STATEMENT max_statement_time = 9 FOR CALL change_part()"),
        ("mariadb", [_PROCEDURE], "BEGIN NOT ATOMIC CALL change_part(); END"),
        ("mariadb", [_PROCEDURE], "IF 1 THEN CALL change_part(); END IF"),
        ("mariadb", [_PROCEDURE], "/*M! CALL change_part() */"),
    ],
    indirect=["each"],
)  # fmt: skip
@pytest.mark.parametrize("own_cursor", [False, True], ids=["sqlalchemy", "driver"])
def test_write_with_an_unrecognized_table_name_is_refused(
    parts: Capturing, before: list[str], statement: str, own_cursor: bool
) -> None:
    with heard(parts, ["part"]) as (engine, seen):
        with engine.connect() as connection:
            for text in before:
                connection.exec_driver_sql(text)
            own: Any = connection.connection.driver_connection
            execute = own.cursor().execute if own_cursor else connection.exec_driver_sql
            with pytest.raises(UnmarkedError):
                execute(statement)
            connection.rollback()
        assert_same(parts, seen, 0)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_name_folded_or_cut_by_postgresql_is_still_the_table(parts: Capturing) -> None:
    longest = "p" * 63
    for name in ('"Äpfel"', longest):
        parts.run(f"CREATE TABLE {name} (id integer PRIMARY KEY, n integer)")
    with heard(parts, ["Äpfel", longest]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO ÄPFEL VALUES (1, 1)")
            connection.exec_driver_sql(f"INSERT INTO {longest}qq VALUES (1, 1)")
            connection.exec_driver_sql(f'UPDATE "{longest}qq" SET n = 2 WHERE id = 1')
        assert_same(parts, seen, 3)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("other", "ON INSERT TO other DO ALSO UPDATE part SET n = 9 WHERE id = NEW.id"),
        ("other", "ON INSERT TO other DO INSTEAD DELETE FROM ONLY part WHERE id = NEW.id"),
        ("other", "ON INSERT TO other DO ALSO (SELECT 1; INSERT INTO part (id) VALUES (NEW.id + 10))"),
        ("other", "ON INSERT TO other DO ALSO INSERT INTO third (id) VALUES (NEW.id)"),
        ("part", "ON INSERT TO part DO ALSO UPDATE part SET n = 9 WHERE id = 2"),
        ("part", "ON INSERT TO part DO ALSO INSERT INTO third (id) VALUES (NEW.id)"),
    ],
)
def test_write_with_a_rule_on_a_captured_table_is_refused(parts: Capturing, table: str, rule: str) -> None:
    parts.run(
        "CREATE TABLE third (id integer)", "CREATE TABLE other (id integer)", f"CREATE RULE one AS {rule}"
    )
    parts.run("CREATE RULE two AS ON INSERT TO third DO ALSO DELETE FROM part WHERE id = 2")
    with heard(parts, ["part"]) as (engine, seen):
        with engine.connect() as connection, pytest.raises(UnmarkedError, match="CREATE RULE"):
            connection.exec_driver_sql(f"INSERT INTO {table} (id) VALUES (7)")
        assert_same(parts, seen, 0)
