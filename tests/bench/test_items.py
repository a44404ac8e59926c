"""CPU of a backfill's process for each item, against a naive script, into a sink that answers at once.

The naive script is what a team writes first: SQLAlchemy's ORM, a dict for each row, boto3's batch_writer. Ways are measured in
turn in one run, and the figures are medians of their ratios; only this process's CPU counts, so a busy machine does little harm.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
import sqlalchemy as sa
from botocore.config import Config
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
)

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.model.journal import RunIdentity
from migrator.source.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.backfill.stage import Backfill, BackfillOptions
from migrator.stages.backfill.write import Claims
from migrator.target.client import dynamodb_client
from migrator.target.exchange import REFERENCE
from migrator.target.store import DynamoStore
from tests.fakes.progress import Silent
from tests.support_fence import no_fence, written_alone
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.bench

ROWS = int(os.environ.get("MIGRATOR_TEST_ROWS", 20_000))
ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 3))
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
    """Rows of one form. `naive`: the rows that the naive script asks the ORM for, and what it makes of each."""

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


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        made = f"sqlite:///{tmp_path}/bench.db"
    else:
        name = "postgres_database" if request.param == "postgresql" else "mysql_database"
        made = str(request.getfixturevalue(name))
    engine = sa.create_engine(made if request.param == "sqlite" else source_url(made))
    Base.metadata.create_all(engine)
    numbers = range(1, ROWS + 1)
    with engine.begin() as connection:
        for model, rows in _rows(numbers).items():
            connection.execute(sa.insert(model), rows)
    engine.dispose()
    return made


def _rows(numbers: range) -> dict[type[Base], list[dict[str, object]]]:
    at = datetime(2026, 1, 2, 3, 4, 5)
    return {
        User: [
            {
                **{"id": number, "email": f"user{number}@example.com", "name": "Ann Example", "note": NOTE},
                **{"city": None if number % 3 else "Springfield", "total": Decimal(number) / 100},
                **{"created_at": at, "visits": number * 7},
            }
            for number in numbers
        ],
        Country: [{"code": code, "name": f"Country {code}"} for code in ("AT", "CH", "DE")],
        Customer: [
            {"id": number, "name": f"Customer {number}", "country_code": ("AT", "CH", "DE")[number % 3]}
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


def naively(shape: Shape, url: str, endpoint: str) -> None:
    engine = sa.create_engine(source_url(url))
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    config = Config(region_name="us-east-1")
    table = boto3.resource("dynamodb", endpoint_url=endpoint, config=config, **keys).Table("Bench")
    with Session(engine) as session, table.batch_writer() as batch:
        # By pages: PyMySQL drops what is left of a streamed result when the ORM asks for the children of its first rows.
        model, last, count = shape.rows.column_descriptions[0]["entity"], 0, 0
        page = shape.rows.order_by(model.id).limit(1000)
        while rows := session.scalars(page.where(model.id > last)).all():
            for row in rows:
                batch.put_item(Item=shape.naive(row))
            last, count = rows[-1].id, count + len(rows)
    assert count == ROWS
    engine.dispose()


def by_backfill(shape: Shape, url: str, endpoint: str) -> int:
    """How many items were written."""
    source, journal = SqlSource(source_url(url)), SqlJournal.in_memory()
    checked = check_mapping(parse_mapping(shape.mapping, "m.yaml"), source.facts())
    design = checked.mapping.table
    store = DynamoStore(dynamodb_client(region=None, profile=None, endpoint=endpoint), design, no_fence)
    entities = {entity.name: entity for entity in checked.entities}
    claims = Claims(journal, source, entities, checked.unproved, "bench", memory=None)
    stage = Backfill(
        source,
        journal,
        written_alone(store, claims),
        Silent(),
        BackfillOptions(workers=1, page_rows=2000),
    )
    run = journal.start_run(RunIdentity("backfill", "bench", design.name, checked.mapping.revision))
    items = stage.run(run, checked.entities).total.items
    source.close()
    journal.close()
    return items


def cpu_us(work: Callable[[Shape, str, str], object], shape: Shape, url: str, endpoint: str) -> float:
    """CPU of this process, microseconds an item."""
    before = time.process_time()
    assert work(shape, url, endpoint) in (None, ROWS)
    return (time.process_time() - before) / ROWS * 1e6


@pytest.mark.parametrize("name", SHAPES)
def test_cpu_of_an_item(url: str, name: str, sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES[name]
    figures: dict[str, list[float]] = {"naive": [], REFERENCE: [], "generated": []}
    for _ in range(ROUNDS):
        figures["naive"].append(cpu_us(naively, shape, url, sink))
        for lane in (REFERENCE, "generated"):
            monkeypatch.setenv("MIGRATOR_LANE", lane)
            figures[lane].append(cpu_us(by_backfill, shape, url, sink))
    naive = figures["naive"]
    for way, found in figures.items():
        ratio = statistics.median(one / other for one, other in zip(naive, found, strict=True))
        print(
            f"\n{sa.make_url(url).get_backend_name()}, {name}, {way}: {statistics.median(found):.1f} µs of CPU an item,"
            f" {ratio:.1f} times less than naive",
            end="",
        )
    print()
