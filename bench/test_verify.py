"""CPU per item of a verify, against a backfill of the same rows, over a table that answers at once.

Ways alternate in one run; figures are medians of their ratios. Only this process's CPU counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from bench.conftest import started
from bench.measure import InTurn, Tables, alone
from bench.shapes import ROWS, SHAPES, engine_of
from bench.ways import WAYS

TITLES = ("backfill", "verify")


@pytest.fixture
def table() -> Iterator[str]:
    with started([sys.executable, "-m", "bench.table_sink"]) as url:
        yield url


def test_cpu_of_an_item(url: str, name: str, table: str, tables: Tables) -> None:
    def taken(title: str) -> Callable[[], int]:
        def work() -> int:
            items = WAYS[title](SHAPES[name], url, table)
            assert items == ROWS
            return items

        return work

    found = InTurn.of({title: taken(title) for title in TITLES})
    tables.add(
        f"Verify, {ROWS:,} rows, µs of CPU an item",
        rows=f"{engine_of(url)}, {name}",
        backfill=f"{found.cpu_us('backfill'):.1f}",
        verify=f"{found.cpu_us('verify'):.1f}",
        verify_in_backfills=f"{found.ratio('verify', 'backfill'):.2f}",
        items_a_second=f"{found.a_second('verify'):,.0f}",
        MB_at_most=f"{alone('verify', name, url, table).peak_mb:.0f}",
    )
