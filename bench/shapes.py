"""Rows of three forms as SQLAlchemy's ORM has them, the mapping of each, and the items of a naive script."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, joinedload, mapped_column, relationship, selectinload

from migrator.source.engines.connect import source_url

ROWS = int(os.environ.get("MIGRATOR_TEST_ROWS", 20_000))
HEAD = """
mapping: 1
table: {name: Bench, key: [PK, SK], type: type, indexes: {%s}}
entities:
"""
NOTE = "x" * 120


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(sa.String(80), unique=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    city: Mapped[str | None] = mapped_column(sa.String(80))
    note: Mapped[str] = mapped_column(sa.String(200))
    total: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2))
    created_at: Mapped[datetime]
    visits: Mapped[int]


class Country(Base):
    __tablename__ = "countries"
    code: Mapped[str] = mapped_column(sa.String(2), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))


class Customer(Base):
    __tablename__ = "customers"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    country_code: Mapped[str] = mapped_column(sa.ForeignKey("countries.code"))
    country: Mapped[Country] = relationship()


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(sa.ForeignKey("customers.id"))
    placed_at: Mapped[datetime]
    note: Mapped[str] = mapped_column(sa.String(200))
    customer: Mapped[Customer] = relationship()
    lines: Mapped[list[Line]] = relationship(order_by="Line.n")


class Line(Base):
    __tablename__ = "lines"
    order_id: Mapped[int] = mapped_column(sa.ForeignKey("orders.id"), primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    product: Mapped[str] = mapped_column(sa.String(80))
    price: Mapped[Decimal] = mapped_column(sa.Numeric(10, 2))


@dataclass(frozen=True)
class Shape:
    """Rows of one form. `naive`: the naive script's query, and its item for each row."""

    mapping: str
    rows: sa.Select[Any]
    naive: Callable[[Any], dict[str, Any]]


def _index(name: str) -> str:
    return f"{name}: {{key: [{name}PK, {name}SK]}}"


def _user(user: User) -> dict[str, Any]:
    item = {
        "PK": f"USER#{user.id:09}",
        "SK": "PROFILE",
        "GSI1PK": f"EMAIL#{user.email}",
        "GSI1SK": f"USER#{user.id}",
        "type": "User",
        **{"id": user.id, "email": user.email, "name": user.name, "note": user.note},
        **{"total": user.total, "visits": user.visits, "created_at": user.created_at.isoformat()},
    }
    return item | ({} if user.city is None else {"city": user.city})


def _indexed_user(user: User) -> dict[str, Any]:
    city = {} if user.city is None else {"GSI3PK": f"CITY#{user.city}", "GSI3SK": user.name}
    return {
        **_user(user),
        **city,
        **{"GSI2PK": f"NAME#{user.name}", "GSI2SK": user.created_at.isoformat()},
        **{"GSI4PK": f"VISITS#{user.visits:09}", "GSI4SK": f"USER#{user.id:09}"},
    }


def _order(order: Order) -> dict[str, Any]:
    return {
        "PK": f"ORDER#{order.id:09}",
        "SK": "META",
        "type": "Order",
        **{"customer": order.customer.name, "country": order.customer.country.name, "note": order.note},
        **{"placedAt": order.placed_at.isoformat(), "customerId": order.customer_id},
        "lines": [{"n": one.n, "product": one.product, "price": one.price} for one in order.lines],
    }


