"""Rows that come between the adapter's reading and a service's statement: marked with what they were, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.integration.conftest import each as each
from tests.integration.conftest import mariadb as mariadb
from tests.integration.conftest import parts as parts
from tests.integration.conftest import postgresql as postgresql
from tests.support_adapter import Seen, left_marks, seen_marks
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import Capturing
from tests.support_mysql import changes_newer_rows

SERVERS = ["postgresql", "mariadb"]


@pytest.fixture
def mariadb_chain(mariadb: Capturing) -> Capturing:
    mariadb.run(
        "CREATE TABLE region (id integer PRIMARY KEY)",
        "CREATE TABLE customer (id integer PRIMARY KEY, r integer, FOREIGN KEY (r) REFERENCES region (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE purchase (id integer PRIMARY KEY, c integer, FOREIGN KEY (c) REFERENCES customer (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO region VALUES (1)",
        "INSERT INTO customer VALUES (1, 1)",
        "INSERT INTO purchase VALUES (1, 1)",
    )
    return mariadb


@contextmanager
def before_it_runs(engine: sa.Engine, come: Callable[[], None]) -> Iterator[None]:
    """Once, behind the adapter's reading and before the statement itself."""
    sa.event.listen(engine, "before_cursor_execute", lambda *_: come(), once=True)
    yield


@pytest.mark.parametrize("statement", ["DELETE FROM region WHERE id = 1", "DELETE FROM region WHERE id = 2"])
def test_children_that_are_newer_than_the_snapshot_are_marked(
    mariadb_chain: Capturing, statement: str
) -> None:
    """Also where the parent, and the one above it, are newer themselves."""
    shop = mariadb_chain
    with heard(shop, ["purchase"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql(changes_newer_rows(shop.url))
            connection.exec_driver_sql("SELECT COUNT(*) FROM purchase")
            shop.run(
                "INSERT INTO region VALUES (2)",
                "INSERT INTO customer VALUES (2, 1), (3, 2)",
                "INSERT INTO purchase VALUES (2, 1), (3, 2), (4, 3)",
            )
            shop.left()
            connection.exec_driver_sql(statement)
        assert_same(shop, seen, 3 if statement.endswith("1") else 1)


_UPSERT = "INSERT INTO part VALUES {} ON DUPLICATE KEY UPDATE name = VALUES(name)"


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        _UPSERT.format("(1, 'a', 1), (3, 'x', 1)"),  # 1 stays as it is
        _UPSERT.format("(1, 'a', 1), (1, 'a', 1), (3, 'x', 1)"),  # and is said twice
        _UPSERT.format("(3, 'x', 1), (3, 'x', 1)"),
        "REPLACE INTO part VALUES (1, 'a', 1), (3, 'x', 1)",
    ],
)
def test_upsert_of_many_rows_meeting_a_newer_one_is_refused(parts: Capturing, statement: str) -> None:
    with heard(parts, ["part"], isolation_level="READ COMMITTED") as (engine, seen):
        with engine.connect() as connection:
            with (
                before_it_runs(engine, lambda: parts.run("INSERT INTO part VALUES (3, 'new', 1)")),
                pins.refused(UnmarkedError),
            ):
                connection.exec_driver_sql(statement)
            connection.rollback()
        parts.left()
        seen.changed.clear()
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
        assert ("part", "{'id': 3, 'n': 1, 'name': 'new'}", "{'id': 3, 'n': 1, 'name': 'x'}") in _marks(
            parts, seen
        )


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        _UPSERT.format("(1, 'a', 1), (2, 'z', 1), (3, 'x', 1), (4, 'x', 1)"),
        _UPSERT.format("(1, 'y', 1), (2, 'z', 1), (1, 'x', 1)"),
        "REPLACE INTO part VALUES (1, 'y', 1), (2, 'z', 5), (3, 'x', 1)",
        "REPLACE INTO part VALUES (1, 'a', 1), (2, 'z', 1)",
        "INSERT IGNORE INTO part VALUES (1, 'q', 1), (3, 'x', 1)",
    ],
)
def test_upsert_without_concurrent_inserts_is_not_refused(parts: Capturing, statement: str) -> None:
    with heard(parts, ["part"]) as (engine, seen), engine.begin() as connection:
        connection.exec_driver_sql(statement)
        connection.rollback()
        assert seen.changed


@pytest.mark.parametrize("each", ["mariadb"], indirect=True)
def test_connection_without_found_rows_refuses_multi_row_upserts(parts: Capturing) -> None:
    with (
        heard(parts, ["part"], connect_args={"client_flag": 0}) as (engine, _),
        engine.connect() as connection,
    ):
        connection.exec_driver_sql(_UPSERT.format("(1, 'y', 1)"))
        with pytest.raises(UnmarkedError, match="FOUND_ROWS"):
            connection.exec_driver_sql(_UPSERT.format("(1, 'x', 1), (3, 'x', 1)"))


@pytest.mark.parametrize("each", SERVERS, indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE part SET n = 5 WHERE id IN (1, 3) AND name = 'new'",
        "DELETE FROM part WHERE id IN (1, 3) AND name = 'new'",
    ],
)
def test_row_inserted_meanwhile_does_not_replace_the_one_read(parts: Capturing, statement: str) -> None:
    with (
        heard(parts, ["part"], isolation_level="READ COMMITTED") as (engine, _),
        engine.connect() as connection,
        before_it_runs(engine, lambda: parts.run("INSERT INTO part VALUES (3, 'new', 1)")),
        pins.refused(UnmarkedError),
    ):
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("each", SERVERS, indirect=True)
def test_delete_of_rows_other_than_its_where_chose_is_refused(parts: Capturing) -> None:
    """What WHERE chooses may hang on a clock: here a row leaves it while another one comes."""
    parts.run(*_CLOCKS[parts.engine])

    def row_1_leaves_and_row_3_comes() -> None:
        parts.run("INSERT INTO part VALUES (3, 'new', 9)", "UPDATE clock SET at = 8")

    with (
        heard(parts, ["part"], "lock", isolation_level="READ COMMITTED") as (engine, _),
        engine.connect() as connection,
        before_it_runs(engine, row_1_leaves_and_row_3_comes),
        pins.refused(UnmarkedError),
    ):
        connection.exec_driver_sql("DELETE FROM part WHERE id IN (1, 3) AND n > clock_at()")


_CLOCK = ("CREATE TABLE clock (at integer)", "INSERT INTO clock VALUES (0)")
_CLOCKS = {
    "postgresql": (
        *_CLOCK,
        "CREATE FUNCTION clock_at() RETURNS integer VOLATILE LANGUAGE sql AS 'SELECT at FROM clock'",
    ),
    "mariadb": (
        *_CLOCK,
        "CREATE FUNCTION clock_at() RETURNS integer NOT DETERMINISTIC READS SQL DATA RETURN (SELECT at FROM clock)",
    ),
}
"""A clock that the test moves."""


def _marks(shop: Capturing, seen: Seen) -> list[tuple[str, str, str]]:
    theirs, ours = left_marks(shop), seen_marks(shop, seen)
    assert {one for _, *images in ours for one in images} | {"None"} == {
        one for _, *images in theirs for one in images
    } | {"None"}
    return ours
