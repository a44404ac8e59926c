"""Warnings of patterns with SQL that filters, orders or cuts rows in a way that their key does not."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator.commands.mapping_source import check_on_source
from migrator.settings.transforms import read_mapping

MAPPING = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {ByTotal: {key: [G1, {name: sum, type: number}]},
  ByState: {key: [G2, G3]}}}
entities:
  order:
    table: orders
    columns: {moment: {sql: "CAST(at AS CHAR(19))", type: text}}
    items:
      Order:
        key: ["USER#{user_id}", "{at|iso:s}#{id}"]
        ByTotal: ["USER#{user_id}#{moment}", "{total}"]
        ByState: ["STATE#{user_id}", "{state|lower}#{id:06}"]
        keep: [total, state]
        when: sent_at
access_patterns:
  p:
    params: {u: integer, x: optional %s}
    query: %s
    returns: [total]
    order: %s
    sql: %s
"""
OWN = '{key: ["USER#{u}"]}'


MINE = "SELECT total, state AS s FROM orders WHERE user_id = :u"
LATEST = '{key: ["USER#{u}"], descending: true}'
FIRST = '{key: ["USER#{u}"], limit: 5}'
STATES = '{index: ByState, key: ["STATE#{u}"]}'


def warnings(folder: Path, query: str, sql: str, order: str = "exact") -> list[str]:
    sql = sql if sql.startswith(("WITH", "SELECT")) else f"SELECT total FROM orders WHERE user_id = :u {sql}"
    file, database = folder / "m.yaml", folder / "s.db"
    if not database.exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(
                "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, user_id INTEGER NOT NULL, at TIMESTAMP NOT NULL,"
                " total NUMERIC(9, 2) NOT NULL, state VARCHAR(9) NOT NULL, paid BOOLEAN NOT NULL, sent_at TIMESTAMP,"
                " number INTEGER UNIQUE)"
            )
            connection.execute("CREATE TABLE users (id INTEGER NOT NULL PRIMARY KEY, state VARCHAR(9))")
    file.write_text(
        MAPPING % ("integer" if "limit: x" in query else "text", query, order, json.dumps(sql)),
        encoding="utf-8",
    )
    faults, _ = check_on_source(f"sqlite:///{database}", read_mapping(file))
    return [fault.what for fault in faults if "its SQL" in fault.what or "its query" in fault.what]


