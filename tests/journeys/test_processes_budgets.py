"""Budgets of a run, measured outside of all its processes: one that joins late and one that is killed change nothing.

Bounds are upper ones, which hold on any machine: on a slow one less is spent.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil
import psycopg
import pytest
import sqlalchemy as sa

from migrator.journal.operations import WINDOW_S
from migrator.runtime.values import replace
from tests import pins
from tests.faults.proxy import FaultProxy, Spent, most_spent
from tests.faults.schedule import Faults
from tests.faults.tcp import tcp_way
from tests.journeys.command import Project, tuned
from tests.journeys.test_processes import (
    ROWS,
    at_work,
    children,
    done_pages,
    in_journal,
    need_whole,
)
from tests.journeys.test_processes import shop as shop
from tests.support_waiting import until

UNITS_PER_S = 60
ROWS_PER_S = 40
PAGE_ROWS, WORKERS = 20, 2
CONNECTIONS = 11


def claiming(made: Project) -> set[str]:
    with suppress(sa.exc.DBAPIError):  # the journal is being made
        return {str(row[0]) for row in in_journal(made, "SELECT DISTINCT who FROM migrator_page_claim")}
    return set()


def shares(made: Project) -> set[str]:
    kept = in_journal(made, "SELECT id, value FROM migrator_record WHERE kind = 'process' AND id <> ''")
    return {str(name) for name, value in kept if not json.loads(str(value))["has_left"]}


def ended_well(process: subprocess.Popen[str]) -> str:
    """What it said on standard error."""
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return err


def join_late_and_kill_one(made: Project, kind: str) -> None:
    """A run of three processes that one more joins once they are at work; when that has its part, one is killed."""
    job = str(made.job)
    driver = tuned(made, processes=3).start(kind, job)
    until(lambda: len(claiming(made)) == 3)
    before = shares(made)
    joined = made.start(kind, job, "--join")
    until(lambda: bool(claiming(made) - before))
    os.kill(next(children(driver.pid)).pid, signal.SIGKILL)
    assert "process_ended" in ended_well(driver)
    assert "is done" in ended_well(joined)


def test_write_units_of_a_run_hold_over_any_ten_seconds(shop: Project, dynamodb_url: str) -> None:
    with FaultProxy(dynamodb_url, Faults()) as proxy:
        before = shop.job.read_text()
        text = before.replace(dynamodb_url, proxy.url)
        shop.job.write_text(text.replace("workers: 2", f"workers: 2, max_write_units: {UNITS_PER_S}"))
        join_late_and_kill_one(shop, "backfill")
        most = most_spent(proxy.spent, "", WINDOW_S)
    print(f"{most:g} write units in the fullest {WINDOW_S:g} s, of {UNITS_PER_S * WINDOW_S:g}")
    assert 0 < most <= UNITS_PER_S * WINDOW_S
    shop.job.write_text(before)
    need_whole(shop)


# ── On PostgreSQL, where the server tells who is connected, and its answers can be counted ──


@pytest.fixture
def served(shop: Project, postgres_database: str) -> Project:
    """The shop's rows on a server; `served.environment` names it."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute(
            "CREATE TABLE invoice (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, total INTEGER)"
        )
        numbers = f"generate_series(1, {ROWS - 1}) AS n"
        connection.execute(f"INSERT INTO customer SELECT n, 'N' || n FROM {numbers}")
        connection.execute(f"INSERT INTO invoice SELECT n, n % 30 + 1, 5 FROM {numbers}")
    return reading(shop, postgres_database)


def reading(made: Project, url: str) -> Project:
    """The project with another source."""
    return replace(made, environment=made.environment | {"MIGRATOR_SOURCE_URL": url})


def with_source(made: Project, setting: str) -> None:
    url = "'${MIGRATOR_SOURCE_URL}'"
    made.job.write_text(made.job.read_text().replace(f"{url}}}", f"{url}, {setting}}}"))


