"""Schemas of other shapes than the shop's, made by generators for any engine: a script, and the statements that are asked."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """`statements` of which `not_served` is by reason what a design cannot answer; `indexes` that the design takes."""

    script: str
    statements: str
    served: int
    not_served: tuple[str, ...] = ()
    indexes: int = 0


def northwind(rng: random.Random) -> Schema:
    """Trade: keys of text, keys of several columns, many to many, a tree of employees, parents that may be missing."""
    rows: dict[str, list[tuple[object, ...]]] = {
        "categories": [(n, f"C{n}") for n in range(1, 6)],
        "suppliers": [(n, f"S{n}", rng.choice(["DE", "FR", "JP"])) for n in range(1, 12)],
        "products": [
            (n, f"P{n}", rng.randint(1, 11), rng.choice([None, 1, 2, 3]), _price(rng), n % 2)
            for n in range(1, 60)
        ],
        "customers": [(f"CU{n:03}", f"Company {n}", rng.choice(["DE", "FR"])) for n in range(40)],
        "employees": [(n, f"E{n}", None if n == 1 else rng.randint(1, n - 1)) for n in range(1, 15)],
        "territories": [(f"{n:05}", f"T {n}") for n in range(20)],
        "employee_territories": [
            (n, f"{t:05}") for n in range(1, 15) for t in sorted(rng.sample(range(20), 3))
        ],
        "orders": [
            (
                n,
                rng.choice([None, f"CU{rng.randint(0, 39):03}"]),
                rng.randint(1, 14),
                _moment(rng),
                rng.choice([None, _moment(rng)]),
            )
            for n in range(1, 300)
        ],
        "order_details": [
            (o, p, _price(rng), rng.randint(1, 50))
            for o in range(1, 300)
            for p in sorted(rng.sample(range(1, 60), 1 + o % 3))
        ],
    }
    return Schema(
        _NORTHWIND + _inserts(rows), _ASKED_OF_NORTHWIND, 19, ("aggregate", "limit", "search", "shape"), 4
    )


_NORTHWIND = """
CREATE TABLE categories (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(15) NOT NULL);
CREATE TABLE suppliers (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, country VARCHAR(15) NOT NULL);
CREATE TABLE products (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, supplier_id INTEGER NOT NULL,
  category_id INTEGER, price NUMERIC(10, 2) NOT NULL, discontinued INTEGER NOT NULL,
  FOREIGN KEY (supplier_id) REFERENCES suppliers (id), FOREIGN KEY (category_id) REFERENCES categories (id));
CREATE TABLE customers (id VARCHAR(5) NOT NULL PRIMARY KEY, company VARCHAR(40) NOT NULL, country VARCHAR(15) NOT NULL);
CREATE TABLE employees (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20) NOT NULL, reports_to INTEGER,
  FOREIGN KEY (reports_to) REFERENCES employees (id));
CREATE TABLE territories (id VARCHAR(20) NOT NULL PRIMARY KEY, name VARCHAR(50) NOT NULL);
CREATE TABLE employee_territories (employee_id INTEGER NOT NULL, territory_id VARCHAR(20) NOT NULL,
  PRIMARY KEY (employee_id, territory_id), FOREIGN KEY (employee_id) REFERENCES employees (id),
  FOREIGN KEY (territory_id) REFERENCES territories (id));
CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, customer_id VARCHAR(5), employee_id INTEGER NOT NULL,
  ordered_at TIMESTAMP NOT NULL, shipped_at TIMESTAMP NULL, FOREIGN KEY (customer_id) REFERENCES customers (id),
  FOREIGN KEY (employee_id) REFERENCES employees (id));
CREATE TABLE order_details (order_id INTEGER NOT NULL, product_id INTEGER NOT NULL, price NUMERIC(10, 2) NOT NULL,
  quantity INTEGER NOT NULL, PRIMARY KEY (order_id, product_id), FOREIGN KEY (order_id) REFERENCES orders (id),
  FOREIGN KEY (product_id) REFERENCES products (id));
"""
_ASKED_OF_NORTHWIND = """
-- 40/s
SELECT id, company, country FROM customers WHERE id = ?;
-- 30/s
SELECT id, ordered_at, shipped_at FROM orders WHERE customer_id = ? ORDER BY ordered_at DESC, id DESC LIMIT 10;
-- 25/s
SELECT d.product_id, p.name, d.price, d.quantity FROM order_details d JOIN products p ON p.id = d.product_id
  WHERE d.order_id = ? ORDER BY d.product_id;
-- 20/s
SELECT o.id, c.company, e.name FROM orders o LEFT JOIN customers c ON c.id = o.customer_id
  JOIN employees e ON e.id = o.employee_id WHERE o.id = ?;
