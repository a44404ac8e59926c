"""What a service writes on a driver's cursor from under SQLAlchemy is refused, where it would leave no mark."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from migrator.runtime.errors import UnmarkedError
from tests import pins
from tests.integration.conftest import mariadb as mariadb
from tests.integration.conftest import postgresql as postgresql
from tests.support_adapter_service import assert_same, heard
from tests.support_capture import Capturing


@pytest.fixture(params=["postgresql", "mariadb"])
def parts(request: pytest.FixtureRequest) -> Capturing:
    shop: Capturing = request.getfixturevalue(request.param)
    shop.run("CREATE TABLE part (id integer PRIMARY KEY, n integer)", "CREATE TABLE other (id integer)")
    return shop


def refused(cursor: Any, statement: str = "INSERT INTO part VALUES (1, 1)") -> None:
    with pins.refused(UnmarkedError):
        cursor.execute(statement)


def test_a_cursor_from_under_sqlalchemy_writes_no_watched_table(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, seen):
        with Session(engine) as session:
            refused(session.connection().connection.cursor())
            session.connection().connection.cursor().execute("SELECT * FROM part")
            session.connection().connection.cursor().execute("INSERT INTO other VALUES (1)")
            session.execute(sa.text("INSERT INTO part VALUES (2, 2)"))
            session.execute(sa.text("INSERT INTO part VALUES (:a, :a)"), [{"a": 3}, {"a": 4}])
            session.execute(sa.text("UPDATE part SET n = 9 WHERE id = 2"))
            session.commit()
        raw = engine.raw_connection()
        refused(raw.cursor(), "update part set n = 5")
        assert raw.driver_connection is not None
        refused(raw.driver_connection.cursor(), "DELETE FROM part")
        with pytest.raises(UnmarkedError):
            raw.cursor().executemany("INSERT INTO part VALUES (%s, %s)", [(8, 8)])
        raw.close()
        assert_same(parts, seen, 4)


def test_session_without_a_listener_writes_freely(parts: Capturing) -> None:
    with heard(parts, ["part"]) as (engine, _):
        raw = engine.raw_connection()
        refused(raw.cursor())
    raw.cursor().execute("INSERT INTO part VALUES (1, 1)")
    raw.close()
