"""What a server's administrator sees of us: names, limits, nothing written, no more connections than allowed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import SourceError
from migrator.runtime.retry import RateLimit
from migrator.settings.job import SourceSettings
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from migrator.stages.session.source import SourceWork, open_source
from tests import pins
from tests.support_mysql import connect, run_script, settings_of
from tests.support_source import INTEGER, LINE, LINES, PURCHASE, column, list_of, plan_of
from tests.support_source_databases import fill_postgresql, make_sqlite, past_the_gate

SLOW = plan_of(TableFacts("slow", "slow", (column("id", INTEGER, nullable=False),), ("id",)))


MAPPING = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type}
entities: {slow: {items: {Slow: {key: ["SLOW#{id}", SLOW]}}}}
"""


@contextmanager
def reading(url: str, **words: Any) -> Iterator[SqlSource]:
    with closing(SqlSource(source_url(url), connection_options=ConnectionOptions(**words))) as source:
        yield source


def setting(source: SqlSource, name: str) -> Any:
    return source.query("SELECT current_setting(:name)", {"name": name})[0][0]


# ── PostgreSQL ──


def test_postgresql_keeps_the_limits_of_every_connection(postgres_database: str) -> None:
    with reading(postgres_database, statement_timeout_s=2.5, lock_wait_s=3, idle_s=60) as source:
        assert setting(source, "statement_timeout") == "2500ms"
        assert setting(source, "lock_timeout") == "3s"
        assert setting(source, "idle_in_transaction_session_timeout") == "1min"
        assert setting(source, "transaction_read_only") == "on"
        assert setting(source, "transaction_isolation") == "repeatable read"
        assert setting(source, "jit") == "off"


def test_without_a_limit_the_roles_own_stays(postgres_database: str) -> None:
    with reading(f"{postgres_database}?options=-c%20statement_timeout%3D7s") as source:
        assert setting(source, "statement_timeout") == "7s"


def test_postgresql_ends_a_page_that_takes_too_long(postgres_database: str) -> None:
    with psycopg.connect(postgres_database) as server:
        server.execute("CREATE VIEW slow AS SELECT 1 AS id FROM pg_sleep(300)")
    with reading(postgres_database, statement_timeout_s=0.2) as source:
        began = time.monotonic()
        with pins.refused(SourceError):
            source.read_page(SLOW, None, None)
        assert time.monotonic() - began < 120


def test_postgresql_waits_for_a_lock_no_longer_than_allowed(postgres_database: str) -> None:
    with psycopg.connect(postgres_database, autocommit=True) as server:
        server.execute("CREATE TABLE slow (id int PRIMARY KEY)")
        with server.transaction(), reading(postgres_database, lock_wait_s=0.2) as source:
            server.execute("LOCK TABLE slow IN ACCESS EXCLUSIVE MODE")
            with pins.refused(SourceError):
                source.read_page(SLOW, None, None)


def test_postgresqls_activity_names_the_job_and_the_command(postgres_database: str) -> None:
    parsed = examine_mapping(MAPPING, "m.yaml")
    with open_source(
        SourceSettings(url=postgres_database), parsed, SourceWork(name_of("shop", "verify"))
    ) as source:
        mine = "SELECT application_name FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert source.query(mine, {}) == [("migrator shop verify",)]


