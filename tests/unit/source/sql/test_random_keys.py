from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.table import decode_key
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.random_keys import between
from tests.support_source import INTEGER, column, plan_of

NOTE = TableFacts("note", "note", (column("id", INTEGER, nullable=False),), ("id",))
PAIR = TableFacts(
    "pair", "pair", (column("a", INTEGER, nullable=False), column("b", INTEGER, nullable=False)), ("a", "b")
)


def chosen(url: str, table: TableFacts, number: int, rows: int, seed: int = 7) -> list[Any]:
    with closing(SqlSource(source_url(url))) as source:
        return [decode_key(key) for key in source.random_keys(plan_of(table), number, rows, seed)]


def notes(path: Path, ids: range | list[int]) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO note VALUES (?)", [(one,) for one in ids])
    return f"sqlite:///{path}"


def test_rows_on_both_sides_of_a_wide_gap_are_as_likely(tmp_path: Path) -> None:
    url = notes(tmp_path / "n.db", [*range(1, 1001), *range(10**15, 10**15 + 1000)])
    found = [key for seed in range(10) for (key,) in chosen(url, NOTE, 20, 2000, seed)]
    assert len(found) == 200
    below = sum(key < 10**15 for key in found)
    assert 60 <= below <= 140
    assert Counter(found).most_common(1)[0][1] <= 4


def test_single_numbers_are_chosen(tmp_path: Path) -> None:
    found = chosen(notes(tmp_path / "n.db", [n * n * n for n in range(300)]), NOTE, 20, 300)
    assert len(found) == 20


def test_another_seed_chooses_other_rows(tmp_path: Path) -> None:
    url = notes(tmp_path / "n.db", range(10_000))
    assert chosen(url, NOTE, 10, 10_000, 1) == chosen(url, NOTE, 10, 10_000, 1)
    assert chosen(url, NOTE, 10, 10_000, 1) != chosen(url, NOTE, 10, 10_000, 2)


def test_of_a_table_without_rows_there_are_none(tmp_path: Path) -> None:
    assert chosen(notes(tmp_path / "n.db", []), NOTE, 10, 1000) == []


def test_of_a_small_table_every_row_may_be_chosen(tmp_path: Path) -> None:
    url = notes(tmp_path / "n.db", range(5))
    assert {key for seed in range(9) for (key,) in chosen(url, NOTE, 3, 5, seed)} == set(range(5))


def test_a_key_of_two_columns_is_drawn_column_by_column(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "n.db")) as connection, connection:
        connection.execute("CREATE TABLE pair (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID")
        rows = [(a, b) for a in range(50) for b in range(a, a + 20)]
        connection.executemany("INSERT INTO pair VALUES (?, ?)", rows)
    found = chosen(f"sqlite:///{tmp_path / 'n.db'}", PAIR, 30, 1000)
    assert len(found) == 30
    assert set(found) <= set(rows)
    assert len({a for a, _ in found}) > 15
    assert len({b - a for a, b in found}) > 8


def test_rows_of_a_table_and_of_a_view_are_chosen_on_postgresql(
    new_postgres_database: Callable[[], str],
) -> None:
    url = new_postgres_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE note (id integer PRIMARY KEY)")
        connection.execute("INSERT INTO note SELECT generate_series(1, 20000)")
        connection.execute("CREATE VIEW seen AS SELECT * FROM note WHERE id > 100")
    assert len(set(chosen(url, NOTE, 10, 20_000))) == 10
    seen = chosen(url, TableFacts("seen", "seen", NOTE.columns, ("id",)), 10, 20_000)
    assert len(seen) == 10
    assert min(seen)[0] > 100


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-(2**63), 2**63),
        (0.5, 2.5),
        (Decimal("-1.50"), Decimal("1e30")),
        (datetime(2024, 1, 1), datetime(2024, 1, 2)),
        (date(2024, 1, 1), date(2026, 1, 2)),
        (UUID(int=0), UUID(int=2**128 - 1)),
        (b"", b"\xff"),
        ("user-0001", "user-9999"),
        ("2024-01-01", "2026-12-31"),
        ("00f1aa", "ff0000"),
        ("Ada", "zoe"),
    ],
)
def test_values_are_drawn_between_two(low: Any, high: Any) -> None:
    drawn = [between(low, high, random.Random(seed)) for seed in range(200)]
    assert all(type(one) is type(low) for one in drawn)
    assert len(set(drawn)) > 20 or isinstance(low, bytes)
    if not isinstance(low, str):
        assert all(low <= one <= high for one in drawn)


@pytest.mark.parametrize(("low", "high"), [(time(1), time(2)), (True, False), (1, "a"), ("", ""), ("a", "a")])
def test_of_what_has_nothing_between_the_first_is_given(low: Any, high: Any) -> None:
    assert between(low, high, random.Random(1)) == low


def test_text_is_drawn_in_the_alphabet_that_both_are_written_in() -> None:
    drawn = [between("user-0001", "user-3999", random.Random(seed)) for seed in range(100)]
    assert all(one.startswith("user-") and one[5:].isdigit() and one[5] <= "3" for one in drawn)
    dates = [between("2024-01-01", "2026-12-31", random.Random(seed)) for seed in range(100)]
    assert all(one[4] == one[7] == "-" for one in dates)
