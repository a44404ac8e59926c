"""An upsert is marked with what it met, or refused: also where a row comes after it was looked for."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.support_adapter_service import heard
from tests.support_capture import Capturing

_UPSERT = "INSERT INTO part VALUES (%s, %s, 1) ON CONFLICT (id) DO UPDATE SET name = excluded.name"


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_upsert_distinguishes_inserted_rows_from_existing_ones(parts: Capturing) -> None:
    parts.run(
        "CREATE TABLE kid (id serial PRIMARY KEY, part integer REFERENCES part)",
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN UPDATE part SET n = n + 1 WHERE id = NEW.id AND n < 2; RETURN NULL; END$$",
        "CREATE TRIGGER again AFTER INSERT OR UPDATE ON part FOR EACH ROW EXECUTE FUNCTION again()",
    )
    with heard(parts, ["part"]) as (engine, _), engine.begin() as connection:
        connection.exec_driver_sql("SELECT * FROM part FOR UPDATE")
        for key in (1, 5):
            connection.exec_driver_sql(_UPSERT, (key, "x"))
        undone = connection.begin_nested()
        for key in (1, 5, 6):
            connection.exec_driver_sql(_UPSERT, (key, "y"))
        undone.rollback()
        for key in (2, 6):
            connection.exec_driver_sql(_UPSERT, (key, "z"))
        connection.exec_driver_sql("INSERT INTO kid (part) VALUES (6)")
        connection.exec_driver_sql(_UPSERT, (6, "z"))
        connection.exec_driver_sql(_UPSERT, [(7, "a"), (8, "a"), (7, "b"), (1, "b")])
        connection.exec_driver_sql("INSERT INTO part VALUES (9, 'x', 1) ON CONFLICT DO NOTHING")


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_upsert_meeting_a_row_inserted_meanwhile_is_refused(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, _), engine.connect() as connection:
        sa.event.listen(
            engine, "before_cursor_execute", lambda *_: parts.run("INSERT INTO part VALUES (3, 'new', 1)"), once=True
        )  # fmt: skip
        with pins.refused(UnmarkedError):
            connection.exec_driver_sql(_UPSERT, [(7, "a"), (7, "b"), (3, "x")])
        connection.rollback()
        connection.exec_driver_sql(_UPSERT, [(7, "a"), (7, "b"), (3, "x")])


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_unchanged_row_inserted_meanwhile_stops_no_upsert(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, _), engine.begin() as connection:
        sa.event.listen(
            engine, "before_cursor_execute", lambda *_: parts.run("INSERT INTO part VALUES (3, 'new', 1)"), once=True
        )  # fmt: skip
        connection.exec_driver_sql("INSERT INTO part VALUES (3, 'x', 1) ON CONFLICT DO NOTHING")


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_upsert_locked_by_its_own_foreign_key_names_the_fix(
    parts: Capturing,
) -> None:
    parts.run("CREATE TABLE tree (id integer PRIMARY KEY, up integer REFERENCES tree)")
    with heard(parts, ["tree"]) as (engine, _), engine.connect() as connection:
        upsert = "INSERT INTO tree VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET up = 1"
        with pins.refused(UnmarkedError):
            connection.exec_driver_sql(upsert)
        connection.rollback()
        connection.exec_driver_sql("INSERT INTO tree VALUES (1, 1)")
        connection.exec_driver_sql(upsert)


@pytest.mark.parametrize("each", ["postgresql"], indirect=True)
def test_upsert_matching_a_row_by_an_unnamed_index_is_refused(parts: Capturing) -> None:
    parts.run("CREATE UNIQUE INDEX ON part (lower(name))")
    with heard(parts, ["part"]) as (engine, _), engine.connect() as connection:
        upsert = (
            "INSERT INTO part VALUES (9, 'A', 1) ON CONFLICT (lower(name)) DO UPDATE SET n = 5 RETURNING id"
        )
        with pins.refused(UnmarkedError):
            connection.exec_driver_sql(upsert)