_USERS = """
  users:
    items:
      User:
        key: ["USER#{id:09}", PROFILE]
        GSI1: ["EMAIL#{email}", "USER#{id}"]
        keep: all
"""
_MORE_INDEXES = """
        GSI2: ["NAME#{name}", "{created_at}"]
        GSI3: ["CITY#{city}", "{name}"]
        GSI4: ["VISITS#{visits:09}", "USER#{id:09}"]
"""
_ORDERS = """
  orders:
    join: {customer: customer_id, country: customer.country_code}
    collect: {lines: {of: lines, by: order_id, order_by: [n]}}
    items:
      Order:
        key: ["ORDER#{id:09}", META]
        attributes:
          customer: customer.name
          country: country.name
          note: note
          placedAt: placed_at
          customerId: customer_id
          lines: {each: lines, attributes: {n: n, product: product, price: price}}
"""
_WITH_PARENTS = (joinedload(Order.customer).joinedload(Customer.country), selectinload(Order.lines))
PLAIN = Shape(HEAD % _index("GSI1") + _USERS, sa.select(User), _user)
SHAPES = {
    "plain rows": PLAIN,
    "two joins and a collection": Shape(
        HEAD % "" + _ORDERS, sa.select(Order).options(*_WITH_PARENTS), _order
    ),
    "four indexes": Shape(
        HEAD % ", ".join(map(_index, ("GSI1", "GSI2", "GSI3", "GSI4"))) + _USERS + _MORE_INDEXES.strip("\n"),
        sa.select(User),
        _indexed_user,
    ),
}


# ── Databases of these rows ──

_USERS_OF = {
    "sqlite": """
WITH RECURSIVE n (id) AS (SELECT {first} UNION ALL SELECT id + 1 FROM n WHERE id < {last})
SELECT id, 'user' || id || '@example.com', 'Ann Example', CASE WHEN id % 3 = 0 THEN 'Springfield' END,
    printf('%.120c', 'x'), id / 100.0, '2026-01-02 03:04:05.000000', id * 7 FROM n""",
    "postgresql": """
SELECT id, 'user' || id || '@example.com', 'Ann Example', CASE WHEN MOD(id, 3) = 0 THEN 'Springfield' END,
    repeat('x', 120), id / 100.0, TIMESTAMP '2026-01-02 03:04:05', id * 7 FROM generate_series({first}, {last}) AS id""",
    "mysql": """
SELECT seq, concat('user', seq, '@example.com'), 'Ann Example', CASE WHEN MOD(seq, 3) = 0 THEN 'Springfield' END,
    repeat('x', 120), seq / 100.0, TIMESTAMP '2026-01-02 03:04:05', seq * 7 FROM seq_{first}_to_{last}""",
}


def engine_of(url: str) -> str:
    backend = sa.make_url(url).get_backend_name()
    return {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(backend, "MariaDB")


def more_users(url: str, first: int, last: int) -> str:
    """INSERT by which the server itself makes users with these numbers."""
    return f"INSERT INTO users {_USERS_OF[sa.make_url(url).get_backend_name()].format(first=first, last=last).strip()}"


def fill(url: str, shape: str, rows: int) -> str:
    """Create all tables and so many rows of the shape; return the URL."""
    if shape != "two joins and a collection":
        return fill_users(url, rows)
    engine = _with_tables(url)
    with engine.begin() as connection:
        for model, made in _orders(range(1, rows + 1)).items():
            connection.execute(sa.insert(model), made)
    engine.dispose()
    return url


def fill_users(url: str, rows: int) -> str:
    engine = _with_tables(url)
    with engine.begin() as connection:
        connection.execute(sa.text(more_users(url, 1, rows)))
    engine.dispose()
    return url


def _with_tables(url: str) -> sa.Engine:
    address = sa.make_url(url)
    # Where a source's file is missing, its URL is refused.
    engine = sa.create_engine(address if address.get_backend_name() == "sqlite" else source_url(url))
    Base.metadata.create_all(engine)
    return engine


def _orders(numbers: range) -> dict[type[Base], list[dict[str, object]]]:
    at, codes = datetime(2026, 1, 2, 3, 4, 5), ("AT", "CH", "DE")
    return {
        Country: [{"code": code, "name": f"Country {code}"} for code in codes],
        Customer: [
            {"id": number, "name": f"Customer {number}", "country_code": codes[number % 3]}
            for number in numbers
        ],
        Order: [
            {"id": number, "customer_id": number, "placed_at": at, "note": NOTE[:40]} for number in numbers
        ],
        Line: [
            {"order_id": number, "n": n, "product": f"product {n}", "price": Decimal(number) / 100}
            for number in numbers
            for n in range(1, 4)
        ],
    }
