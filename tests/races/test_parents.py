"""Rows that many items are made of: parents, children, ancestors, and changes of many rows at once."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from migrator.source.engines.connect import source_url
from tests.races.harness import Pause, Race

TWO = (
    "INSERT INTO users (id, name) VALUES (1, 'Ann')",
    "INSERT INTO users (id, name) VALUES (2, 'Bob')",
    "INSERT INTO orders (id, user_id, total) VALUES (5, 1, 10), (6, 1, 20), (7, 2, 30)",
    "INSERT INTO tags (id, order_id, label) VALUES (9, 5, 'red')",
)
CHILDREN = 2_000


def orders(race: Race) -> dict[tuple[str, str], object]:
    return {key: item["user_name"] for key, item in race.live().items() if item["type"] == "Order"}


def test_a_child_that_moves_between_parents_refreshes_both(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    race.sql("UPDATE orders SET user_id = 2 WHERE id = 5")
    race.comes_to_rest()
    assert (race.item("USER#1")["orders"], race.item("USER#2")["orders"]) == (1, 2)
    assert orders(race)["USER#2", "ORDER#5"] == "Bob"
    assert {("USER#1", "ORDER#5"), ("TAGS#1", "red#9")} <= race.tombstones().keys()
    assert ("TAGS#2", "red#9") in race.live()


def test_renamed_parent_of_thousands_is_paged_without_blocking(race: Race) -> None:
    # Thousands on one engine: on the others only the SQL differs, and three pages show it as well as ten.
    count = CHILDREN if race.shop.engine == "postgresql" else 450
    race.sql(*TWO[:2])
    for start in range(0, count, 500):
        rows = ", ".join(f"({n}, 1, {n})" for n in range(start, min(start + 500, count)))
        race.sql(f"INSERT INTO orders (id, user_id, total) VALUES {rows}")
    race.fill()
    race.sql("UPDATE users SET name = 'Bea' WHERE id = 1")
    relay = race.relay()
    assert relay.once().advanced == 1
    race.sql("UPDATE users SET name = 'Quick' WHERE id = 2")
    worked = relay.once()
    # The other's mark is done while the parent's is under way, which stands behind all others each time.
    assert (worked.finished, worked.advanced, len(race.mark_ids())) == (1, 1, 1)
    assert race.item("USER#2")["name"] == "Quick"
    assert 0 < list(orders(race).values()).count("Ann") < count
    race.comes_to_rest()
    assert set(orders(race).values()) == {"Bea"}


def test_parent_renamed_again_between_its_pages_is_refreshed(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    race.sql("UPDATE users SET name = 'Bea' WHERE id = 1")
    relay = race.relay(roots=1)
    assert relay.once().advanced == 1
    race.sql("UPDATE users SET name = 'Cleo' WHERE id = 1", "UPDATE orders SET user_id = 1 WHERE id = 7")
    race.work(roots=1)
    race.comes_to_rest()
    assert set(orders(race).values()) == {"Cleo"}


def test_crash_between_two_pages_of_a_parent_resumes_in_place(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    race.sql("UPDATE users SET name = 'Bea' WHERE id = 1")
    crashed = race.relay(roots=1, lease_s=0)
    assert crashed.once().advanced == 1
    (mark,) = race.relay().marks.take(1, 0)
    assert mark.cursor
    race.comes_to_rest()
    assert orders(race)["USER#1", "ORDER#6"] == "Bea"


def test_a_cascade_takes_every_item_below_it_away(race: Race) -> None:
    """MariaDB fires no triggers for it: a trigger of the parent stands in for them."""
    race.sql(*TWO)
    race.fill()
    race.sql("DELETE FROM users WHERE id = 1")
    race.comes_to_rest()
    assert race.live().keys() == {("USER#2", "META"), ("USER#2", "ORDER#7")}
    assert {("USER#1", "ORDER#5"), ("USER#1", "ORDER#6"), ("TAGS#1", "red#9")} <= race.tombstones().keys()


@pytest.mark.engines("postgresql")
def test_a_truncated_table_loses_every_item(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    race.sql("TRUNCATE orders CASCADE")
    race.comes_to_rest()
    assert race.live().keys() == {("USER#1", "META"), ("USER#2", "META")}
    assert race.item("USER#1")["orders"] == 0


def test_a_bulk_update_through_core_leaves_a_mark_for_every_row(race: Race) -> None:
    race.sql(*TWO)
    race.fill()
    users = sa.table("users", sa.column("id"), sa.column("name", sa.String), sa.column("email", sa.String))
    engine = sa.create_engine(source_url(race.shop.url))
    with engine.begin() as connection:
        connection.execute(sa.insert(users), [{"id": n, "name": f"N{n}"} for n in range(10, 20)])
        connection.execute(sa.update(users).values(email=users.c.name + "@x"))
        connection.execute(sa.delete(users).where(users.c.id > 15))
    engine.dispose()
    race.comes_to_rest()
    assert len([key for key in race.live() if key[0].startswith("EMAIL#")]) == 8


# ── trees ──

TREE = (
    "INSERT INTO nodes (id, parent_id, slug) VALUES (1, NULL, 'root')",
    "INSERT INTO nodes (id, parent_id, slug) VALUES (2, 1, 'a')",
    "INSERT INTO nodes (id, parent_id, slug) VALUES (3, 1, 'b')",
    "INSERT INTO nodes (id, parent_id, slug) VALUES (4, 2, 'leaf')",
)


def test_a_renamed_ancestor_moves_everything_below_it(race: Race) -> None:
    race.sql(*TREE)
    race.fill()
    race.sql("UPDATE nodes SET slug = 'top' WHERE id = 1")
    race.comes_to_rest()
    assert race.live().keys() == {
        ("TREE#top", f"PATH#{path}#") for path in ("top", "top#a", "top#b", "top#a#leaf")
    }
    assert len(race.tombstones()) == 4


@pytest.mark.parametrize("paused", [False, True], ids=["in turn", "while a relay sleeps"])
def test_a_branch_that_moves_while_an_ancestor_is_renamed(race: Race, *, paused: bool) -> None:
    race.sql(*TREE)
    race.fill()
    race.sql("UPDATE nodes SET slug = 'top' WHERE id = 1")

    def meanwhile() -> None:
        race.sql("UPDATE nodes SET parent_id = 3 WHERE id = 2")
        if paused:
            race.work()

    race.relay(Pause(meanwhile), lease_s=0).once()
    race.comes_to_rest()
    assert ("TREE#top", "PATH#top#b#a#leaf#") in race.live()
    assert len(race.live()) == 4
