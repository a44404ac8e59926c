"""Writers of the service beside each other: what our triggers do makes none wait for a row that is not its own."""

from __future__ import annotations

from threading import Thread

import pytest

from tests.races.harness import Race

USERS = [f"INSERT INTO users (id, name) VALUES ({number}, 'u{number}')" for number in range(1, 10)]


ORDERS = [f"INSERT INTO orders (id, user_id, total) VALUES ({number}, {number}, 5)" for number in (1, 2)]


@pytest.mark.engines("postgresql", "mariadb")
@pytest.mark.parametrize("statement", ["UPDATE users SET name = 'second'", "DELETE FROM users"])
def test_a_writer_that_waits_for_a_row_holds_up_no_other(race: Race, statement: str) -> None:
    """A writer that held the lock of the marks' ids for its whole statement did, also the writer it waited for."""
    race.sql(*USERS, *ORDERS)
    with race.shop.session() as first, race.shop.session() as second, race.shop.session() as third:
        first.begin("UPDATE users SET name = 'first' WHERE id = 2")
        second.begin()
        waiting = Thread(target=second, args=(f"{statement} WHERE id IN (1, 2)",))
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        third("UPDATE users SET name = 'third' WHERE id = 9")
        first("UPDATE users SET name = 'first' WHERE id = 3")
        first.commit()
        waiting.join(120)
        assert not waiting.is_alive()
        second.commit()
    with race.shop.session() as session:
        rows = session.rows("SELECT name FROM users WHERE id IN (3, 9) ORDER BY id")
    assert [tuple(row) for row in rows] == [("first",), ("third",)]
