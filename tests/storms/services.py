"""A service of the shop's that uses the adapter: changes its rows until it is killed, and says what came of each change.

What goes wrong is treated as services do: the transaction is rolled back and, where it may succeed, tried again.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, sessionmaker

from migrator.api import Migration
from migrator.runtime.errors import MigratorError
from tests.storms.writers import CHANGES, ROLLBACKS, SLOW, Change, Known, Writer

LONGEST_S = 4.0
AT_ONCE = 2
"""Transactions that one service has open at the same time."""
TRIES = 3
_STRICT = {"mode": "strict", "longest_transaction_s": LONGEST_S, "longest_write_s": LONGEST_S}
KINDS: dict[str, dict[str, Any]] = {
    "outbox": {},
    "flush": {"flush": True},
    "strict": _STRICT,
    "async-outbox": {},
    "async-strict": _STRICT,
}


_SLEEP = {
    "postgresql": "SELECT pg_sleep(:s)",
    **dict.fromkeys(("mysql", "mariadb"), "SELECT SLEEP(:s)"),
}


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    email: Mapped[str | None]
    name: Mapped[str]
    orders: Mapped[list[Order]] = relationship(cascade="all, delete", passive_deletes=True)


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customer.id"))
    status: Mapped[str]
    total: Mapped[int]
    lines: Mapped[list[Line]] = relationship(cascade="all, delete-orphan")


class Line(Base):
    __tablename__ = "line"
    order_id: Mapped[int] = mapped_column(sa.ForeignKey("orders.id"), primary_key=True)
    product_id: Mapped[int] = mapped_column(primary_key=True)
    quantity: Mapped[int]


@dataclass
class Through:
    """What tests.storms.shop.Service is to the plain writers: here every statement goes by a session."""

    session: Session

    @property
    def connection(self) -> Session:
        return self.session

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        result = self.session.execute(_text(statement), _named(values))
        return [tuple(row) for row in result] if result.returns_rows else []  # type: ignore[attr-defined]

    def many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        self.session.execute(_text(statement), [_named(row) for row in rows])


def _text(statement: str) -> sa.TextClause:
    numbers = iter(range(statement.count("%s")))
    return sa.text(re.sub("%s", lambda _: f":p{next(numbers)}", statement))


def _named(values: Sequence[object]) -> dict[str, object]:
    return {f"p{number}": value for number, value in enumerate(values)}


# ── changes by the ORM ──


def _session(one: Writer) -> Session:
    return one.shop.session  # type: ignore[attr-defined, no-any-return]


def add_a_tree(one: Writer) -> None:
    customer, first = one.new_id(), one.product()
    lines = [Line(product_id=first, quantity=1), Line(product_id=first % 100 + 1, quantity=2)]
    orders = [Order(id=one.new_id(), status=one.status(), total=1, lines=lines)]
    _session(one).add(Customer(id=customer, name="tree", email=f"{customer}@orm", orders=orders))
    _session(one).flush()
    one.known.customers.append(customer)
    one.known.orders.append(orders[0].id)


def change_the_customer(one: Writer) -> None:
    if customer := _session(one).get(Customer, one.customer()):
        customer.name, customer.email = (
            f"o{one.chance.random():.6f}",
            one.chance.choice([None, customer.email]),
        )


def change_the_parent(one: Writer) -> None:
    if order := _session(one).get(Order, one.order()):
        order.customer_id, order.total = one.customer(), order.total + 1


def exchange_the_lines(one: Writer) -> None:
    if order := _session(one).get(Order, one.order()):
        order.lines = [Line(product_id=one.product(), quantity=one.chance.randint(1, 9))]


def delete_the_customer(one: Writer) -> None:
    if customer := _session(one).get(Customer, one.chance.choice(one.known.customers)):
        _session(one).delete(customer)


def roll_back_to_a_savepoint(one: Writer) -> None:
    change_the_customer(one)
    inner = _session(one).begin_nested()
    add_a_tree(one)
    change_the_parent(one)
    if one.chance.random() < 0.7:
        inner.rollback()
    else:
        inner.commit()
    change_the_parent(one)


ALL_CHANGES: dict[Change, int] = {
    **CHANGES, add_a_tree: 8, change_the_customer: 8, change_the_parent: 10, exchange_the_lines: 6,
    delete_the_customer: 2, roll_back_to_a_savepoint: 10,
}  # fmt: skip


# ── transactions ──


class AbandonedError(Exception):
    """The service changed its mind."""


def transaction(session: Session, change: Change, writer: Writer) -> None:
    """Commits a change; some are slow, some are rolled back by the service itself."""
    writer.shop = Through(session)  # type: ignore[assignment]
    change(writer)
    session.flush()
    if writer.chance.random() < SLOW:
        # In the database, so that an event loop goes on meanwhile.
        session.execute(
            sa.text(_SLEEP[session.get_bind().dialect.name]), {"s": writer.chance.uniform(0.1, 0.8)}
        )
    if writer.chance.random() < ROLLBACKS:
        raise AbandonedError
    session.commit()


def end_of(error: Exception) -> str:
    """What came of a transaction that failed, in a word."""
    if isinstance(error, AbandonedError):
        return "rolled_back"
    return f"failed_{type(error).__name__}"


def may_succeed(error: Exception) -> bool:
    return isinstance(error, (MigratorError, sa.exc.OperationalError))


@dataclass
class Service:
    """`number`: of this life; its rows' ids are made of it. `per_s`: transactions a second, of each of AT_ONCE.

    `say` is told what came of a transaction, and which change it was.
    """

    known: Known
    number: int
    per_s: float
    seed: str
    say: Callable[[str, str], None]

    def writer(self, place: int) -> Writer:
        chance = random.Random(f"{self.seed} {self.number} {place}")
        return Writer(self.number * AT_ONCE + place, None, self.known, chance)  # type: ignore[arg-type]

    def chosen(self, writer: Writer) -> Change:
        return writer.chance.choices(list(ALL_CHANGES), list(ALL_CHANGES.values()))[0]

    def attempt(self, session: Session, change: Change, writer: Writer) -> bool:
        """Whether the same change is to be tried again."""
        try:
            transaction(session, change, writer)
        except (SQLAlchemyError, MigratorError, AbandonedError) as error:
            session.rollback()
            self.say(end_of(error), change.__name__)
            return may_succeed(error)
        self.say("committed", change.__name__)
        return False

    def write(self, sessions: sessionmaker[Session], place: int) -> None:
        writer = self.writer(place)
        while True:
            time.sleep(writer.chance.expovariate(self.per_s))
            change = self.chosen(writer)
            for _ in range(TRIES):
                with sessions() as session:
                    if not self.attempt(session, change, writer):
                        break

    async def write_async(self, sessions: async_sessionmaker[AsyncSession], place: int) -> None:
        writer = self.writer(place)
        while True:
            await asyncio.sleep(writer.chance.expovariate(self.per_s))
            change = self.chosen(writer)
            for _ in range(TRIES):
                async with sessions() as session:
                    if not await session.run_sync(self.attempt, change, writer):
                        break


# ── the process ──


def engine_words(url: str) -> dict[str, Any]:
    """How a service of the shop's connects: it waits ten seconds for a lock at most."""
    waits = {"postgresql": {"options": "-c lock_timeout=10s"}}
    locks: dict[str, Any] = waits.get(
        url.partition("+")[0], {"init_command": "SET innodb_lock_wait_timeout = 10"}
    )
    return {"isolation_level": "READ COMMITTED", "connect_args": locks}


def serve(migration: Migration, url: str, kind: str, service: Service) -> None:
    dual_write = {"unknown_rows": "lock", **KINDS[kind]}
    if kind.startswith("async"):
        asyncio.run(_serve_async(migration, url, dual_write, service))
        return
    sessions = sessionmaker(sa.create_engine(url, **engine_words(url)))
    migration.dual_write(sessions, **dual_write)
    _in_threads([partial(service.write, sessions, place) for place in range(AT_ONCE)])


async def _serve_async(migration: Migration, url: str, dual_write: dict[str, Any], service: Service) -> None:
    address = url.replace("postgresql+psycopg:", "postgresql+psycopg_async:")
    address = re.sub("^(mariadb|mysql)[+]pymysql:", "mysql+aiomysql:", address)
    engine = create_async_engine(address, **engine_words(url))
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    migration.dual_write(sessions, **dual_write)
    await asyncio.gather(*(service.write_async(sessions, place) for place in range(AT_ONCE)))


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
