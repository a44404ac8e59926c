"""Cost on MariaDB of a parent with many children, and of taking marks during an open snapshot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from migrator.source.capture.marks import SqlMarks
from tests.integration.conftest import mariadb, postgresql
from tests.integration.test_long_snapshot import leave, shop, snapshot, worked
from tests.support_capture import Capturing, captured

__all__ = ["mariadb", "postgresql", "shop"]

CHILDREN = int(os.environ.get("MIGRATOR_TEST_CHILDREN", 100_000))
ROUNDS = 4


def took_s(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def test_a_parent_with_many_children(request: pytest.FixtureRequest) -> None:
    made: Capturing = request.getfixturevalue("mariadb")
    made.run(
        "CREATE TABLE parent (id integer PRIMARY KEY)",
        "CREATE TABLE child (id integer PRIMARY KEY, parent integer, note varchar(50) DEFAULT 'x',"
        " FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1), (2)",
    )

    def deleted() -> float:
        made.run(
            "INSERT IGNORE INTO parent VALUES (1)",
            f"INSERT INTO child (id, parent) SELECT seq, 1 FROM seq_1_to_{CHILDREN}",
        )
        if made.capture.installation() is not None:
            made.run("DELETE FROM migrator_mark")
        return took_s(lambda: made.run("DELETE FROM parent WHERE id = 1"))

    without = deleted()
    made.install(captured(made.table("child"), ["id", "parent"]))
    with_marks = deleted()
    print(
        f"\n{CHILDREN:,} children: {without:.1f} s without capture, {with_marks:.1f} s with a mark for each"
    )


def test_a_hundred_marks_beside_an_open_snapshot(shop: Capturing) -> None:
    marks = SqlMarks(shop.writing)

    def hundred() -> float:
        leave(shop, 100)
        spent = time.monotonic()
        found = marks.take(100, 60)
        spent = time.monotonic() - spent
        marks.finish([mark.id for mark in found])
        return spent * 1000

    before = min(hundred() for _ in range(5))
    with snapshot(shop):
        for _ in range(ROUNDS):
            worked(shop, marks)
        marks.from_the_first()
        whole, hinted = hundred(), min(hundred() for _ in range(5))
    print(f"\n{shop.engine}: 100 marks taken in {before:.1f} ms; after {ROUNDS * 30_000:,} worked ones"
          f" {hinted:.1f} ms, {whole:.1f} ms from the first one on")  # fmt: skip
