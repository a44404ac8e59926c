"""What rows cost in counts that no machine changes: calls of functions, and requests, on both ways of an item."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.target.exchange import REFERENCE
from tests.bench.recorder import recording
from tests.bench.test_growth import filled
from tests.bench.test_items import PLAIN, by_backfill

ROWS = 2000
CALLS_A_ROW = 105
"""At most, those of C functions included: reading, encoding and sending it, and its share of the rest."""
FEWER = 6
"""How many times fewer they are than on the way of items_for()."""


def calls(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile, by this thread and those that it starts."""
    found: Counter[int] = Counter()

    def count(_: Any, event: str, __: Any) -> None:
        if event in ("call", "c_call"):
            found[threading.get_ident()] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found.total()


def test_rows_by_generated_functions(sink: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = filled(tmp_path / "few.db", ROWS), filled(tmp_path / "many.db", 2 * ROWS)
    by_way = {}
    for way in ("", REFERENCE):
        monkeypatch.setenv("MIGRATOR_LANE", way)
        # The difference: what a run costs whatever its rows are is in both.
        by_way[way] = (
            calls(lambda: by_backfill(PLAIN, many, sink)) - calls(lambda: by_backfill(PLAIN, few, sink))
        ) / ROWS
    print(f"\n{by_way['']:.1f} calls a row, {by_way[REFERENCE]:.1f} by items_for()")
    assert by_way[""] <= CALLS_A_ROW
    assert by_way[""] * FEWER <= by_way[REFERENCE]


def test_requests_of_rows(tmp_path: Path) -> None:
    with recording() as (url, requests):
        by_backfill(PLAIN, filled(tmp_path / "few.db", ROWS), url)
    assert len(requests) == ROWS / 25