@pytest.mark.parametrize(
    ("query", "sql", "said"),
    [
        (OWN, "AND state = :x", ["filters by state"]),
        (OWN, "AND total > :x", ["filters by total"]),
        (OWN, "AND total > :x ORDER BY state", ["filters by total", "orders by state"]),
        (OWN, "ORDER BY total DESC", ["orders by total"]),
        (OWN, "ORDER BY at, total", ["orders by total"]),
        ('{index: ByTotal, key: ["USER#{u}#{x}"]}', "AND state = :x", ["filters by state"]),
        ('{index: ByTotal, key: ["USER#{u}#{x}"]}', "ORDER BY at", []),
        ('{index: ByTotal, key: ["USER#{u}#{x}"]}', "ORDER BY total, id", []),
        (LATEST, "AND sent_at IS NOT NULL AND at > :x ORDER BY at DESC", []),
        ('{key: ["USER#{u}"], filter: {state: "{x}"}}', "AND state = :x ORDER BY at", []),
        (OWN, "AND id = :x ORDER BY id, at", []),
        # Any place of a condition.
        (OWN, "AND lower(state) = :x", ["filters by state"]),
        (OWN, "AND (state = :x OR id = 5)", ["filters by state"]),
        (OWN, "AND NOT paid", ["filters by paid"]),
        (OWN, "AND paid", ["filters by paid"]),
        (OWN, "AND state LIKE :x", ["filters by state"]),
        (OWN, "AND CASE WHEN paid THEN 1 ELSE 0 END = 1", ["filters by paid"]),
        (OWN, "AND COALESCE(state, :x) = :x", ["filters by state"]),
        (OWN, "AND id IN (SELECT id FROM orders WHERE paid)", ["filters by paid"]),
        (OWN, "AND EXISTS (SELECT 1 FROM users WHERE users.id = user_id AND users.state = :x)", []),
        (OWN, "GROUP BY total HAVING count(*) > 1", ["filters groups by COUNT(*) > 1"]),
        (OWN, "GROUP BY total HAVING max(state) > :x", ["filters by state"]),
        (OWN, f"WITH w AS ({MINE} AND paid) SELECT total FROM w", ["filters by paid"]),
        (OWN, f"WITH w AS ({MINE}) SELECT total FROM w WHERE s = :x", ["filters by state"]),
        (OWN, f"SELECT total FROM ({MINE}) w WHERE w.s = :x", ["filters by state"]),
        (OWN, f"{MINE} UNION ALL {MINE} AND paid", ["filters by paid"]),
        (
            OWN,
            "SELECT o.total FROM orders o JOIN users u ON u.id = o.user_id AND o.paid WHERE u.id = :u",
            ["filters by paid"],
        ),
        (
            OWN,
            "SELECT o.total FROM users u LEFT JOIN orders o ON u.id = o.user_id AND o.paid WHERE u.id = :u",
            [],
        ),
        (OWN, "SELECT total, paid AND state = 'a' FROM orders WHERE user_id = :u", []),
        (STATES, "AND lower(state) = :x", []),
        # Any form of an order.
        (OWN, "ORDER BY lower(state)", ["orders by LOWER(state)"]),
        (STATES, "ORDER BY lower(state), id", []),
        (STATES, "ORDER BY upper(state)", ["orders by UPPER(state)"]),
        (OWN, "ORDER BY -id", ["orders by -id"]),
        (OWN, "ORDER BY CASE WHEN paid THEN 0 ELSE 1 END, at", ["orders by CASE"]),
        (OWN, "ORDER BY random()", ["orders by RAND"]),
        (OWN, "ORDER BY at DESC", ["orders by at descending"]),
        (LATEST, "ORDER BY at", ["orders by at ascending"]),
        (LATEST, "ORDER BY at DESC, id", ["orders by id ascending"]),
        (OWN, "ORDER BY date(at)", []),
        (OWN, "ORDER BY 1", ["orders by 1"]),
        (
            OWN,
            "SELECT total, at AS moment FROM orders WHERE user_id = :u ORDER BY moment DESC",
            ["orders by moment desc"],
        ),
        (OWN, f"WITH w AS ({MINE}) SELECT total FROM w ORDER BY w.s", ["orders by w.s"]),
        (OWN, "ORDER BY (SELECT state FROM users WHERE users.id = user_id)", []),
        # One row has any order.
        (OWN, "AND id = :x ORDER BY state DESC, total", []),
        (OWN, "AND number = :x ORDER BY state", ["filters by number"]),
        (OWN, "AND (id = :x OR number = :x) ORDER BY state", ["filters by number", "orders by state"]),
        (
            OWN,
            "SELECT o.total FROM orders o JOIN orders p ON p.user_id = o.user_id WHERE p.id = :x AND o.user_id = :u"
            " ORDER BY o.state",
            ["orders by o.state"],
        ),
        # Rows that are cut off.
        (OWN, "ORDER BY at LIMIT 5", ["returns at most 5 rows"]),
        (OWN, "ORDER BY at LIMIT :x", ["returns at most :x rows"]),
        (OWN, "ORDER BY at LIMIT 5 OFFSET 10", ["skips rows", "returns at most 5 rows"]),
        (FIRST, "ORDER BY at LIMIT 5", []),
        (FIRST, "ORDER BY at LIMIT 5 OFFSET 0", []),
        (FIRST, "ORDER BY at", ["returns at most 5 items, but its SQL all rows"]),
        (FIRST, "ORDER BY at LIMIT 6", ["returns at most 5 items, but its SQL 6 rows"]),
        (FIRST, "ORDER BY at LIMIT :x", ["returns at most 5 items, but its SQL :x rows"]),
        (OWN, "AND id = (SELECT id FROM orders WHERE user_id = :u LIMIT 1)", []),
        ('{key: ["USER#{u}"], limit: x}', "ORDER BY at LIMIT :x", []),
    ],
)
def test_what_the_key_does_not_say_is_named(tmp_path: Path, query: str, sql: str, said: list[str]) -> None:
    found = warnings(tmp_path, query, sql)
    assert len(found) == len(said), found
    assert all(f" {words}" in what for what, words in zip(found, said, strict=True))


def test_order_that_is_not_compared_causes_no_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path, OWN, "ORDER BY total")
    assert not warnings(tmp_path, OWN, "ORDER BY total", "any")


TTL = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: ends}
entities:
  order: {table: orders, join: {plan: plan_id}, items: {Order: {key: ["O#{id}", M], ttl: %s}}}
