"""A replay beside a service that writes and a relay that follows: what is in flight is never counted as a difference."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from tests.forking import run_python
from tests.journeys.command import ROOT, Project, project

PATTERNS = (
    "get_user",
    "get_user_with_orders",
    "recent_orders",
    "get_product",
    "get_products_by_category",
    "order_with_items",
    "orders_of_product",
    "products_of_category",
)
MARKS_AT_MOST = 50


@pytest.fixture
def shop(tmp_path: Path, postgres_database: str, dynamodb_url: str) -> Project:
    build = [ROOT / "docker" / "shop" / "build.py", "--scale", "1", postgres_database]
    run_python(build, check=True)
    with psycopg.connect(postgres_database) as connection:
        connection.execute("DELETE FROM order_items WHERE order_id % 8 > 0")
        connection.execute("DELETE FROM orders WHERE id % 8 > 0")
    made = project(
        tmp_path, postgres_database, dynamodb_url, f"App{secrets.token_hex(4)}", mapping="ecommerce"
    )
    return made.prepared("table create", "capture install", "backfill")


def _write(connection: psycopg.Connection, rng: random.Random, number: int) -> None:
    """One change of a service: a price, a status, a new order with lines, an order that goes."""
    order, user = 100_000 + number, rng.randint(1, 2000)
    changes: list[list[tuple[str, tuple[object, ...]]]] = [
        [
            (
                "UPDATE products SET stock = stock + 1, price = price + 0.01 WHERE id = %s",
                (rng.randint(1, 300),),
            )
        ],
        [("UPDATE users SET name = name || 'x' WHERE id = %s", (user,))],
        [
            (
                "INSERT INTO orders VALUES (%s, %s, 'pending', 5, %s)",
                (order, user, datetime.now(UTC).replace(tzinfo=None, microsecond=0)),
            ),
            ("INSERT INTO order_items VALUES (%s, %s, 1, 5)", (order, rng.randint(1, 300))),
        ],
        [("UPDATE orders SET status = 'shipped' WHERE id = %s", (8 * rng.randint(1, 1000),))],
    ]
    for statement, values in rng.choice(changes):
        connection.execute(statement, values)
    connection.commit()


def _waiting(connection: psycopg.Connection) -> int:
    """Marks that the relay has not put away."""
    row = connection.execute("SELECT count(*) FROM migrator.mark").fetchone()
    connection.commit()
    return int(row[0]) if row else 0


@contextmanager
def writing(url: str, pause_s: float) -> Iterator[list[int]]:
    """A service that changes rows until the block ends; the list grows with each change."""
    stop, done, rng = Event(), [0], random.Random(1)

    def work() -> None:
        with psycopg.connect(url) as connection:
            while not stop.wait(pause_s):
                # A relay that falls behind on a busy machine would have differences that are older than `--settle`.
                if _waiting(connection) < MARKS_AT_MOST:
                    _write(connection, rng, done[0])
                    done[0] += 1

    thread = Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def test_writes_in_flight_are_no_differences(shop: Project, postgres_database: str) -> None:
    words = [word for name in PATTERNS for word in ("--pattern", name)]
    with shop.beside("relay", str(shop.job)), writing(postgres_database, 0.02) as done:
        ended = shop.run(
            "shadow", "replay", str(shop.job), *words, "--sample", "500", "--settle", "10s", "--json"
        )
        assert done[0] > 100
    found = ended.data["patterns"]
    differing = [(one["pattern"], one["differences"]) for one in found if one["differences"]]
    assert ended.code == 0, (ended.data["lag_s"], differing)
    assert sum(one["transient"] for one in found) > 0
