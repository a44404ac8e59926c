"""What a page's SELECTs cost, as the database says before they are run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import make_url

from migrator.mapping.model.facts import EntityPlan, TableFacts
from migrator.runtime.errors import Interrupted, SettingsError, SourceError
from migrator.runtime.retry import Retry
from migrator.source.engines.base import Mark
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.source.sql.server_facts import mark_of, verdict_of, wait_until_ready
from tests import pins
from tests.support_mysql import numbers, run_script
from tests.support_source import INTEGER, PURCHASE, TEXT, column, list_of, plan_of
from tests.support_source_databases import fill_mysql, fill_postgresql, make_sqlite
from tests.unit.runtime.test_retry import Clock

PARENT = TableFacts(
    "parent", "parent", (column("id", INTEGER, nullable=False), column("code", TEXT, nullable=False)), ("id",)
)
CHILD = TableFacts(
    "child", "Child Row", (column("id", INTEGER, nullable=False), column("parent_code", TEXT)), ("id",)
)
TABLES = """
CREATE TABLE parent (id INTEGER PRIMARY KEY, code VARCHAR(20) NOT NULL);
CREATE TABLE "Child Row" (id INTEGER PRIMARY KEY, parent_code VARCHAR(20));
CREATE TABLE few (id INTEGER PRIMARY KEY, parent_id INTEGER);
INSERT INTO few VALUES (1, 1), (2, 1), (3, 2);
"""
NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
ROWS = f"""
INSERT INTO parent {NUMBERS} SELECT i, 'c' || i FROM n;
INSERT INTO "Child Row" {NUMBERS} SELECT i, 'c' || i FROM n;
"""
MYSQL_ROWS = f"""
INSERT INTO parent SELECT seq, CONCAT('c', seq) FROM {numbers(3000)};
INSERT INTO "Child Row" SELECT seq, CONCAT('c', seq) FROM {numbers(3000)};
"""
BY_KEY = plan_of(PARENT)
BY_TEXT = plan_of(PARENT, key=(PARENT.columns[1],))
WITH_CHILDREN = plan_of(
    PARENT, collections=[list_of("rows", CHILD, (("parent_code", "code"),), ["id", "parent_code"])]
)
FEW = TableFacts("few", "few", (column("id", INTEGER, nullable=False), column("parent_id", INTEGER)), ("id",))
WITH_FEW = plan_of(PARENT, collections=[list_of("rows", FEW, (("parent_id", "id"),), ["id", "parent_id"])])


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> closing[SqlSource]:
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "p.db")) as database:
            database.executescript(TABLES + ROWS)
        return closing(SqlSource(source_url(f"sqlite:///{tmp_path / 'p.db'}")))
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_database")
        with psycopg.connect(url, autocommit=True) as server:
            server.execute((TABLES + ROWS + 'ANALYZE parent; ANALYZE "Child Row"').encode())
    else:
        url = request.getfixturevalue("mysql_database")
        run_script(url, TABLES + MYSQL_ROWS + 'ANALYZE TABLE parent; ANALYZE TABLE "Child Row"')
    return closing(SqlSource(source_url(url)))


def whole_tables(source: SqlSource, plan: EntityPlan, page_rows: int = 100) -> list[tuple[str, list[str]]]:
    found = source.explain(plan, page_rows)
    assert all(one.lines for one in found)
    return [(one.what, list(one.whole_tables)) for one in found]


def test_a_page_by_the_primary_key_reads_no_whole_table(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_KEY) == [("rows", [])]


def test_a_page_without_an_index_reads_the_whole_table(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_TEXT) == [("rows", ["parent"])]


def test_children_without_an_index_are_read_as_a_whole(source: closing[SqlSource]) -> None:
    with source as opened:
        rows, children = whole_tables(opened, WITH_CHILDREN)
    assert rows == ("rows", [])
    assert children == ("list rows", ["Child Row"])


def test_table_with_at_most_a_page_of_rows_may_be_read_whole(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, WITH_FEW) == [("rows", []), ("list rows", [])]
        assert whole_tables(opened, WITH_FEW, 2)[1] in [("list rows", ["few"]), ("list rows", [])]


def test_the_only_page_may_read_all(source: closing[SqlSource]) -> None:
    with source as opened:
        assert whole_tables(opened, BY_TEXT, 5000) == [("rows", [])]


POSTGRESQL = make_url("postgresql://").get_dialect()()
MYSQL = mysql.dialect()
MARK = Mark("7710", "2026-01-01 00:00:00", "shop", "1/20")


class Server:
    """Answers every statement with one row, and remembers the parameters."""

    def __init__(self, *row: Any) -> None:
        self.row = row
        self.params: Mapping[str, Any] = {}

    def __call__(self, sql: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
        self.params = params
        return self.row


# ── PostgreSQL ──


@pytest.mark.parametrize(
    ("ahead_bytes", "verdict"), [(0, "ready"), (16, "ready"), (-1, "behind")], ids=["at", "past", "before"]
)
def test_a_standby_is_ready_when_it_has_replayed_the_mark(ahead_bytes: int, verdict: str) -> None:
    standby = Server("7710", "2026-02-02 00:00:00", "shop", True, ahead_bytes)
    assert verdict_of(POSTGRESQL, MARK, standby) == verdict
    assert standby.params == {"position": "1/20"}


def test_the_primary_itself_is_ready() -> None:
    assert verdict_of(POSTGRESQL, MARK, Server("7710", "2026-01-01 00:00:00", "shop", False, None)) == "ready"


@pytest.mark.parametrize(
    "row",
    [
        ("99", "2026-01-01 00:00:00", "shop", True, 0),
        ("99", "2026-02-02 00:00:00", "shop", False, None),
        ("7710", "2026-02-02 00:00:00", "shop", False, None),
        ("7710", "2026-02-02 00:00:00", "test", True, 0),
        ("7710", "2026-02-02 00:00:00", "shop", True, None),
    ],
    ids=["another cluster", "another primary", "promoted", "another database", "silent"],
)
def test_server_that_is_not_our_replica_is_refused(row: tuple[Any, ...]) -> None:
    with pytest.raises(SourceError) as caught:
        verdict_of(POSTGRESQL, MARK, Server(*row))
    assert pins.said(str(caught.value), "words")
    assert pins.said(str(caught.value), "url")


# ── MySQL ──

GTIDS = Mark("", "uuid-1", "shop", "uuid-1:1-77")


@pytest.mark.parametrize(
    ("row", "verdict"), [(("uuid-2", "shop", 1, 1), "ready"), (("uuid-2", "shop", 0, 1), "behind")]
)
def test_a_replica_is_ready_when_it_has_the_primarys_gtids(row: tuple[Any, ...], verdict: str) -> None:
    assert verdict_of(MYSQL, GTIDS, Server(*row)) == verdict


def test_without_gtids_only_the_server_itself_will_do() -> None:
    bare = Mark("", "uuid-1", "shop", "")
    assert mark_of(MYSQL, Server("", "uuid-1", "shop", None)) == bare
    assert verdict_of(MYSQL, bare, Server("uuid-1", "shop", 1, 0)) == "ready"
    with pins.refused(SourceError, "log"):
        verdict_of(MYSQL, bare, Server("uuid-2", "shop", 1, 1))
    with pins.refused(SourceError, "database"):
        verdict_of(MYSQL, GTIDS, Server("uuid-2", "test", 1, 1))


def test_server_that_accepts_writes_is_not_a_replica() -> None:
    for replayed in (0, 1):
        with pins.refused(SourceError):
            verdict_of(MYSQL, GTIDS, Server("uuid-2", "shop", replayed, 0))
    assert verdict_of(MYSQL, GTIDS, Server("uuid-1", "shop", 1, 0)) == "ready", "the primary itself"


def test_real_server_reports_whether_it_accepts_writes(mysql_database: str) -> None:
    """Another server's mark makes this one a replica that takes writes."""
    with closing(SqlSource(source_url(mysql_database))) as source:
        dialect = source.engine.dialect

        def ask(sql: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
            return source.query(
                re.sub(r"MASTER_GTID_WAIT\(:position, 0\) = 0|GTID_SUBSET\(:position, .*?\)", "1", sql), {}
            )[0]

        assert source.query("SELECT 1", {}) == [(1,)]
        mark = mark_of(dialect, ask)
        assert verdict_of(dialect, mark, ask) == "ready"
        with pins.refused(SourceError):
            verdict_of(dialect, Mark("", "another", mark.database, "0-1-1"), ask)


# ── waiting ──


def test_a_replica_that_is_behind_is_waited_for() -> None:
    clock = Clock()
    retry = Retry(sleep=clock.sleep, clock=clock.time)
    wait_until_ready(lambda: "ready" if clock.now > 10 else "behind", retry, 60)
    assert 10 < clock.now < 12


def test_a_replica_that_stays_behind_is_reported() -> None:
    clock = Clock()
    with pins.refused(SourceError):
        wait_until_ready(lambda: "behind", Retry(sleep=clock.sleep, clock=clock.time), 60)
    assert 59 < clock.now < 62


def test_replica_wait_ends_if_the_run_is_stopped() -> None:
    clock = Clock()
    retry = Retry(stop=lambda: clock.now > 3, sleep=clock.sleep, clock=clock.time)
    with pytest.raises(Interrupted):
        wait_until_ready(lambda: "behind", retry, 60)


# ── the real servers, as their own replica ──


@pytest.mark.parametrize("engine", ["postgres", "mysql"])
def test_the_server_itself_serves_as_read_url(engine: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{engine}_database")
    (fill_postgresql if engine == "postgres" else fill_mysql)(url)
    with closing(SqlSource(source_url(url), replica=source_url(url))) as source:
        for _ in range(2):
            assert len(source.read_page(plan_of(PURCHASE), None, None)) == 5
        assert len(source.read_rows(plan_of(PURCHASE), ["[10]"])) == 1


@pytest.mark.parametrize(("engine", "other"), [("postgres", "template1"), ("mysql", "mysql")])
def test_another_database_of_the_server_is_refused(
    engine: str, other: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{engine}_database")
    elsewhere = make_url(url).set(database=other).render_as_string(hide_password=False)
    source = SqlSource(source_url(url), replica=source_url(elsewhere))
    with closing(source), pins.refused(SourceError):
        source.read_page(plan_of(PURCHASE), None, None)


def test_file_and_another_kind_of_server_are_not_replicas(tmp_path: Any) -> None:
    file = source_url(make_sqlite(tmp_path / "shop.db"))
    server = source_url("postgresql://me@h/shop")
    for primary, replica in [(file, file), (server, file), (server, source_url("mysql://me@h/shop"))]:
        with pins.refused(SettingsError):
            SqlSource(primary, replica=replica)
