"""A job that is captured from PostgreSQL's log, from its install to its end."""

from __future__ import annotations

from tests.log.conftest import LogShop


def test_changes_of_every_kind_become_items(live: LogShop) -> None:
    live.sql(
        "INSERT INTO customer VALUES (100, 'New', 'new@x.example', NULL)",
        "INSERT INTO orders VALUES (100, 100, 7)",
        "UPDATE customer SET name = 'Other' WHERE id = 3",
        "UPDATE customer SET email = 'moved@x.example' WHERE id = 4",
        "UPDATE customer SET id = 200 WHERE id = (SELECT max(id) FROM customer WHERE id NOT IN (SELECT customer_id FROM orders))",
        "UPDATE orders SET customer_id = 100 WHERE id = 1",
        "DELETE FROM customer WHERE id = 5",
        "UPDATE events SET day = 150 WHERE id = 1",
        "DELETE FROM events WHERE id = 2",
        "BEGIN; DELETE FROM orders WHERE id = 7; ROLLBACK",
    )
    live.relay()
    live.verify()
    assert set(live.states().values()) == {"captured"}


def test_the_install_is_printed_and_nothing_is_done(shop: LogShop) -> None:
    printed = shop.install("--dry-run")
    assert f'CREATE PUBLICATION "{shop.name}"' in printed
    assert "pg_create_logical_replication_slot" in printed
    assert shop.slots() == []