"""


@pytest.mark.parametrize(
    ("ttl", "rows", "is_said"),
    [
        ("until", "(1, 0), (2, 5)", True),
        ("until", "(1, 5)", False),
        ("{from: until, zero: never}", "(1, 0)", False),
        ("{from: until, unit: milliseconds}", "(1, 0)", True),
        ("{from: until, zero: expired}", "(1, 0)", False),
        ("plan.ends", "(1, 5)", True),
        ("{from: plan.ends, zero: never}", "(1, 5)", False),
    ],
)
def test_ttl_of_zero_is_named_if_the_mapping_does_not_set_it(
    tmp_path: Path, ttl: str, rows: str, is_said: bool
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.executescript(
            "CREATE TABLE plans (id INTEGER NOT NULL PRIMARY KEY, ends BIGINT); INSERT INTO plans VALUES (1, 0);"
            "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, until BIGINT, plan_id INTEGER REFERENCES plans (id));"
            f"INSERT INTO orders (id, until) VALUES {rows}"
        )
    (tmp_path / "m.yaml").write_text(TTL % ttl, encoding="utf-8")
    faults, _ = check_on_source(f"sqlite:///{tmp_path / 's.db'}", read_mapping(tmp_path / "m.yaml"))
    assert ["zero: never" in fault.what for fault in faults if ".ttl" in fault.where] == (
        [True] if is_said else []
    )


PADDED = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities:
  order: {table: orders, join: {plan: plan_id}, items: {Order: {key: ["O#{id:03}", M], attributes: {x: "%s"}}}}
"""


@pytest.mark.parametrize(
    ("value", "rows", "said"),
    [
        ("{until:03}", "(1, 999), (2, 0)", []),
        ("{until:03}", "(1, 1000)", ["attributes.x"]),
        ("{until:03}", "(1, -1)", ["attributes.x"]),
        ("{until:06.2f}", "(1, 1000)", ["attributes.x"]),
        ("{until:07.2f}", "(1, 1000)", []),
        ("{plan.ends:01}", "(1, 1)", ["attributes.x"]),
        ("id", "(1000, 1)", ["key.0"]),
        ("{price:06.2f}", "(1, 999.99), (2, NULL)", []),
        ("{price:06.2f}", "(1, 1000)", ["attributes.x"]),
        ("{price:06.2f}", "(1, -0.01)", ["attributes.x"]),
        ("{weight:04.1f}", "(1, 99.9)", []),
        ("{weight:04.1f}", "(1, 100.5)", ["attributes.x"]),
    ],
)
def test_a_number_that_its_format_cannot_hold_is_named(
    tmp_path: Path, value: str, rows: str, said: list[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.executescript(
            "CREATE TABLE plans (id INTEGER NOT NULL PRIMARY KEY, ends BIGINT); INSERT INTO plans VALUES (1, 10);"
            "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, until BIGINT, price NUMERIC(9, 2), weight FLOAT,"
            " plan_id INTEGER REFERENCES plans (id));"
            f"INSERT INTO orders (id, {re.findall('price|weight|$', value)[0] or 'until'}) VALUES {rows}"
        )
    (tmp_path / "m.yaml").write_text(PADDED % value, encoding="utf-8")
    faults, _ = check_on_source(f"sqlite:///{tmp_path / 's.db'}", read_mapping(tmp_path / "m.yaml"))
    named = [fault.where.split(".items.Order.")[1] for fault in faults if "in some row" in fault.what]
    assert named == said


VISITS = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {ByPage: {key: [G1, G2]}}}
entities:
  visit:
    items:
      Visit: {key: ["VISIT#{id}", META], ByPage: ["PAGE#{page}", "%s"], keep: all}
access_patterns:
  latest:
    params: {page: text}
    query: {index: ByPage, key: ["PAGE#{page}"]}
    returns: [id]
    order: any
    sql: SELECT id FROM visit WHERE page = :page %s
"""


@pytest.mark.parametrize(
    ("key", "condition", "rows", "warned"),
    [
        ("{at|iso}#{id}", "", "(1, 'a', NULL)", ["at"]),
        ("{at|iso}#{id}", "", "(1, 'a', '2026-01-01')", []),
        ("{at|iso}#{id}", "AND at IS NOT NULL", "(1, 'a', NULL)", []),
        ("{at|iso}#{id}", "AND at > '2026-01-01'", "(1, 'a', NULL)", []),
        ("{at|iso|or:1970-01-01}#{id}", "", "(1, 'a', NULL)", []),
        ("{id}", "", "(1, NULL, NULL)", []),  # asked by equality, which no NULL meets
    ],
)
def test_null_rows_missing_from_an_index_cause_a_warning(
    key: str, condition: str, rows: str, warned: list[str], tmp_path: Path
) -> None:
    file, database = tmp_path / "m.yaml", tmp_path / "s.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            f"CREATE TABLE visit (id INTEGER PRIMARY KEY, page TEXT, at DATE); INSERT INTO visit VALUES {rows};"
        )
    file.write_text(VISITS % (key, condition), encoding="utf-8")
    faults, _ = check_on_source(f"sqlite:///{database}", read_mapping(file))
    named = [fault.what.split("'")[1] for fault in faults if "with NULL" in fault.what]
    assert named == warned
