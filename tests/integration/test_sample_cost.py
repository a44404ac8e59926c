"""What a sample of a large table costs: statements, and rows that the database looks at for them."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import check_mapping
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.journal import RunIdentity
from migrator.mapping.model.results import SampleSize
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.random_keys import ROWS_A_KEY
from migrator.stages.verify.stage import plan_sample
from tests import support_mysql
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.slow

ENGINES = ["sqlite", "postgresql", "mariadb"]
FEW, MANY = 2_000, 16_000
WANTED, PLACES = 100, 10

MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {note: {items: {Note: {key: ["N#%s", META]}}}}
"""
KEYS: dict[str, tuple[str, str, Callable[[int], tuple[Any, ...]]]] = {
    "integer": ("id INTEGER NOT NULL", "id", lambda n: (n,)),
    "gaps": ("id BIGINT NOT NULL", "id", lambda n: (n + (10**12 if n % 2 else 0),)),
    "uuid": ("id CHAR(36) NOT NULL", "id", lambda n: (str(uuid.uuid5(uuid.NAMESPACE_OID, str(n))),)),
    "composite": ("a INTEGER NOT NULL, b INTEGER NOT NULL", "a, b", lambda n: (n // 5, n % 5)),
}
"""By name: columns of the key, their names, and the key of the nth row."""

CHANGED = "SELECT pg_stat_get_mod_since_analyze('note'::regclass)"


@dataclass
class Work:
    """Statements sent, and rows (SQLite: steps of its machine) that the database went through for them."""

    statements: int = 0
    rows: int = 0


def fill(engine: str, url: str, kind: str, rows: range) -> None:
    """Nothing; the table exists with these rows more."""
    columns, names, key = KEYS[kind]
    made = [key(number) for number in rows]
    create = f"CREATE TABLE IF NOT EXISTS note ({columns}, body VARCHAR(200), PRIMARY KEY ({names}))"
    places = ", ".join(["?" if engine == "sqlite" else "%s"] * len(made[0]))
    insert = f"INSERT INTO note VALUES ({places}, '{'x' * 100}')"
    if engine == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as lite, lite:
            lite.execute(create)
            lite.executemany(insert, made)
    elif engine == "postgresql":
        with psycopg.connect(url) as server, server.cursor() as cursor:
            cursor.execute(create.encode())
            cursor.executemany(insert.encode(), made)
        with psycopg.connect(url, autocommit=True) as server:
            # A session counts its changes when it gets to it, at the latest at its end: after ANALYZE they would be new ones.
            while server.execute(CHANGED).fetchone() < (len(made),):  # type: ignore[operator]
                time.sleep(0.02)
            server.execute("ANALYZE note")
    else:
        with support_mysql.connect(url) as maria, maria.cursor() as one:
            one.execute(create)
            one.executemany(insert, made)
            maria.commit()
            one.execute("ANALYZE TABLE note")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if engine == "sqlite":
        return f"sqlite:///{tmp_path / 'notes.db'}"
    made = "new_postgres_database" if engine == "postgresql" else "new_mysql_database"
    return str(request.getfixturevalue(made)())


@contextmanager
def measured(source: SqlSource) -> Iterator[Work]:
    """The work of all that the source is asked meanwhile, as the database itself counts it."""
    work, engine = Work(), source.engine

    def before(connection: sa.Connection, *event: Any) -> None:
        work.statements += 1
        work.rows -= _gone_through(connection, work)

    def after(connection: sa.Connection, *event: Any) -> None:
        work.rows += _gone_through(connection, work)

    sa.event.listen(engine, "before_cursor_execute", before)
    sa.event.listen(engine, "after_cursor_execute", after)
    try:
        yield work
    finally:
        sa.event.remove(engine, "before_cursor_execute", before)
        sa.event.remove(engine, "after_cursor_execute", after)


def _gone_through(connection: sa.Connection, work: Work) -> int:
    driver = connection.connection.driver_connection
    assert driver is not None
    if connection.dialect.name == "sqlite":
        steps = _Steps.of(driver)
        return steps.taken
    with driver.cursor() as cursor:
        asked = ROWS[connection.dialect.name]
        if getattr(connection.dialect, "is_mariadb", False):
            asked = asked.replace("performance_schema", "information_schema")
        cursor.execute(asked)
        return int(cursor.fetchone()[0] or 0)


class _Steps:
    """How many hundred steps SQLite's machine has taken on a connection."""

    known: dict[int, _Steps] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.taken = 0

    def count(self) -> int:
        self.taken += 1
        return 0

    @classmethod
    def of(cls, driver: sqlite3.Connection) -> _Steps:
        if id(driver) not in cls.known:
            cls.known[id(driver)] = cls()
            driver.set_progress_handler(cls.known[id(driver)].count, 100)
        return cls.known[id(driver)]


ROWS = {
    "postgresql": "SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0))"
    " FROM pg_catalog.pg_stat_xact_all_tables WHERE relname = 'note'",
    "mysql": "SELECT SUM(VARIABLE_VALUE) FROM performance_schema.session_status"
    " WHERE VARIABLE_NAME LIKE 'Handler_read%' AND VARIABLE_NAME NOT LIKE '%rnd%'",
}


def plan_in(source: SqlSource, kind: str) -> EntityPlan:
    names = KEYS[kind][1].split(", ")
    text = MAPPING % "#".join(f"{{{name}}}" if kind != "uuid" else f"{{{name}|escape}}" for name in names)
    return check_mapping(parse_mapping(text, "m.yaml"), source.facts()).entities[0].plan


def sampled(url: str, kind: str, sample: SampleSize) -> tuple[Work, list[Any]]:
    """What it takes to choose a sample's pages and to read them; the rows."""
    with closing(SqlSource(source_url(url))) as source, closing(SqlJournal.in_memory()) as journal:
        plan = plan_in(source, kind)
        run = journal.start_run(RunIdentity("verify", "shop", "T", "1", ""))
        with measured(source) as work:
            expected = source.rows_expected(plan)
            plan_sample(
                *(source, journal, run, plan), sample=sample, page_rows=500, rows=expected, total=expected
            )
            pages = journal.claim_pages(run, "note", "a", 100_000, 60)
            rows = [row for page in pages for row in source.read_page(plan, page.after, page.upto)]
        return work, rows


@pytest.mark.parametrize("kind", KEYS)
def test_a_sample_of_a_larger_table_costs_no_more(engine: str, url: str, kind: str) -> None:
    fill(engine, url, kind, range(FEW))
    few, _ = sampled(url, kind, SampleSize(7, rows=WANTED))
    fill(engine, url, kind, range(FEW, MANY))
    many, rows = sampled(url, kind, SampleSize(7, rows=WANTED))
    assert WANTED * 0.7 <= len(rows) <= WANTED * 1.3
    assert len({tuple(row) for row in rows}) == len(rows)
    assert many.statements < 3 * WANTED
    assert many.statements < 2 * few.statements
    # SQLite alone counts its rows: it has no estimate of them.
    counted = MANY // 10 if engine == "sqlite" else 0
    # A sample of blocks reads rows for each of its places; a scan would go through all of them.
    assert many.rows - counted < 2 * max(few.rows, PLACES * ROWS_A_KEY) < MANY / 2
