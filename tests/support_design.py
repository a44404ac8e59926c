"""Schemas and statements for proposals: their facts, read by SQLite, and what is proposed for them."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import sqlalchemy as sa

from migrator.features.init.written import Proposal, proposal_of, wanted_of
from migrator.mapping.check.check import check_mapping
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import SchemaFacts
from migrator.mapping.model.questions import StatementQuestion, Unserved
from migrator.runtime.errors import Fault, MappingError
from migrator.source.reader import SqlSource
from migrator.source.workload.reading import question_of
from migrator.source.workload.statements import statements_of
from migrator.stages.session.workload import Workload

SHOP = """
CREATE TABLE customers (id INTEGER NOT NULL PRIMARY KEY, email VARCHAR(80) NOT NULL UNIQUE, name TEXT NOT NULL,
  region_id INTEGER REFERENCES regions (id), active BOOLEAN NOT NULL);
CREATE TABLE regions (id INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id),
  status VARCHAR(10) NOT NULL, placed_at TIMESTAMP NOT NULL, shipped_at TIMESTAMP, total NUMERIC(10, 2) NOT NULL);
CREATE TABLE lines (order_id INTEGER NOT NULL REFERENCES orders (id), line_no INTEGER NOT NULL,
  product_id INTEGER NOT NULL REFERENCES products (id), quantity INTEGER NOT NULL, PRIMARY KEY (order_id, line_no));
CREATE TABLE products (id INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, price NUMERIC(10, 2) NOT NULL, photo BLOB);
CREATE TABLE staff (id INTEGER NOT NULL PRIMARY KEY, boss_id INTEGER REFERENCES staff (id), name TEXT NOT NULL);
CREATE TABLE notes (text TEXT);
INSERT INTO regions VALUES (1, 'EU'), (2, 'US');
INSERT INTO customers VALUES (7, 'ann@example.com', 'Ann', 1, 1), (8, 'bob@example.com', 'Bob', NULL, 0);
INSERT INTO orders VALUES (42, 7, 'open', '2026-06-10 14:32:00', NULL, 149.90),
  (43, 7, 'sent', '2026-07-01 09:00:00', '2026-07-02 09:00:00', 20.00), (44, 8, 'open', '2026-07-01 09:00:00', NULL, 5.00);
INSERT INTO products VALUES (1, 'Mug', 9.50, NULL), (5, 'Cap', 15.00, x'00ff');
INSERT INTO lines VALUES (42, 1, 1, 2), (42, 2, 5, 1), (43, 1, 5, 3);
INSERT INTO staff VALUES (1, NULL, 'Eve'), (2, 1, 'Fay'), (3, 1, 'Guy');
"""

TENANTS = """
CREATE TABLE tenants (tenant VARCHAR(20) NOT NULL PRIMARY KEY, plan VARCHAR(10) NOT NULL);
CREATE TABLE projects (tenant VARCHAR(20) NOT NULL REFERENCES tenants (tenant), project_no INTEGER NOT NULL,
  title TEXT NOT NULL, parent_no INTEGER, PRIMARY KEY (tenant, project_no),
  FOREIGN KEY (tenant, parent_no) REFERENCES projects (tenant, project_no));
CREATE TABLE tasks (id INTEGER NOT NULL PRIMARY KEY, tenant VARCHAR(20) NOT NULL, project_no INTEGER NOT NULL,
  state VARCHAR(10) NOT NULL, due DATE, FOREIGN KEY (tenant, project_no) REFERENCES projects (tenant, project_no));
"""
QUESTIONS = """
-- 9/s
SELECT * FROM customers WHERE id = ?;
SELECT id, name FROM customers WHERE lower(email) = lower(?);
SELECT id FROM customers WHERE email = ?;
SELECT c.id FROM customers c JOIN regions r ON r.id = c.region_id WHERE r.name = ?;
SELECT c.id, r.name FROM customers c JOIN regions r ON r.id = c.region_id WHERE c.name = ?;
SELECT id FROM customers WHERE active = TRUE;
SELECT id, total FROM orders WHERE customer_id = ? AND placed_at >= ? AND placed_at < ? ORDER BY placed_at DESC, id DESC;
SELECT id, total FROM orders WHERE customer_id = ? ORDER BY placed_at DESC, id DESC LIMIT ?;
SELECT id FROM orders WHERE status = ? AND shipped_at IS NULL;
SELECT id FROM orders WHERE status = ? AND shipped_at IS NOT NULL ORDER BY shipped_at, id;
SELECT id FROM orders WHERE status = ? AND total > ? ORDER BY total, id LIMIT 7;
SELECT id FROM orders WHERE status = ? AND total <= ? ORDER BY total DESC, id;
SELECT id FROM orders WHERE placed_at BETWEEN ? AND ?;
SELECT l.line_no, l.quantity, p.name, p.price FROM lines l JOIN products p ON p.id = l.product_id
  WHERE l.order_id = ? ORDER BY l.line_no;
SELECT order_id, line_no FROM lines WHERE product_id = ?;
SELECT quantity FROM lines WHERE order_id = ? AND line_no = ?;
SELECT id, name FROM staff WHERE boss_id = ? ORDER BY id;
SELECT id FROM staff WHERE boss_id IS NULL ORDER BY id;
SELECT s.id, b.name FROM staff s JOIN staff b ON b.id = s.boss_id WHERE s.id = ?;
SELECT id, price FROM products ORDER BY price DESC, id LIMIT 3;
SELECT id, name FROM products WHERE id IN (?, ?, ?);
SELECT p.id, SUM(l.quantity) AS sold FROM lines l JOIN products p ON p.id = l.product_id
  GROUP BY p.id ORDER BY sold DESC, p.id DESC LIMIT 10;
