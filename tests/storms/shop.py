"""The shop of the storms: four tables, a mapping that uses what is hard, and the items' keys worked out by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql

from tests import support_mysql

TABLES = (
    "CREATE TABLE customer (id INTEGER PRIMARY KEY, email VARCHAR(80) UNIQUE, name VARCHAR(80) NOT NULL)",
    "CREATE TABLE product (id INTEGER PRIMARY KEY, name VARCHAR(80) NOT NULL)",
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, status VARCHAR(10) NOT NULL,"
    " total INTEGER NOT NULL, FOREIGN KEY (customer_id) REFERENCES customer (id) ON DELETE CASCADE)",
    "CREATE TABLE line (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL, quantity INTEGER NOT NULL,"
    " PRIMARY KEY (order_id, product_id), FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE,"
    " FOREIGN KEY (product_id) REFERENCES product (id))",
)

MAPPING = """\
mapping: 1
table:
  name: Storm
  key: [PK, SK]
  type: type
  ttl: expiresAt
  indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}
entities:
  customer:
    collect: {orders: {count: all, of: orders, by: customer_id}}
    items:
      Customer: {key: ["C#{id}", META], GSI1: [NAMES, "{name}"], keep: [name], attributes: {orders: orders}}
      CustomerByEmail:                               # a unique value that moves from row to row
        key: ["EMAIL#{email}", META]
        when: email
        attributes: {customerId: id, name: name}
  product:
    items: {Product: {key: ["P#{id}", META], keep: all}}
  order:
    table: orders
    join: {customer: customer_id}
    collect: {lines: {of: line, by: order_id, join: {product: product_id}, order_by: [product_id], at_most: 100}}
    items:
      Order:
        key: ["C#{customer_id}", "O#{id:09}"]
        GSI1: ["S#{status}", "{id:09}"]
        keep: [status, total]
        attributes:
          customerName: customer.name
          lines: {each: lines, attributes: {product: product.name, quantity: quantity}}
      OpenOrder: {key: ["OPEN#{id}", META], when: {status: [open, paid]}, attributes: {customerId: customer_id}}
  line:
    join: {order: order_id, product: product_id}
    items:
      Line:                                          # a key made of two rows
        key: ["C#{order.customer_id}", "O#{order_id:09}#{product_id:06}"]
        GSI1: ["P#{product_id}", "{order_id:09}"]
        keep: [quantity]
        attributes: {productName: product.name}
access_patterns:                                     # both items of a customer, and of an order, are written together
  customer: {params: {id: integer}, get: {key: ["C#{id}", META]}, returns: [name], atomic: true, sql: SELECT 1}
  by_email: {params: {e: text}, get: {key: ["EMAIL#{e}", META]}, returns: [name], atomic: true, sql: SELECT 1}
  order:
    params: {customer: integer, id: integer}
    get: {key: ["C#{customer}", "O#{id:09}"]}
    returns: [status]
    atomic: true
    sql: SELECT 1
  open_order:
    params: {id: integer}
    get: {key: ["OPEN#{id}", META]}
    returns: [customerId]
    atomic: true
    sql: SELECT 1
"""
OPEN = ("open", "paid")
ERRORS = (psycopg.Error, pymysql.Error, sqlite3.Error)


class Service:
    """A connection of the service's, by the plain driver; nothing is committed by itself."""

    def __init__(self, url: str) -> None:
        self.engine = url.partition(":")[0]
        self.connection = _CONNECT[self.engine](url)

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("%s", "?") if self.engine == "sqlite" else statement, values)
        return list(cursor.fetchall()) if cursor.description else []

    def many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        written = statement.replace("%s", "?") if self.engine == "sqlite" else statement
        self.connection.cursor().executemany(written, rows)


@contextmanager
def service(url: str) -> Iterator[Service]:
    made = Service(url)
    with closing(made.connection):
        yield made


