"""How CPU an item and peak memory of a backfill grow with a table: each size in a process of its own, into a sink."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.bench.test_items import PLAIN, Base, by_backfill

pytestmark = pytest.mark.bench

SIZES = [int(size) for size in os.environ.get("MIGRATOR_TEST_SIZES", "10000,100000,1000000").split(",")]
ROWS = """
INSERT INTO users
WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ?)
SELECT id, 'user' || id || '@example.com', 'Ann Example', CASE WHEN id % 3 = 0 THEN 'Springfield' END,
    printf('%.120c', 'x'), id / 100.0, '2026-01-02 03:04:05.000000', id * 7 FROM n
"""


def filled(file: Path, rows: int) -> str:
    """The URL of a database of so many users."""
    url = f"sqlite:///{file}"
    engine = sa.create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(ROWS, [rows])
    return url


def test_a_table_that_grows(sink: str, tmp_path: Path) -> None:
    for rows in SIZES:
        file = tmp_path / f"{rows}.db"
        url = filled(file, rows)
        command = [sys.executable, "-m", "tests.bench.test_growth", url, sink]
        told = subprocess.run(command, capture_output=True, check=True)
        found = json.loads(told.stdout)
        print(
            f"\n{rows:>12,} rows: {found['us']:.1f} µs of CPU an item, {found['mb']:.0f} MB at most", end=""
        )
        file.unlink()
    print()


def main(url: str, endpoint: str) -> None:
    """Prints microseconds of CPU an item, without the process's start, and the peak of memory in MB, with it."""
    began = time.process_time()
    rows = by_backfill(PLAIN, url, endpoint)
    took_s = time.process_time() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"us": took_s / rows * 1e6, "mb": peak_mb}))


if __name__ == "__main__":
    main(*sys.argv[1:])