def test_a_server_never_sees_more_connections_than_allowed(postgres_database: str) -> None:
    settings = SourceSettings(url=postgres_database, max_connections=2)
    parsed = examine_mapping(MAPPING, "m.yaml")
    seen: list[int] = []
    with open_source(settings, parsed, SourceWork(name_of("bounded"), workers=16)) as source:
        assert isinstance(source, SqlSource)
        bounded = source
        work = "SELECT count(*), pg_sleep(0.05) FROM pg_stat_activity WHERE datname = current_database()"
        threads = [
            threading.Thread(target=lambda: seen.append(past_the_gate(bounded, work)[0][0]))
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert len(seen) == 12
    assert max(seen) <= 2


# ── MariaDB ──


def session(source: SqlSource, name: str) -> Any:
    return source.query(f"SELECT @@SESSION.{name}", {})[0][0]


def test_mariadb_keeps_the_limits_of_every_connection(mysql_database: str) -> None:
    with reading(mysql_database, statement_timeout_s=2.5, lock_wait_s=3, idle_s=60) as source:
        named = settings_of(mysql_database)
        assert session(source, named.time_limit) == 2.5 * named.second
        assert session(source, "lock_wait_timeout") == 3
        assert session(source, "innodb_lock_wait_timeout") == 3
        assert session(source, named.idle_limit) == 60
        assert session(source, named.read_only) == 1


def test_mariadb_ends_a_page_that_takes_too_long(mysql_database: str) -> None:
    run_script(mysql_database, "CREATE VIEW slow AS SELECT 1 AS id FROM (SELECT SLEEP(300)) AS s")
    with reading(mysql_database, statement_timeout_s=0.2) as source:
        began = time.monotonic()
        with pins.refused(SourceError):
            source.read_page(SLOW, None, None)
        assert time.monotonic() - began < 120


def test_mariadb_gets_the_name_and_refuses_writes(mysql_database: str) -> None:
    run_script(mysql_database, "CREATE TABLE t (a int)")
    with reading(mysql_database, name="migrator shop backfill", pool_size=1) as source:
        source.query("SELECT 1", {})
        with connect(mysql_database) as server, server.cursor() as cursor:
            # The server shows it in performance_schema.session_connect_attrs, which MariaDB has switched off.
            cursor.execute("SELECT @@performance_schema")
            if cursor.fetchone() == (1,):
                cursor.execute(
                    "SELECT count(*) FROM performance_schema.session_connect_attrs"
                    " WHERE ATTR_NAME = 'program_name' AND ATTR_VALUE = 'migrator shop backfill'"
                )
                assert cursor.fetchone() == (1,)
        with pins.refused(SourceError):
            past_the_gate(source, "INSERT INTO t VALUES (1)")


# ── SQLite ──

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def test_sqlite_ends_a_statement_that_takes_too_long_and_resumes(tmp_path: Path) -> None:
    url = make_sqlite(tmp_path / "shop.db")
    with reading(url, statement_timeout_s=0.2, pool_size=1) as source:
        for _ in range(2):
            with pins.refused(SourceError):
                source.query(ENDLESS, {})
        time.sleep(0.3)
        assert source.count(plan_of(PURCHASE)) == 5


def test_sqlite_is_not_timed_without_a_limit(tmp_path: Path) -> None:
    with reading(make_sqlite(tmp_path / "shop.db")) as source:
        assert source.count(plan_of(PURCHASE)) == 5


# ── the pace ──


class Drawn(RateLimit):
    """A pace that remembers what was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def took(self, rows: int) -> None:
        self.rows.append(rows)


def test_children_count_as_rows(postgres_database: str) -> None:
    fill_postgresql(postgres_database)
    plan = plan_of(PURCHASE, ["id"], collections=[list_of("lines", LINE, LINES, ["product"])])
    pace = Drawn()
    with closing(SqlSource(source_url(postgres_database), pace=pace)) as source:
        source.read_page(plan, None, None)
        source.read_rows(plan, ["[10]"])
    assert pace.rows == [5 + 7, 1 + 3]


def test_pages_are_read_no_faster_than_allowed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "n.db") as database:
        database.execute("CREATE TABLE slow (id INTEGER PRIMARY KEY)")
        database.executemany("INSERT INTO slow VALUES (?)", [(number,) for number in range(100)])
    found: list[RowTree] = []
    source = SqlSource(source_url(f"sqlite:///{tmp_path / 'n.db'}"), pace=RateLimit(200))
    with closing(source):
        began = time.monotonic()
        for start in range(-1, 99, 20):
            found += source.read_page(SLOW, f"[{start}]", f"[{start + 20}]")
        took_s = time.monotonic() - began
    assert len(found) == 100
    assert took_s > 0.35
