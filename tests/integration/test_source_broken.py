"""A connection that breaks in the middle of a page: the whole page is read again, on a new one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import Interrupted, SourceError
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.server_errors import is_broken
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests import pins
from tests.faults.tcp import TcpWay, tcp_way
from tests.support_mysql import connect, run_script
from tests.support_source import INTEGER, column, plan_of

SLOW = plan_of(TableFacts("slow", "slow", (column("id", INTEGER, nullable=False),), ("id",)))
NAME = "migrator broken backfill"
POSTGRESQL_VIEW = "CREATE VIEW slow AS SELECT id FROM generate_series(1, 3) AS id, pg_sleep(0.6)"
MARIADB_VIEW = "CREATE VIEW slow AS SELECT id FROM (SELECT 1 AS id, SLEEP(0.6)) AS slept"
QUICK = Retry(Backoff(attempts=6, base_s=0.2, cap_s=0.5, limit_s=120))


def source_at(url: str, retry: Retry = QUICK) -> SqlSource:
    return SqlSource(source_url(url), connection_options=ConnectionOptions(NAME), retry=retry)


def until(look: Callable[[], Any]) -> Any:
    """What `look` gives as soon as it gives anything."""
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("nothing within ten seconds")


def at_once_with(work: Callable[[], Any], beside: Callable[[], Any]) -> Any:
    """What `work` gives while `beside` is done in another thread."""
    thread = threading.Thread(target=beside)
    thread.start()
    try:
        return work()
    finally:
        thread.join(120)


# ── the server ends the connection ──


def test_a_page_outlives_the_end_of_its_backend_on_postgresql(
    postgres_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []

    def end() -> None:
        with psycopg.connect(postgres_database, autocommit=True) as server:
            reading = (
                "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
                " AND state = 'active' AND query LIKE '%%slow%%'"
            )
            (pid,) = until(lambda: server.execute(reading, (NAME,)).fetchone())
            server.execute("SELECT pg_terminate_backend(%s)", (pid,))
            ended.append(pid)

    with psycopg.connect(postgres_database) as server:
        server.execute(POSTGRESQL_VIEW)
    with closing(source_at(postgres_database)) as source, caplog.at_level(logging.WARNING):
        assert at_once_with(lambda: source.read_page(SLOW, None, None), end) == [(1,), (2,), (3,)]
    assert len(ended) == 1
    assert not caplog.records


def test_a_page_outlives_the_end_of_its_connection_on_mariadb(
    mysql_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[int] = []

    def end() -> None:
        with connect(mysql_database) as server, server.cursor() as cursor:

            def look() -> Any:
                cursor.execute(
                    "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE '%slow%'"
                    " AND id <> CONNECTION_ID()"
                )
                return cursor.fetchone()

            (number,) = until(look)
            cursor.execute(f"KILL CONNECTION {number}")
            ended.append(number)

    run_script(mysql_database, MARIADB_VIEW)
    with closing(source_at(mysql_database)) as source, caplog.at_level(logging.WARNING):
        assert at_once_with(lambda: source.read_page(SLOW, None, None), end) == [(1,)]
    assert len(ended) == 1
    assert not caplog.records


# ── the way to the server is cut ──


def through(url: str, way: TcpWay) -> str:
    return make_url(url).set(host="127.0.0.1", port=way.port).render_as_string(hide_password=False)


def cut_for(way: TcpWay, seconds: float) -> None:
    time.sleep(0.2)
    way.cut()
    time.sleep(seconds)
    way.mend()


@pytest.mark.parametrize("engine", ["postgres", "mysql"])
def test_a_page_waits_for_a_server_that_starts_again(engine: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{engine}_database")
    if engine == "postgres":
        with psycopg.connect(url) as server:
            server.execute(POSTGRESQL_VIEW)
    else:
        run_script(url, MARIADB_VIEW)
    at = make_url(url)
    with tcp_way(at.host or "", at.port or 5432) as way, closing(source_at(through(url, way))) as source:
        source.query("SELECT 1", {})
        found = at_once_with(lambda: source.read_page(SLOW, None, None), lambda: cut_for(way, 0.3))
    assert [row[0] for row in found] in ([1, 2, 3], [1])


@pytest.mark.parametrize("engine", ["postgres", "mysql"])
def test_server_that_stays_unreachable_fails_after_the_last_try(
    engine: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{engine}_database")
    at = make_url(url)
    three = Retry(Backoff(attempts=3, base_s=0.01))
    with (
        tcp_way(at.host or "", at.port or 5432) as way,
        closing(source_at(through(url, way), three)) as source,
    ):
        source.query("SELECT 1", {})
        way.cut()
        with pins.refused(SourceError) as caught:
            source.read_page(SLOW, None, None)
    assert caught.value.exit_code == 3
    assert caught.value.__suppress_context__


def test_server_never_reached_fails_at_once() -> None:
    patient = Retry(Backoff(attempts=100, base_s=60, cap_s=60))
    source = source_at("postgresql://root@127.0.0.1:1/shop", patient)
    with closing(source), pins.refused(SourceError) as caught:
        source.read_page(SLOW, None, None)
    assert not str(caught.value).endswith(")")  # it says nothing of tries


def test_waiting_for_a_server_ends_if_the_run_is_stopped(postgres_database: str) -> None:
    at = make_url(postgres_database)
    began = time.monotonic()
    patient = Retry(Backoff(attempts=100, base_s=600, cap_s=600), lambda: time.monotonic() - began > 1)
    way_to_it = tcp_way(at.host or "", at.port or 5432)
    with way_to_it as way, closing(source_at(through(postgres_database, way), patient)) as source:
        source.query("SELECT 1", {})
        way.cut()
        with pytest.raises(Interrupted):
            source.read_page(SLOW, None, None)
    assert time.monotonic() - began < 120


def test_a_statement_that_is_wrong_is_not_tried_again(postgres_database: str) -> None:
    with closing(source_at(postgres_database, Retry(Backoff(base_s=60, cap_s=60)))) as source:
        source.query("SELECT 1", {})
        with pins.refused(SourceError):
            source.read_page(SLOW, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is in recovery mode",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  the database system is not accepting connections",
        "connection to server failed: could not receive data from server: Connection reset by peer",
    ],
)
def test_a_server_that_is_coming_back_is_waited_for(text: str) -> None:
    """libpq gives no state with what a server says before the log-in."""
    assert is_broken(type("OperationalError", (Exception,), {})(text))
    assert not is_broken(type("OperationalError", (Exception,), {})("no such host"))
