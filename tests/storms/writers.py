"""The service of the storms: concurrent writers that change the shop's rows in every way; some roll back."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.storms.shop import ERRORS, Service, service

Change: TypeAlias = Callable[["Writer"], None]

STATUSES = ("open", "paid", "sent", "lost")
ROLLBACKS = 0.12
SLOW = 0.05
"""Share of transactions that stay open for a while, so that later ones commit before them."""


HELD_UP = "held up by the marks"
"""How a transaction ends that our triggers broke; no service would try it again."""
_NO_AUTO_INCREMENT = 1467


@dataclass
class Known:
    """Ids that were given out; whether their rows are there still is for the database to say."""

    customers: list[int]
    orders: list[int]


@dataclass
class Writer:
    """One connection's work, seeded by its number."""

    number: int
    shop: Service
    known: Known
    chance: random.Random
    made: int = 0

    def new_id(self) -> int:
        self.made += 1
        return 1_000_000 * (self.number + 1) + self.made

    def customer(self) -> int:
        return self._one(self.known.customers)

    def order(self) -> int:
        return self._one(self.known.orders)

    def product(self) -> int:
        return self.chance.randint(1, 100)

    def status(self) -> str:
        return self.chance.choice(STATUSES)

    def _one(self, ids: list[int]) -> int:
        """Half of them among a few, where writers meet, backfill and relay too."""
        return self.chance.choice(ids[:12] if self.chance.random() < 0.5 else ids)


# ── changes ──


def new_customer(one: Writer) -> None:
    customer, order = one.new_id(), one.new_id()
    one.shop.run("INSERT INTO customer VALUES (%s, %s, %s)", customer, f"{customer}@shop", "new")
    _new_order(one, order, customer)
    one.known.customers.append(customer)


def new_order(one: Writer) -> None:
    _new_order(one, one.new_id(), one.customer())


def new_line(one: Writer) -> None:
    one.shop.run("INSERT INTO line VALUES (%s, %s, 1)", one.order(), one.product())


def rename_customer(one: Writer) -> None:
    one.shop.run("UPDATE customer SET name = %s WHERE id = %s", f"n{one.chance.random():.6f}", one.customer())


def rename_product(one: Writer) -> None:
    """A parent of many lines, and of lists in many orders."""
    one.shop.run("UPDATE product SET name = %s WHERE id = %s", f"p{one.chance.random():.6f}", one.product())


def change_email(one: Writer) -> None:
    email = one.chance.choice([None, f"{one.new_id()}@new", f"{one.chance.randint(1, 8)}@hot"])
    one.shop.run("UPDATE customer SET email = %s WHERE id = %s", email, one.customer())


def move_email(one: Writer) -> None:
    """A unique value that goes from one row to another; in half of the cases through two transactions."""
    giver, taker = one.customer(), one.customer()
    found = one.shop.run("SELECT email FROM customer WHERE id = %s", giver)
    if not found or found[0][0] is None:
        return
    one.shop.run("UPDATE customer SET email = NULL WHERE id = %s", giver)
    if one.chance.random() < 0.5:
        one.shop.connection.commit()
    one.shop.run("UPDATE customer SET email = %s WHERE id = %s", found[0][0], taker)


def change_status(one: Writer) -> None:
    one.shop.run("UPDATE orders SET status = %s WHERE id = %s", one.status(), one.order())


def move_order(one: Writer) -> None:
    one.shop.run("UPDATE orders SET customer_id = %s WHERE id = %s", one.customer(), one.order())


def move_line(one: Writer) -> None:
    """The line's own key changes, and with it two orders' lists."""
    at = (one.order(), one.product())
    one.shop.run("UPDATE line SET order_id = %s WHERE order_id = %s AND product_id < %s", one.order(), *at)


def exchange_product(one: Writer) -> None:
    new, order = one.product(), one.order()
    found = one.shop.run("SELECT MIN(product_id) FROM line WHERE order_id = %s", order)
    one.shop.run(
        "UPDATE line SET product_id = %s, quantity = quantity + 1 WHERE order_id = %s AND product_id = %s",
        new, order, found[0][0],
    )  # fmt: skip


def delete_line(one: Writer) -> None:
    one.shop.run("DELETE FROM line WHERE order_id = %s AND product_id < %s", one.order(), one.product() // 2)


def delete_order(one: Writer) -> None:
    one.shop.run("DELETE FROM orders WHERE id = %s", one.order())


def delete_customer(one: Writer) -> None:
    one.shop.run("DELETE FROM customer WHERE id = %s", one.chance.choice(one.known.customers))


def put_again(one: Writer) -> None:
    """A row that goes and comes under its old key, in one transaction or two."""
    order = one.order()
    one.shop.run("DELETE FROM orders WHERE id = %s", order)
    if one.chance.random() < 0.5:
        one.shop.connection.commit()
    _new_order(one, order, one.customer())


def change_many(one: Writer) -> None:
    low = one.order()
    one.shop.run("UPDATE orders SET total = total + 1 WHERE id BETWEEN %s AND %s", low, low + 8)


def _new_order(one: Writer, order: int, customer: int) -> None:
    one.shop.run("INSERT INTO orders VALUES (%s, %s, %s, 5)", order, customer, one.status())
    first = one.product()
    one.shop.many("INSERT INTO line VALUES (%s, %s, 2)", [(order, first), (order, first % 100 + 1)])
    one.known.orders.append(order)


CHANGES: dict[Change, int] = {
    new_customer: 6, new_order: 10, new_line: 8, rename_customer: 8, rename_product: 1, change_email: 8,
    move_email: 8, change_status: 14, move_order: 10, move_line: 8, exchange_product: 6, delete_line: 4,
    delete_order: 5, delete_customer: 2, put_again: 4, change_many: 2,
}  # fmt: skip


# ── side by side ──


@dataclass
class Writers:
    """`per_s`: transactions a second of each. `counts`: what came of them, by kind of change and by end."""

    url: str
    number: int
    per_s: float
    known: Known
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Writers:
        self._threads = [threading.Thread(target=self._write, args=[n]) for n in range(self.number)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}")
        with service(self.url) as shop:
            writer = Writer(number, shop, self.known, chance)
            while not self.stop.wait(chance.expovariate(self.per_s)):
                change = chance.choices(list(CHANGES), list(CHANGES.values()))[0]
                ended = self._transaction(writer, change)
                with self._lock:
                    self.counts.update([ended, *([change.__name__] if ended == "committed" else [])])

    def _transaction(self, writer: Writer, change: Change) -> str:
        connection = writer.shop.connection
        try:
            change(writer)
            if writer.chance.random() < SLOW:
                time.sleep(writer.chance.uniform(0.1, 0.8))
            if writer.chance.random() < ROLLBACKS:
                connection.rollback()
                return "rolled back"
            connection.commit()
        except ERRORS as error:
            # A key that is there, a row that is gone, a deadlock: a service's everyday.
            connection.rollback()
            return HELD_UP if error.args[:1] == (_NO_AUTO_INCREMENT,) else "refused"
        return "committed"
