"""What a source sees, and lets others do, while another program writes to the same database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.support_source import LINE, LINES, PURCHASE, number_of, plan_of
from tests.support_source_databases import fill_postgresql, make_sqlite, postgresql_database


class Interloper:
    """Runs `change` once, right after a page's first SELECT of our source."""

    def __init__(self, change: Any) -> None:
        self.change = change
        self.ran = 0

    def __call__(self, *event: Any) -> None:
        if not self.ran and "LIMIT" not in event[2] and "AS root" in event[2]:
            self.ran += 1
            self.change()


def _delete_lines(url: str) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute('DELETE FROM "Purchase Line"')
            connection.commit()
        return
    with psycopg.connect(url) as server:
        server.execute('DELETE FROM "Purchase Line"')


@pytest.fixture(params=["sqlite", "postgresql"])
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that the test may change."""
    if request.param == "sqlite":
        yield make_sqlite(tmp_path / "own.db")
        return
    with postgresql_database(request.getfixturevalue("postgres_url")) as url:
        fill_postgresql(url)
        yield url


def test_the_selects_of_a_page_see_one_snapshot(own_url: str) -> None:
    source = SqlSource(source_url(own_url))
    plan = plan_of(PURCHASE, ["id"], collections=[number_of("count", LINE, LINES)])
    interloper = Interloper(lambda: _delete_lines(own_url))
    sa.event.listen(Engine, "after_cursor_execute", interloper)
    try:
        assert source.read_page(plan, None, None)[0][1] == 3
    finally:
        sa.event.remove(Engine, "after_cursor_execute", interloper)
    assert interloper.ran == 1
    assert source.read_page(plan, None, None)[0][1] == 0
    source.close()


def test_a_source_lets_others_write_while_it_is_open(own_url: str) -> None:
    source = SqlSource(source_url(own_url))
    plan = plan_of(LINE)
    next(source.page_bounds(plan, 1))
    _delete_lines(own_url)
    assert source.count(plan) == 0
    source.close()
