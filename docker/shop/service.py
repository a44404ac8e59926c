"""The shop's service as its database sees it: customers who sign up, order, change orders and leave.

    python docker/shop/service.py --seconds 20 --rate 100 sqlite:///shop.db

It ends by itself and prints its changes. It only writes to SQL.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

STATUSES = ("pending", "processing", "shipped", "delivered", "cancelled")
_METADATA = sa.MetaData()


class Shop:
    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        _METADATA.reflect(engine, only=["users", "products", "orders", "order_items", "sessions"])
        self.table = _METADATA.tables

    def step(self) -> None:
        acts: list[tuple[int, Callable[[Connection], str]]] = [
            (30, self.order),
            (25, self.change_status),
            (10, self.change_order),
            (8, self.sign_in),
            (7, self.sign_up),
            (7, self.rename),
            (5, self.change_price),
            (4, self.cancel),
            (4, self.swap_email),
        ]
        act = self.random.choices([one for _, one in acts], [weight for weight, _ in acts])[0]
        connection = self.engine.connect()
        with connection, connection.begin() as transaction:
            name = act(connection)
            if self.random.random() < 0.05:
                transaction.rollback()
                name = "rolled back"
        self.done[name] += 1

    # ── what customers do ──

    def order(self, connection: Connection) -> str:
        number = self._next(connection, "orders")
        now = _now()
        values = {
            "id": number,
            "user_id": self._any(connection, "users"),
            "status": "pending",
            "created_at": now,
        }
        connection.execute(sa.insert(self.table["orders"]).values(**values, total=Decimal("0.00")))
        self._lines(connection, number)
        return "orders placed"

    def change_status(self, connection: Connection) -> str:
        status = self.random.choice(STATUSES)
        self._update(connection, "orders", {"status": status})
        return "orders moved on"

    def change_order(self, connection: Connection) -> str:
        number = self._any(connection, "orders")
        lines = self.table["order_items"]
        connection.execute(sa.delete(lines).where(lines.c.order_id == number))
        self._lines(connection, number)
        return "orders changed"

    def cancel(self, connection: Connection) -> str:
        orders, lines = self.table["orders"], self.table["order_items"]
        number = self._any(connection, "orders")
        connection.execute(sa.delete(lines).where(lines.c.order_id == number))
        connection.execute(sa.delete(orders).where(orders.c.id == number))
        return "orders deleted"

    def sign_up(self, connection: Connection) -> str:
        number = self._next(connection, "users")
        values = {"id": number, "email": f"customer.{number}@example.com", "name": f"Customer {number}"}
        connection.execute(sa.insert(self.table["users"]).values(**values, phone=None, created_at=_now()))
        return "customers signed up"

    def rename(self, connection: Connection) -> str:
        self._update(connection, "users", {"name": f"Renamed {self.random.randrange(10_000)}"})
        return "customers renamed"

    def swap_email(self, connection: Connection) -> str:
        users = self.table["users"]
        one, other = self._any(connection, "users"), self._any(connection, "users")
        email = connection.execute(sa.select(users.c.email).where(users.c.id == one)).scalar()
        if one == other or email is None:
            return "nothing"
        given = f"given.up.{one}.{self.random.randrange(10**9)}@example.com"
        connection.execute(sa.update(users).where(users.c.id == one).values(email=given))
        connection.execute(sa.update(users).where(users.c.id == other).values(email=email))
        return "addresses handed on"

    def change_price(self, connection: Connection) -> str:
        self._update(connection, "products", {"price": Decimal(self.random.randrange(100, 99_999)) / 100})
        return "prices changed"

    def sign_in(self, connection: Connection) -> str:
        now = _now()
        values = {"id": f"{self.random.getrandbits(128):032x}", "user_id": self._any(connection, "users")}
        expires = now + timedelta(days=30)
        session = sa.insert(self.table["sessions"]).values(**values, created_at=now, expires_at=expires)
        connection.execute(session)
        return "sign-ins"

    # ── rows ──

    def _lines(self, connection: Connection, order: int) -> None:
        lines, total = self.table["order_items"], Decimal(0)
        for product in {self._any(connection, "products") for _ in range(self.random.randrange(1, 4))}:
            price, quantity = Decimal(self.random.randrange(100, 9_999)) / 100, self.random.randrange(1, 4)
            values = {"order_id": order, "product_id": product, "quantity": quantity, "unit_price": price}
            connection.execute(sa.insert(lines).values(**values))
            total += price * quantity
        orders = self.table["orders"]
        connection.execute(sa.update(orders).where(orders.c.id == order).values(total=total))

    def _update(self, connection: Connection, name: str, values: dict[str, object]) -> None:
        table, number = self.table[name], self._any(connection, name)
        connection.execute(sa.update(table).where(table.c.id == number).values(**values))

    def _any(self, connection: Connection, name: str) -> int:
        table = self.table[name]
        wanted = self.random.randrange(1, self._next(connection, name))
        first = sa.select(sa.func.min(table.c.id)).where(table.c.id >= wanted)
        return int(connection.execute(first).scalar_one())

    def _next(self, connection: Connection, name: str) -> int:
        return int(connection.execute(sa.select(sa.func.max(self.table[name].c.id))).scalar_one()) + 1


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def engine_for(url: str) -> Engine:
    """SQLite: foreign keys on, and writes that wait instead of failing."""
    if not url.startswith("sqlite"):
        driven = url.replace("postgresql://", "postgresql+psycopg://", 1)
        return sa.create_engine(driven, hide_parameters=True)
    engine = sa.create_engine(url, connect_args={"timeout": 30}, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def prepare(connection, _) -> None:  # type: ignore[no-untyped-def]
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="SQLAlchemy URL of the shop's database")
    parser.add_argument("--seconds", type=float, default=20, help="duration (at most 600)")
    parser.add_argument("--rate", type=float, default=50, help="changes per second (at most 1000)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    shop = Shop(engine_for(asked.url), asked.seed)
    end = time.monotonic() + min(asked.seconds, 600)
    pause_s = 1 / min(max(asked.rate, 0.1), 1000)
    while (started := time.monotonic()) < end:
        shop.step()
        time.sleep(max(0.0, pause_s - (time.monotonic() - started)))
    told = ", ".join(f"{count:,} {name}" for name, count in shop.done.most_common())
    print(f"the shop made {sum(shop.done.values()):,} changes: {told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