SELECT id, name, price FROM products WHERE category_id = ? ORDER BY price, id;
SELECT id, name FROM products WHERE supplier_id = ?;
SELECT p.id, p.name, s.name FROM products p JOIN suppliers s ON s.id = p.supplier_id WHERE p.id = ?;
SELECT id, name FROM products WHERE id IN (?, ?, ?);
SELECT id FROM products WHERE discontinued = ? AND category_id = ?;
SELECT id, name FROM categories ORDER BY id;
SELECT id, name FROM employees WHERE reports_to = ?;
SELECT id, name FROM employees WHERE reports_to IS NULL;
SELECT t.id, t.name FROM employee_territories et JOIN territories t ON t.id = et.territory_id WHERE et.employee_id = ?;
SELECT employee_id FROM employee_territories WHERE territory_id = ?;
SELECT id FROM orders WHERE employee_id = ? AND ordered_at >= ? AND ordered_at < ? ORDER BY ordered_at, id;
SELECT id, ordered_at FROM orders WHERE shipped_at IS NULL ORDER BY ordered_at, id;
SELECT order_id, quantity FROM order_details WHERE product_id = ?;
SELECT COUNT(*) FROM orders WHERE customer_id = ?;
SELECT SUM(quantity) FROM order_details WHERE order_id = ?;
SELECT id, name FROM products WHERE name LIKE ?;
SELECT SUM(d.price * d.quantity) FROM order_details d JOIN orders o ON o.id = d.order_id WHERE o.customer_id = ?;
SELECT id FROM products WHERE id IN (SELECT product_id FROM order_details WHERE quantity > ?);
SELECT id, company FROM customers ORDER BY company LIMIT 5;
"""


def strange(_: random.Random) -> Schema:
    """Names that SQL reserves, that are not ASCII, and that hold blanks; no foreign key anywhere; a table without a key."""
    script = """
CREATE TABLE "order" ("select" INTEGER NOT NULL PRIMARY KEY, "größe" VARCHAR(9) NOT NULL, "to be" INTEGER NOT NULL);
CREATE TABLE "表" ("鍵" INTEGER NOT NULL PRIMARY KEY, "値" VARCHAR(9) NOT NULL, "order" INTEGER NOT NULL);
CREATE TABLE "no key" (a INTEGER, "group" VARCHAR(9));
INSERT INTO "order" VALUES (1, 'klein', 5), (2, 'groß', 6), (3, 'groß', 7);
INSERT INTO "表" VALUES (1, '一', 1), (2, '二', 1);
INSERT INTO "no key" VALUES (1, 'x'), (1, 'x');
"""
    statements = """
SELECT "select", "größe" FROM "order" WHERE "select" = ?;
SELECT "select" FROM "order" WHERE "größe" = ? ORDER BY "to be", "select";
SELECT "値" FROM "表" WHERE "鍵" = ?;
SELECT "鍵" FROM "表" WHERE "order" = ?;
SELECT a FROM "no key" WHERE "group" = ?;
"""
    return Schema(script, statements, 4, ("key",), 1)


def wide(tables: int) -> Schema:
    """So many tables, each the child of the one before, each asked for its children with their parent."""
    script = "".join(
        f"CREATE TABLE t{n} (id INTEGER NOT NULL PRIMARY KEY, p INTEGER {f'REFERENCES t{n - 1} (id)' if n else ''},"
        f" name VARCHAR(20), made_at TIMESTAMP NOT NULL);\n"
        for n in range(tables)
    )
    script += "".join(
        f"INSERT INTO t{n} VALUES (1, NULL, 'a', '2026-01-01 00:00:00'), (2, {1 if n else 'NULL'}, 'b', '2026-01-02 00:00:00');\n"
        for n in range(tables)
    )
    statements = "".join(
        f"SELECT x.id, y.name FROM t{n} x JOIN t{n - 1} y ON y.id = x.p WHERE x.p = ? ORDER BY x.made_at, x.id;\n"
        for n in range(1, tables)
    )
    return Schema(script, statements, tables - 1, (), 1)


SCHEMAS: dict[str, Callable[[random.Random], Schema]] = {"northwind": northwind, "strange": strange}


def _price(rng: random.Random) -> str:
    return f"{rng.randint(100, 9999) / 100:.2f}"


def _moment(rng: random.Random) -> str:
    return f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(4, 23):02}:{rng.randint(0, 59):02}:00"


def _inserts(rows: dict[str, list[tuple[object, ...]]]) -> str:
    return "".join(
        f"INSERT INTO {table} VALUES {', '.join(map(_row, values))};\n" for table, values in rows.items()
    )


def _row(values: tuple[object, ...]) -> str:
    return f"({', '.join(_literals(values))})"


def _literals(values: tuple[object, ...]) -> Iterator[str]:
    for value in values:
        yield "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
