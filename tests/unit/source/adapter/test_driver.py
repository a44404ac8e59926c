from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from migrator.source.adapter.driver import Driver, key_of


def opened(**words: Any) -> Iterator[Driver]:
    connection = sqlite3.connect(":memory:", **words)
    yield Driver(connection, "sqlite", "qmark")
    connection.close()


def autocommits(*before: str, **words: Any) -> bool:
    connection = sqlite3.connect(":memory:", **words)
    try:
        for statement in before:
            connection.execute(statement)
        return Driver(connection, "sqlite", "qmark").autocommits
    finally:
        connection.close()


def test_sqlite_commits_each_statement_outside_a_transaction() -> None:
    assert not autocommits()
    assert not autocommits("SELECT 1")
    assert autocommits(isolation_level=None)
    assert not autocommits("BEGIN", isolation_level=None)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 knows no autocommit before Python 3.12")
def test_the_newer_way_to_say_it_counts() -> None:
    assert autocommits(autocommit=True)
    assert not autocommits(autocommit=False)
    assert not autocommits("BEGIN", autocommit=True)


def test_sqlites_lock_is_taken_once() -> None:
    for driver in opened():
        driver.hold()
        driver.hold()
        assert driver.connection.in_transaction


def test_statement_adds_values_in_the_drivers_own_style() -> None:
    found = {}
    for style in ("pyformat", "qmark", "numeric_dollar"):
        sql = Driver(None, "postgresql", style).sql("SELECT '100%' WHERE a IN (").listed([1, 2]).text(")")
        found[style] = ("".join(sql.parts), sql.values)
    assert found == {
        "pyformat": ("SELECT '100%%' WHERE a IN (%s, %s)", [1, 2]),
        "qmark": ("SELECT '100%' WHERE a IN (?, ?)", [1, 2]),
        "numeric_dollar": ("SELECT '100%' WHERE a IN ($1, $2)", [1, 2]),
    }


def test_rows_are_tuples_with_any_row_factory_of_the_service() -> None:
    for driver in opened():
        for factory in (None, sqlite3.Row, lambda cursor, row: {"a": row[0], "b": row[1]}):
            driver.connection.row_factory = factory
            assert driver.rows(driver.sql("SELECT 1 AS a, 2 AS b")) == [(1, 2)]


def test_key_of_any_type_can_be_looked_up() -> None:
    key = key_of([[1, ["x"]], bytearray(b"y"), None])
    assert {key: 1}[key_of([[1, ["x"]], b"y", None])] == 1
    assert isinstance(key[0], list)