SELECT COUNT(*) FROM orders WHERE customer_id = ?;
SELECT SUM(total) FROM orders WHERE customer_id = ?;
SELECT MAX(placed_at) FROM orders WHERE customer_id = ?;
SELECT COUNT(*) FROM staff WHERE boss_id = ?;
"""
OF_TENANTS = """
SELECT * FROM projects WHERE tenant = ? ORDER BY project_no DESC LIMIT 5;
SELECT title FROM projects WHERE tenant = ? AND project_no = ?;
SELECT project_no FROM projects WHERE tenant = ? AND parent_no = ?;
SELECT t.id, p.title FROM tasks t JOIN projects p USING (tenant, project_no)
  WHERE t.tenant = ? AND t.project_no = ? ORDER BY t.id;
SELECT id FROM tasks WHERE tenant = ? AND state = ? AND due >= ? ORDER BY due, id;
SELECT id FROM tasks WHERE tenant = ? AND due < ?;
SELECT id FROM tasks WHERE tenant = ? AND id > ? ORDER BY id LIMIT 10;
SELECT COUNT(*) FROM tasks WHERE tenant = ? AND project_no = ?;
"""


def filled(file: Path, seed: int) -> None:
    """Makes an SQLite file with the shop and the tenants, and some thousand rows of it by chance."""
    rng = random.Random(seed)
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SHOP[: SHOP.index("INSERT")] + TENANTS)
        for table, values in (*_shop_rows(rng).items(), *_tenant_rows(rng).items()):
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
        connection.commit()


def _moment(rng: random.Random) -> str:
    return f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00"


def _shop_rows(rng: random.Random) -> dict[str, list[tuple[object, ...]]]:
    orders = range(1, 600)
    return {
        "regions": [(n, f"R{n}") for n in range(1, 6)],
        "customers": [
            (n, f"User{n}@Example.com", f"N{n % 9}", rng.choice([None, 1, 2, 3]), n % 2)
            for n in range(1, 120)
        ],
        "products": [(n, f"P{n % 7}", rng.randint(1, 30) * 1.5, None) for n in range(1, 40)],
        "orders": [
            (
                *(n, rng.randint(1, 119), rng.choice(["open", "x#y"]), _moment(rng)),
                *(rng.choice([None, _moment(rng)]), rng.randint(1, 9999) / 100),
            )
            for n in orders
        ],
        "lines": [(o, n, rng.randint(1, 39), rng.randint(1, 9)) for o in orders for n in range(1, 2 + o % 4)],
        "staff": [(n, None if n < 3 else rng.randint(1, n - 1), f"S{n}") for n in range(1, 60)],
    }


def _tenant_rows(rng: random.Random) -> dict[str, list[tuple[object, ...]]]:
    tenants = ("acme", "b#lt", "Cy b")
    return {
        "tenants": [(tenant, "plan") for tenant in tenants],
        "projects": [
            (tenant, n, f"T{n}", None if n < 4 else rng.randint(1, n - 1))
            for tenant in tenants
            for n in range(1, 20)
        ],
        "tasks": [
            (
                *(n, rng.choice(tenants), rng.randint(1, 19)),
                *(rng.choice(["todo", "done"]), rng.choice([None, _moment(rng)[:10]])),
            )
            for n in range(1, 500)
        ],
    }


@contextmanager
def source_with(folder: Path, script: str) -> Iterator[SqlSource]:
    """An SQLite source with this schema and these rows."""
    file = folder / "source.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
    source = SqlSource(sa.URL.create("sqlite", database=str(file)))
    try:
        yield source
    finally:
        source.close()


def read(sql: str, facts: SchemaFacts) -> list[StatementQuestion | Unserved]:
    """What each statement of the text asks."""
    return [question_of(statement, facts) for statement in statements_of(sql, facts.dialect)]


def proposed(
    source: SqlSource,
    sql: str | Sequence[StatementQuestion],
    *,
    max_indexes: int = 5,
    rows_exact: int = 1_000_000,
    strict: bool = False,
) -> Proposal:
    """What is proposed for the statements, checked as `migrator init` does it, but for the source's own word on the SQL."""
    facts = source.facts()
    made = read(sql, facts) if isinstance(sql, str) else list(sql)
    questions = [question for question in made if isinstance(question, StatementQuestion)]
    written = [one.statement for one in made if isinstance(one, Unserved) and one.reason == "write"]
    wanted = wanted_of(questions, facts, nulls=not strict)
    figures = Workload(source, facts).figures(wanted, rows_exact, written)

    def faults(text: str) -> Sequence[Fault]:
        return all_faults(text, facts)

    return proposal_of(questions, facts, figures, "Shop", max_indexes, faults)


def all_faults(text: str, facts: SchemaFacts) -> Sequence[Fault]:
    """Faults and warnings of a mapping against the schema."""
    try:
        return check_mapping(examine_mapping(text, "shop.yaml"), facts).warnings
    except MappingError as error:
        return error.faults
