"""Sessions with settings of their own: the adapter's marks still equal the triggers'."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.runtime.errors import SourceError, UnmarkedError
from migrator.source.adapter.driver import Driver
from migrator.source.adapter.events import refuse_autocommit
from migrator.source.adapter.in_transaction import within
from tests import pins
from tests.support_adapter import Seen, left_marks, listening, service_url
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import ENGINES, Capturing, captured

ODD_POSTGRESQL = """CREATE TABLE odd (f double precision, at timestamp, z timestamptz, b bytea, i interval, c char(5),
    u uuid, a integer[], t text[], d date, h time, n numeric, note text, PRIMARY KEY (f, at, b, c, u, a, t, d, h, n))"""
ROW_POSTGRESQL = {
    "f": 0.1 + 0.2,
    "at": datetime(2024, 12, 31, 23, 59, 59, 123456),
    "z": datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC),
    "b": b"\x00\\'\xff",
    "i": timedelta(days=40, seconds=61),
    "c": "ab",
    "u": uuid.UUID(int=7),
    "a": [1, 2],
    "t": ["a,b", "'"],
    "d": date(2024, 2, 3),
    "h": time(1, 2, 3, 4),
    "n": 1,
    "note": "x",
}
POSTGRESQL = {
    "DateStyle": "German, DMY",
    "TimeZone": "Asia/Kolkata",
    "bytea_output": "escape",
    "IntervalStyle": "postgres_verbose",
    "extra_float_digits": "-5",
}


NAMES = ", ".join(ROW_POSTGRESQL)
VALUES = ", ".join(f":{name}" for name in ROW_POSTGRESQL)
KEY = " AND ".join(f"{name} = :{name}" for name in ("f", "at", "b", "c", "u", "t", "d", "h", "n"))
KEY += " AND a = CAST(:a AS integer[])"
WRITES: list[tuple[str, dict[str, Any]]] = [
    (f"INSERT INTO odd ({NAMES}) VALUES ({VALUES})", {}),
    (f"UPDATE odd SET note = 'y' WHERE {KEY}", {}),
    (f"UPDATE odd SET note = note WHERE {KEY}", {}),
    (f"UPDATE odd SET c = 'other' WHERE {KEY}", {}),
    (f"DELETE FROM odd WHERE {KEY}", {"c": "other"}),
]
SETTINGS = [{name: POSTGRESQL[name]} for name in POSTGRESQL] + [POSTGRESQL]


def _options(settings: dict[str, str]) -> dict[str, str]:
    said = (f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in settings.items())
    return {"options": " ".join(said)}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_of_a_session_change_no_image(postgresql: Capturing, settings: dict[str, str]) -> None:
    postgresql.run(ODD_POSTGRESQL)
    with heard(postgresql, ["odd"], connect_args=_options(settings)) as (engine, seen):
        for statement, changes in WRITES:
            with engine.begin() as connection:
                connection.execute(sa.text(statement), ROW_POSTGRESQL | changes)
                for name, value in settings.items():
                    told = connection.exec_driver_sql(f"SHOW {name}").scalar_one()
                    assert told == value, "the session is as the service made it"
            assert_same(postgresql, seen, 1)


@pytest.mark.parametrize("settings", [{}, POSTGRESQL], ids=str)
def test_nor_do_they_change_a_mark_that_is_left_at_once(
    postgresql: Capturing, settings: dict[str, str]
) -> None:
    postgresql.run(ODD_POSTGRESQL)
    with heard(postgresql, ["odd"], connect_args=_options(settings)) as (engine, _):
        plain = sa.create_engine(engine.url, connect_args=_options(settings))
        wanted = _left(postgresql, plain)
        plain.dispose()
    postgresql.run("ALTER TABLE odd DISABLE TRIGGER USER")
    facts = postgresql.source.facts().tables["odd"]
    found = [captured(facts, [one.name for one in facts.columns])]
    ears, _ = listening(postgresql, found, leaves=True, keeps_images=False)
    marked = sa.create_engine(engine.url, connect_args=_options(settings))
    ears.attach(marked)
    assert _left(postgresql, marked) == wanted
    assert len(wanted) == len(WRITES)
    marked.dispose()


def _left(shop: Capturing, engine: sa.Engine) -> list[Any]:
    for statement, changes in WRITES:
        with engine.begin() as connection:
            connection.execute(sa.text(statement), ROW_POSTGRESQL | changes)
    return left_marks(shop)


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"])
def test_mariadb_quotes_zone_and_isolation_do_not_change_marks(mariadb: Capturing, isolation: str) -> None:
    mariadb.run(
        "CREATE TABLE stamped (id varchar(9) PRIMARY KEY, at timestamp(6) NULL, d datetime, f float, b varbinary(9))"
    )
    with heard(mariadb, ["stamped"], isolation_level=isolation) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql("SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+05:30'")
            connection.exec_driver_sql(
                """INSERT INTO "stamped" ("id", at, d, f, b) VALUES ('a"b', '2024-02-03 04:05:06.5', '2024-02-03', 0.1, 'x')"""
            )
            connection.exec_driver_sql("""UPDATE "stamped" SET "f" = 0.2 WHERE "id" = %s""", ('a"b',))
            connection.exec_driver_sql("""UPDATE "stamped" SET "id" = 'c' WHERE "id" = 'a"b' """)
            connection.exec_driver_sql("""DELETE FROM stamped WHERE `id` = 'c'""")
        assert_same(mariadb, seen, 4)


def test_on_mariadb_double_quotes_are_text_by_default(mariadb: Capturing) -> None:
    mariadb.run("CREATE TABLE named (id varchar(9) PRIMARY KEY, note varchar(9))")
    with heard(mariadb, ["named"]) as (engine, seen):
        with engine.begin() as connection:
            connection.exec_driver_sql('INSERT INTO named VALUES ("a", "id")')
            connection.exec_driver_sql('UPDATE named SET note = "%%" WHERE id = "a"')
        assert_same(mariadb, seen, 2)


@pytest.mark.parametrize("begins", [True, False])
def test_sqlite_change_is_marked_however_the_transaction_begins(sqlite: Capturing, begins: bool) -> None:
    """By default sqlite3 begins one before a write, but not before what the adapter reads."""
    sqlite.run("CREATE TABLE part (id integer PRIMARY KEY, name text)")
    with heard(sqlite, ["part"]) as (engine, seen):
        if begins:
            sa.event.listen(engine, "connect", lambda made, _: setattr(made, "isolation_level", None))
            sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        with engine.begin() as connection:
            for statement in (
                "INSERT INTO part (name) VALUES ('a'), ('b')",
                "UPDATE part SET name = 'c' WHERE id = 1",
                "DELETE FROM part WHERE id = 2",
            ):
                connection.exec_driver_sql(statement)
        assert_same(sqlite, seen, 4)


def _refusing(seen: Seen) -> Seen:
    def begins(driver: Driver) -> None:
        refuse_autocommit(driver)

    seen.begins = begins  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("name", ENGINES)
def test_a_connection_that_commits_each_statement_is_refused(
    name: str, request: pytest.FixtureRequest
) -> None:
    shop: Capturing = request.getfixturevalue(name)
    shop.run("CREATE TABLE part (id integer PRIMARY KEY, name varchar(9), n integer)")
    with heard(shop, ["part"], isolation_level="AUTOCOMMIT") as (engine, seen):
        _refusing(seen)
        with engine.connect() as connection, pins.refused(UnmarkedError):
            connection.exec_driver_sql("INSERT INTO part (id) VALUES (1)")
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM part").scalar_one() == 0
    assert shop.left() == []


@pytest.mark.parametrize("each", ["postgresql", "mariadb"], indirect=True)
def test_connection_that_breaks_while_strict_mode_reads_is_a_source_error(each: Capturing) -> None:
    own, kill = {
        "postgresql": ("pg_backend_pid()", "SELECT pg_terminate_backend({})"),
        "mariadb": ("connection_id()", "KILL {}"),
    }[each.engine]
    engine = sa.create_engine(service_url(each.engine, each.url))

    def read(connection: sa.Connection) -> None:
        number = connection.exec_driver_sql(f"SELECT {own}").scalar_one()
        with within(each.source._reading, connection) as reading:
            each.run(kill.format(number))
            reading.read("a test", lambda made: made.execute(sa.text("SELECT 1")))

    with engine.connect() as connection:
        with pytest.raises(SourceError):
            read(connection)
        connection.invalidate()
    engine.dispose()