@dataclass
class RowsSeen:
    """Rows of some tables that a PostgreSQL server answers with, of at least two columns: those of pages, and not where
    pages end. Source: PostgreSQL documentation, "Message formats", RowDescription and DataRow."""

    tables: frozenset[int]
    at: list[Spent] = field(default_factory=list)

    def watching(self) -> Callable[[bytes], None]:
        """For one connection."""
        left, is_page = bytearray(), False

        def seen(data: bytes) -> None:
            nonlocal is_page
            left.extend(data)
            rows = 0
            while len(left) >= 5 and len(left) > (length := struct.unpack("!I", left[1:5])[0]):
                if left[0:1] == b"T":
                    described = _tables_of(bytes(left[5 : 1 + length]))
                    is_page = len(described) > 1 and bool(self.tables & set(described))
                rows += left[0:1] == b"D" and is_page
                del left[: 1 + length]
            if rows:
                self.at.append(Spent(time.monotonic(), {"": float(rows)}))

        return seen


def _tables_of(description: bytes) -> list[int]:
    """The object identifiers of the tables that the columns of an answer are of."""
    tables, at = [], 2
    for _ in range(struct.unpack("!H", description[:2])[0]):
        at = description.index(b"\0", at) + 1
        tables.append(struct.unpack("!I", description[at : at + 4])[0])
        at += 18
    return tables


def test_rows_of_a_run_hold_over_any_ten_seconds(served: Project, postgres_database: str) -> None:
    """Beside the rate: what a second of it leaves in a bucket, and pages under way, which are counted when they are read."""
    with_source(served, f"max_rows_per_s: {ROWS_PER_S}")
    with psycopg.connect(postgres_database) as connection:
        query = "SELECT oid::int8 FROM pg_class WHERE relname IN ('customer', 'invoice')"
        tables = frozenset(int(row[0]) for row in connection.execute(query))
    seen, server = RowsSeen(tables), sa.make_url(postgres_database)
    with tcp_way(server.host or "", server.port or 5432, seen.watching) as way:
        through = server.set(host="127.0.0.1", port=way.port, query={"sslmode": "disable"})
        join_late_and_kill_one(reading(served, through.render_as_string(hide_password=False)), "backfill")
    rows = sum(one.units[""] for one in seen.at)
    assert rows >= 2 * (ROWS - 1), "rows pass elsewhere"
    most, bound = most_spent(seen.at, "", WINDOW_S), ROWS_PER_S * (WINDOW_S + 1) + 4 * WORKERS * PAGE_ROWS
    print(f"{most:g} rows of {rows:g} in the fullest {WINDOW_S:g} s, of {bound:g}")
    assert most <= bound


@contextmanager
def counting(url: str) -> Iterator[list[int]]:
    """How many connections the database has, looked at again and again."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    counts: list[int] = []
    over = threading.Event()

    def look() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.wait(0.02):
                row = connection.execute(query).fetchone()
                counts.append(int(row[0]) if row else 0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


def kill_and_wait(process: psutil.Process, url: str) -> None:
    """Returns when the server, too, has ended the connections of the process."""
    ports = [one.laddr.port for one in process.net_connections("tcp") if one.raddr]
    process.kill()
    query = "SELECT count(*) FROM pg_stat_activity WHERE client_port = ANY(%s)"
    with psycopg.connect(url, autocommit=True) as connection:
        until(lambda: connection.execute(query, [ports]).fetchone() == (0,))


def test_connections_of_a_run_are_never_more_than_it_may_have(
    served: Project, postgres_database: str
) -> None:
    """Three processes have three each, the first that joins has two, the next one the three of one that was killed."""
    job = str(served.job)
    with_source(served, f"max_connections: {CONNECTIONS}")
    with counting(postgres_database) as counts:
        served.done("pace", job, "--pause")
        driver = tuned(served, processes=3).start("backfill", job)
        until(lambda: done_pages(served) == 0 and len(at_work(served)) == 3)
        first = served.start("backfill", job, "--join")
        until(lambda: len(at_work(served)) == 4)
        refused = served.run("backfill", job, "--join")
        assert (refused.code, pins.said(refused.err)) == (2, True), refused.err
        kill_and_wait(next(children(driver.pid)), postgres_database)
        until(lambda: len(shares(served)) == 3)
        second = served.start("backfill", job, "--join")
        until(lambda: len(shares(served)) == 4)
        served.done("pace", job, "--resume")
        for process in (driver, first, second):
            ended_well(process)
    print(f"{max(counts)} connections at most, of {CONNECTIONS}")
    assert 0 < max(counts) <= CONNECTIONS
    need_whole(served)
