"""Beside a snapshot that stays open (a dump, a report), taking marks costs no more for all those that were worked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from migrator.source.capture.marks import Begin, SqlMarks
from tests.integration.conftest import mariadb as mariadb
from tests.integration.conftest import postgresql as postgresql
from tests.support_capture import Capturing, captured, connect
from tests.support_mysql import numbers

pytestmark = pytest.mark.slow

WORKED = 30_000
_MARK = {"postgresql": "migrator.mark", "mariadb": "migrator_mark"}
_MANY = {
    "postgresql": "INSERT INTO {} (table_name) SELECT 't' FROM generate_series(1, {count})",
    "mariadb": "INSERT INTO {} (table_name, changed_at) SELECT 't', 0 FROM {numbers}",
}


class Clock:
    """Goes on by `step_s` with every look at it."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.fixture
def marks(shop: Capturing, monkeypatch: pytest.MonkeyPatch) -> SqlMarks:
    """Once it has begun at the first mark, it does so again only when it is told to."""
    monkeypatch.setattr(Begin, "pause", 1e9)
    return SqlMarks(shop.writing, clock=Clock(0.01))


@pytest.fixture(params=["postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Capturing:
    made: Capturing = request.getfixturevalue(request.param)
    made.run("CREATE TABLE t (id integer PRIMARY KEY)")
    made.install(captured(made.table("t"), ["id"]))
    return made


@contextmanager
def snapshot(shop: Capturing) -> Iterator[None]:
    with closing(connect(shop.engine, shop.url)) as connection:
        cursor = connection.cursor()
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ"
                       if shop.engine == "postgresql" else "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")  # fmt: skip
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT COUNT(*) FROM {_MARK[shop.engine]}")
        yield


def leave(shop: Capturing, count: int) -> None:
    shop.run(_MANY[shop.engine].format(_MARK[shop.engine], count=count, numbers=numbers(count)))


def taken(shop: Capturing, marks: SqlMarks, count: int = 100) -> tuple[int, int]:
    """How many marks a take gives, and how many pages its reading touches when it is done once more."""
    said: list[tuple[str, Any]] = []

    def hear(_: Any, __: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if "SKIP LOCKED" in statement:
            said.append((statement, parameters))

    sa.event.listen(marks.writing.engine, "before_cursor_execute", hear)
    found = marks.take(count, 60)
    sa.event.remove(marks.writing.engine, "before_cursor_execute", hear)
    marks.release([mark.id for mark in found])
    pages = 0
    with marks.writing.engine.connect() as connection:
        for statement, parameters in said:
            pages += _pages(shop, connection, statement, parameters)
    marks.finish([mark.id for mark in found])
    return len(found), pages


def _pages(shop: Capturing, connection: sa.Connection, statement: str, parameters: Any) -> int:
    """What the server itself counts while it does the reading."""
    explain, count = {
        "postgresql": ("EXPLAIN (ANALYZE, BUFFERS)", r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?"),
        "mariadb": ("ANALYZE FORMAT=JSON", r'"pages_accessed": (\d+)()'),
    }[shop.engine]
    lines = connection.exec_driver_sql(f"{explain} {statement}", parameters).scalars().all()
    # The first line of a plan counts what is below it, too.
    found = re.search(count, "\n".join(lines))
    return sum(int(one or 0) for one in found.groups()) if found else 0


def worked(shop: Capturing, marks: SqlMarks) -> None:
    """Many marks came, were taken and deleted, as by a relay."""
    leave(shop, WORKED)
    while found := marks.take(WORKED // 2, 60):
        marks.finish([mark.id for mark in found])


# MariaDB's ANALYZE FORMAT=JSON counts the rows read.
@pytest.mark.mariadb
def test_take_reads_no_more_for_marks_finished_under_a_snapshot(shop: Capturing, marks: SqlMarks) -> None:
    leave(shop, 100)
    assert taken(shop, marks)[0] == 100
    fresh = taken(shop, marks)[1]
    with snapshot(shop):
        worked(shop, marks)
        counts = []
        for _ in range(3):
            leave(shop, 100)
            counts.append(taken(shop, marks))
        assert [found for found, _ in counts] == [100] * 3
        most = max(pages for _, pages in counts)
        marks.from_the_first()
        leave(shop, 100)
        whole = taken(shop, marks)[1]
    # Behind the hint stand some thousand worked ones (Begin.behind), however many there were.
    assert most < whole / 5, (fresh, counts, whole)


def test_mark_committed_late_is_taken_after_others_are_finished(shop: Capturing, marks: SqlMarks) -> None:
    with closing(connect(shop.engine, shop.url)) as late:
        cursor = late.cursor()
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (1)")
        worked(shop, marks)
        cursor.execute("COMMIT")
    assert marks.take(100, 60) == []
    marks.from_the_first()
    (found,) = marks.take(100, 60)
    assert found.after == {"id": 1}
    marks.release([found.id])
    assert marks.take(100, 60) == [found]


def test_takes_from_the_first_mark_are_rare_and_always_recur() -> None:
    clock = Clock()
    begin = Begin(clock)
    assert begin.next() == 0
    begin.took(0, 0.1, [5000])
    assert begin.next() == 4000
    clock.now_s = 1.9
    assert begin.next() == 4000
    clock.now_s = 2.1
    assert begin.next() == 0
    assert begin.next() == 4000, "another thread goes on meanwhile"
    begin.took(0, 0.2, [])
    clock.now_s = 6.0
    assert begin.next() == 4000
    begin.given_back([1200])
    assert begin.next() == 200
    clock.now_s = 6.2
    assert begin.next() == 0
    # However long one took: until the next, what was given back or committed late is not found.
    begin.took(0, 180.0, [9000])
    clock.now_s = 16.1
    assert begin.next() == 8000
    clock.now_s = 16.3
    assert begin.next() == 0
    begin.restart()
    assert begin.next() == 0, "one that failed is done again at once"