def open_shop(url: str, customers: int, more: Sequence[str] = ()) -> None:
    """Tables with so many customers, twice as many orders and four times as many lines. `more`: statements after theirs."""
    with service(url) as shop:
        for statement in (*TABLES, *more):
            shop.run(statement)
        shop.many("INSERT INTO product VALUES (%s, %s)", [(n, f"thing {n}") for n in range(1, 101)])
        shop.many(
            "INSERT INTO customer VALUES (%s, %s, %s)",
            [(n, f"{n}@shop", f"customer {n}") for n in range(1, customers + 1)],
        )
        orders = [(n, (n + 1) // 2, ("open", "paid", "sent")[n % 3], n) for n in range(1, 2 * customers + 1)]
        shop.many("INSERT INTO orders VALUES (%s, %s, %s, %s)", orders)
        lines = [(n, p % 100 + 1, 1) for n, *_ in orders for p in (n, n + 7)]
        shop.many("INSERT INTO line VALUES (%s, %s, %s)", lines)
        shop.connection.commit()


def items_by_hand(url: str) -> dict[tuple[str, str], dict[str, object]]:
    """All items by key, without our attributes: the database's own joins and counts, none of the product's code."""
    items: dict[tuple[str, str], dict[str, object]] = {}
    with service(url) as shop:
        for number, email, name, orders in shop.run(_CUSTOMERS):
            at = {"GSI1PK": "NAMES", "GSI1SK": name}
            items[f"C#{number}", "META"] = {"type": "Customer", "name": name, "orders": orders, **at}
            if email is not None:
                attributes = {"type": "CustomerByEmail", "customerId": number, "name": name}
                items[f"EMAIL#{email}", "META"] = attributes
        for number, name in shop.run("SELECT id, name FROM product"):
            items[f"P#{number}", "META"] = {"type": "Product", "id": number, "name": name}
        orders = {number: order for number, *order in shop.run(_ORDERS)}
        lines: dict[int, list[dict[str, object]]] = {number: [] for number in orders}
        for number, product, name, quantity in shop.run(_LINES):
            lines[number].append({"product": name, "quantity": quantity})
            attributes = {"type": "Line", "quantity": quantity, "productName": name}
            at = {"GSI1PK": f"P#{product}", "GSI1SK": f"{number:09}"}
            items[f"C#{orders[number][0]}", f"O#{number:09}#{product:06}"] = {**attributes, **at}
        for number, (customer, status, total, name) in orders.items():
            attributes = {"type": "Order", "status": status, "total": total, "customerName": name}
            at = {"GSI1PK": f"S#{status}", "GSI1SK": f"{number:09}"}
            items[f"C#{customer}", f"O#{number:09}"] = {**attributes, **at, "lines": lines[number]}
            if status in OPEN:
                items[f"OPEN#{number}", "META"] = {"type": "OpenOrder", "customerId": customer}
    return {(pk, sk): {"PK": pk, "SK": sk, **item} for (pk, sk), item in items.items()}


_CUSTOMERS = (
    "SELECT c.id, c.email, c.name, COUNT(o.id) FROM customer c LEFT JOIN orders o ON o.customer_id = c.id"
    " GROUP BY c.id, c.email, c.name"
)
_ORDERS = "SELECT o.id, o.customer_id, o.status, o.total, c.name FROM orders o JOIN customer c ON c.id = o.customer_id"
_LINES = (
    "SELECT l.order_id, l.product_id, p.name, l.quantity FROM line l JOIN product p ON p.id = l.product_id"
    " ORDER BY l.order_id, l.product_id"
)


def mark_table(url: str) -> str:
    return "migrator.mark" if url.startswith("postgresql") else "migrator_mark"


def marks_left(url: str) -> int:
    with service(url) as shop:
        return int(shop.run(f"SELECT COUNT(*) FROM {mark_table(url)}")[0][0])


def marks_made(url: str) -> int:
    """The highest id of a mark: one more is left to see it, but where the log is read later."""
    if url.startswith("postgresql"):
        return marks_numbered(url)
    with service(url) as shop:
        shop.run("UPDATE product SET name = 'the last change' WHERE id = 1")
        found = shop.run(f"SELECT MAX(id) FROM {mark_table(url)}")
        shop.connection.commit()
        return int(found[0][0])


def marks_numbered(url: str) -> int:
    """About how many marks there ever were on a server, by the counter of their ids; nothing is left for it."""
    counted = {
        "postgresql": "SELECT pg_sequence_last_value(pg_get_serial_sequence('migrator.mark', 'id')::regclass)",
        "mysql": "SELECT AUTO_INCREMENT FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name = 'migrator_mark'",
    }
    with service(url) as shop:
        return int(shop.run(counted[shop.engine])[0][0] or 0)


def _postgresql(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, options="-c lock_timeout=10s")


def _mysql(url: str) -> Any:
    connection = support_mysql.connect(url)
    connection.autocommit(False)
    return connection


def _sqlite(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(Path(urlsplit(url).path), timeout=120)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


_CONNECT: dict[str, Any] = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite}
