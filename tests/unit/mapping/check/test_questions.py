"""Warnings of patterns whose SQL filters or orders by a column of which the key says nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator.commands.mapping_source import check_on_source
from migrator.settings.transforms import read_mapping

MAPPING = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type, indexes: {ByTotal: {key: [G1, {name: sum, type: number}]}}}
entities:
  order:
    table: orders
    columns: {moment: {sql: "CAST(at AS CHAR(19))", type: text}}
    items:
      Order:
        key: ["USER#{user_id}", "{at|iso:s}#{id}"]
        ByTotal: ["USER#{user_id}#{moment}", "{total}"]
        keep: [total, state]
        when: sent_at
access_patterns:
  p:
    params: {u: integer, x: optional text}
    query: %s
    returns: [total]
    order: %s
    sql: SELECT total FROM orders WHERE user_id = :u %s
"""
OWN = '{key: ["USER#{u}"]}'


def warnings(folder: Path, query: str, sql: str, order: str = "exact") -> list[str]:
    file, database = folder / "m.yaml", folder / "s.db"
    if not database.exists():
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(
                "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, user_id INTEGER NOT NULL, at TIMESTAMP NOT NULL,"
                " total NUMERIC(9, 2) NOT NULL, state VARCHAR(9) NOT NULL, sent_at TIMESTAMP)"
            )
    file.write_text(MAPPING % (query, order, sql), encoding="utf-8")
    faults, _ = check_on_source(f"sqlite:///{database}", read_mapping(file))
    return [fault.what for fault in faults if "its SQL" in fault.what]


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
        (OWN, "AND sent_at IS NOT NULL AND at > :x ORDER BY at DESC, id", []),
        ('{key: ["USER#{u}"], filter: {state: "{x}"}}', "AND state = :x ORDER BY at", []),
        (OWN, "AND id = :x ORDER BY id, at", []),
        (OWN, "ORDER BY lower(state)", []),
    ],
)
def test_what_the_key_does_not_say_is_named(tmp_path: Path, query: str, sql: str, said: list[str]) -> None:
    found = warnings(tmp_path, query, sql)
    assert len(found) == len(said), found
    assert all(what.startswith(f"its SQL {words}") for what, words in zip(found, said, strict=True))


def test_an_order_that_is_not_compared_is_no_warning(tmp_path: Path) -> None:
    assert warnings(tmp_path, OWN, "ORDER BY total")
    assert not warnings(tmp_path, OWN, "ORDER BY total", "any")


TTL = """mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: ends}
entities:
  order: {table: orders, items: {Order: {key: ["O#{id}", M], ttl: %s}}}
"""


@pytest.mark.parametrize(
    ("ttl", "rows", "is_said"),
    [
        ("until", "(1, 0), (2, 5)", True),
        ("until", "(1, 5)", False),
        ("{from: until, zero: never}", "(1, 0)", False),
        ("{from: until, unit: milliseconds}", "(1, 0)", True),
        ("{from: until, zero: expired}", "(1, 0)", False),
    ],
)
def test_a_ttl_of_zero_of_which_the_mapping_says_nothing_is_named(
    tmp_path: Path, ttl: str, rows: str, is_said: bool
) -> None:
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.executescript(
            f"CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, until BIGINT); INSERT INTO orders VALUES {rows}"
        )
    (tmp_path / "m.yaml").write_text(TTL % ttl, encoding="utf-8")
    faults, _ = check_on_source(f"sqlite:///{tmp_path / 's.db'}", read_mapping(tmp_path / "m.yaml"))
    assert ["zero: never" in fault.what for fault in faults if ".ttl" in fault.where] == (
        [True] if is_said else []
    )
