"""Outbox mode: a service's changes are marked in their transactions, and relays follow."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from migrator.runtime.errors import SettingsError, UnmarkedError
from tests import pins
from tests.service.shop import Order, Shop, User

pytestmark = pytest.mark.slow


def a_user(number: int, **more: Any) -> User:
    return User(id=number, name=f"User {number}", email=f"u{number}@example.com", **more)


def test_two_lines_are_enough(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1, orders=[Order(id=10, total=5), Order(id=11, total=7)]))
        assert shop.marks() == 3
        shop.comes_to_rest()
        assert ("USER#1", "ORDER#10") in shop.items()
        with sessions.begin() as session:
            session.get_one(User, 1).name = "Ada"
            session.delete(session.get_one(Order, 11))
        shop.comes_to_rest()
        assert shop.items()["USER#1", "ORDER#10"]["user_name"] == "Ada"
        with sessions.begin() as session:
            session.delete(session.get_one(User, 1))
        shop.comes_to_rest()
        assert shop.items() == {}


def test_adapter_marks_nothing_twice_if_triggers_do(triggered_shop: Shop) -> None:
    shop, sessions = triggered_shop, triggered_shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add(a_user(1))
        with sessions.begin() as session:
            # Triggers see what the adapter could not.
            session.execute(sa.update(User).values(name="all"))
    assert shop.marks() == 2


def test_statement_without_keys_is_refused_unless_set_to_lock(shop: Shop) -> None:
    sessions = shop.sessions
    with shop.migration() as migration:
        writing = migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add_all([a_user(1), a_user(2)])
        with pytest.raises(UnmarkedError, match="unknown_rows"), sessions.begin() as session:
            session.execute(sa.update(User).where(User.name == "User 1").values(name="x"))
        writing.close()
        migration.dual_write(sessions, unknown_rows="lock")
        with sessions.begin() as session:
            session.execute(sa.update(User).where(User.name == "User 1").values(name="x"))
        assert shop.marks() == 3
        shop.comes_to_rest()


@pytest.mark.engines("sqlite")
@pytest.mark.parametrize("name", ["rowid", "_ROWID_", '"oid"'])
def test_a_key_is_known_by_its_other_names(shop: Shop, name: str) -> None:
    """Elsewhere there is no such column."""
    sessions = shop.sessions
    with shop.migration() as migration:
        migration.dual_write(sessions)
        with sessions.begin() as session:
            session.add_all([a_user(1), a_user(2)])
        with sessions.begin() as session:
            session.execute(sa.text(f"UPDATE users SET {name} = 777 WHERE id = 1"))
            session.execute(sa.text(f"DELETE FROM users WHERE {name} = 2"))
            session.execute(sa.text(f"INSERT INTO users ({name}, name) VALUES (5, 'Eve'), (6, 'Ida')"))
        assert shop.marks() == 6
        shop.comes_to_rest()


def test_marks_are_left_by_hand(shop: Shop) -> None:
    with shop.migration() as migration, Session(shop.engine) as session:
        migration.begin_marking()
        session.execute(sa.text("INSERT INTO users (id, name) VALUES (1, 'Ada')"))
        after = {"id": 1, "email": None, "handle": None}
        migration.mark_changed(session, "users", None, after)
        with migration.changing(session, "users", 1):
            session.execute(sa.text("UPDATE users SET name = 'Bob' WHERE id = 1"))
        session.commit()
        assert shop.marks() == 2
        shop.comes_to_rest()
        with pins.refused(UnmarkedError, "email"):
            migration.mark_changed(session, "users", after, {"id": 1})
        with pins.refused(SettingsError, "mean"):
            migration.mark_changed(session, "user", after, after)


def test_marks_by_hand_follow_foreign_keys(shop: Shop) -> None:
    with shop.migration() as migration, Session(shop.engine) as session:
        migration.begin_marking()
        for table, key, rest in (("users", 1, "'Ada'"), ("orders", 10, "1, 5"), ("tags", 100, "10, 'red'")):
            columns = {"users": "id, name", "orders": "id, user_id, total", "tags": "id, order_id, label"}[
                table
            ]
            with migration.changing(session, table, key):
                session.execute(sa.text(f"INSERT INTO {table} ({columns}) VALUES ({key}, {rest})"))
        session.commit()
        shop.comes_to_rest()
        assert ("TAGS#1", "red#100") in shop.items()
        with migration.changing(session, "users", 1):
            session.execute(sa.text("DELETE FROM users WHERE id = 1"))
        session.commit()
        shop.comes_to_rest()
        assert shop.items() == {}


def test_key_that_cannot_be_one_is_refused_by_hand(shop: Shop) -> None:
    with shop.migration() as migration, Session(shop.engine) as session:
        for key in ({"id": 1}, {1}, ({1},)):
            with pins.refused(UnmarkedError), migration.changing(session, "users", key):
                pass
        wrong: Any = None
        with pins.refused(SettingsError, "table"), migration.changing(session, wrong, 1):
            pass


def test_the_drivers_own_connection_will_do(shop: Shop) -> None:
    raw = shop.engine.raw_connection()
    try:
        with shop.migration() as migration:
            driver = raw.driver_connection
            assert driver is not None
            with migration.changing(driver, "users", 1, 2):
                driver.cursor().execute("INSERT INTO users (id, name) VALUES (1, 'Ada'), (3, 'not named')")
            driver.commit()
        assert shop.marks() == 1
    finally:
        raw.close()


def test_flush_lets_a_service_read_its_own_writes(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(sessions := shop.sessions, flush=True)
        with sessions.begin() as session:
            session.add(a_user(1))
        assert ("USER#1", "META") in shop.items()
        assert shop.marks() == 1


def test_an_engine_has_one_dual_write(shop: Shop) -> None:
    with shop.migration() as migration:
        migration.dual_write(shop.sessions)
        with pins.refused(SettingsError):
            migration.dual_write(shop.engine)
