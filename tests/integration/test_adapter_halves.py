"""A statement that fails when a part of it is done: the part is never committed without its marks."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.support_adapter_service import heard
from tests.support_capture import Capturing

NAME = sa.text("UPDATE part SET name = :name WHERE id = :id")
MADE = sa.text("INSERT INTO part (id, name) VALUES (:id, :name)")
LISTS = [
    (NAME, [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}, {"id": 3, "name": "x"}]),
    (MADE, [{"id": 4, "name": "x"}, {"id": 5, "name": "y"}, {"id": 4, "name": "z"}]),
]
HELD = [(1, "a"), (2, "b"), (3, "c")]


@pytest.fixture
def parts(each: Capturing) -> Capturing:
    each.run(
        "CREATE TABLE part (id integer PRIMARY KEY, name varchar(9) UNIQUE)",
        "INSERT INTO part VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    return each


def held(connection: sa.Connection) -> list[Any]:
    return [tuple(row) for row in connection.exec_driver_sql("SELECT id, name FROM part ORDER BY id")]


@pytest.mark.parametrize(("statement", "values"), LISTS, ids=["update", "insert"])
def test_of_a_list_that_fails_half_way_nothing_is_committed(
    parts: Capturing, statement: sa.TextClause, values: list[dict[str, Any]]
) -> None:
    with heard(parts, ["part"]) as (engine, _):
        with engine.connect() as connection:
            with pytest.raises(sa.exc.IntegrityError):
                connection.execute(statement, values)
            if parts.engine == "postgresql":
                connection.commit()  # which takes nothing of a transaction in which a statement failed
            else:
                with pins.refused(UnmarkedError):
                    connection.commit()
        with engine.connect() as connection:
            assert held(connection) == HELD


def test_a_list_that_is_taken_back_to_a_savepoint_stops_no_other(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, seen), engine.connect() as connection:
        connection.execute(NAME, {"id": 1, "name": "n"})
        savepoint = connection.begin_nested()
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(*LISTS[0])
        savepoint.rollback()
        connection.commit()
        assert held(connection) == [(1, "n"), *HELD[1:]]
        assert len(seen.changed) == 1


@pytest.mark.parametrize("each", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OR FAIL INTO part (id, name) VALUES (4, 'd'), (5, 'a')",
        "INSERT INTO strict (id, name) VALUES (4, 'd'), (5, 'd')",
    ],
)
def test_sqlite_statement_keeping_part_of_its_work_is_refused(parts: Capturing, statement: str) -> None:
    parts.run("CREATE TABLE strict (id integer PRIMARY KEY, name text UNIQUE ON CONFLICT FAIL)")
    with heard(parts, ["part", "strict"]) as (engine, _), engine.connect() as connection:
        with pytest.raises(sa.exc.IntegrityError):
            connection.exec_driver_sql(statement)
        with pins.refused(UnmarkedError):
            connection.commit()


@pytest.mark.parametrize("each", ["sqlite", "mariadb"], indirect=True)
def test_statement_that_undoes_itself_on_failure_stops_no_other(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, seen), engine.connect() as connection:
        connection.execute(NAME, {"id": 1, "name": "n"})
        with pytest.raises(sa.exc.IntegrityError):
            connection.exec_driver_sql("INSERT INTO part (id, name) VALUES (4, 'd'), (5, 'b')")
        connection.commit()
        assert held(connection) == [(1, "n"), *HELD[1:]]
        assert len(seen.changed) == 1


def test_statement_with_a_failed_service_listener_cannot_commit(parts: Capturing) -> None:
    def fail(*_: Any) -> None:
        raise ValueError

    with heard(parts, ["part"]) as (engine, _):
        with engine.connect() as connection:
            # Listeners of all engines are called before those of one.
            sa.event.listen(sa.Engine, "after_cursor_execute", fail)
            with pytest.raises(ValueError, match=r"^$"):
                connection.exec_driver_sql("UPDATE part SET name = 'x' WHERE id = 1")
            sa.event.remove(sa.Engine, "after_cursor_execute", fail)
            with pins.refused(UnmarkedError):
                connection.commit()
        with engine.connect() as connection:
            assert held(connection) == HELD
