"""How CPU per item and peak memory of a backfill grow with a table: each size in a separate process, into a sink.

MIGRATOR_TEST_SIZES=100000,10000000 sets other sizes. The naive script takes up to NAIVE_AT_MOST rows: its
cost per item is the same at any size.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.measure import Tables, alone
from bench.shapes import engine_of, fill_users

SIZES = [int(size) for size in os.environ.get("MIGRATOR_TEST_SIZES", "10000,100000,1000000").split(",")]
NAIVE_AT_MOST = 100_000


def filled(file: Path, rows: int) -> str:
    """URL of a SQLite database of so many users."""
    return fill_users(f"sqlite:///{file}", rows)


@pytest.mark.parametrize("rows", SIZES)
def test_a_table_that_grows(rows: int, empty: str, sink: str, tables: Tables) -> None:
    fill_users(empty, rows)
    ours = alone("backfill", "plain rows", empty, sink)
    assert ours.items == rows
    naive = alone("naive", "plain rows", empty, sink) if rows <= NAIVE_AT_MOST else None
    tables.add(
        "How a backfill grows, plain rows",
        database=engine_of(empty),
        rows=f"{rows:,}",
        CPU_an_item_in_µs=f"{ours.cpu_us:.1f}",
        naive=f"{naive.cpu_us:.1f}" if naive else "–",
        items_a_second=f"{1e6 / ours.us:,.0f}",
        MB_at_most=f"{ours.peak_mb:.0f}",
    )
