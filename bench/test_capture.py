"""Cost of capture for a service's writes: pairs of runs, on a table that is captured and on one that is not."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.measure import ROUNDS, Tables
from bench.shapes import engine_of, fill_users, more_users
from bench.test_relay import USERS, filled, sink_before
from migrator.mapping.model.live import MarkedBy
from tests.support_capture import connect
from tests.support_services import own_postgres, postgres_binaries

# Else the fixture of a server refuses a test that is collected outside of tests/.
pytestmark = [pytest.mark.postgres, pytest.mark.mysql]

ROWS = 20_000
MANY = 10_000
CAPTURES: tuple[MarkedBy, ...] = ("triggers", "log")
FOR_S = int(os.environ.get("MIGRATOR_TEST_CAPTURE_S", "10"))
UPDATE = f"\\set id random(1, {ROWS})\nUPDATE {{table}} SET visits = visits + 1 WHERE id = :id;\n"
TICKS_A_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """Of pgbench on one table. `cpu_us`: of the server's backends, per transaction."""

    p50_ms: float
    p99_ms: float
    a_second: float
    cpu_us: float


FORMS = {"p50_ms": ".2f", "p99_ms": ".2f", "a_second": ",.0f", "cpu_us": ".0f"}


def pgbench(server: psycopg.Connection[Any], url: str, table: str, connections: int, folder: Path) -> Run:
    (folder / "update.sql").write_text(UPDATE.format(table=table))
    program = shutil.which("pgbench") or str(postgres_binaries()[-1] / "pgbench")
    words = [program, "-n", "-f", "update.sql", "-l", "-c", str(connections), "-T", str(FOR_S), url]
    before = ended_cpu_us(server)
    said = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout
    cpu_us = ended_cpu_us(server) - before
    # The third word of a line is the time in microseconds. Source: PostgreSQL's documentation, pgbench, per-transaction logging.
    logs = list(folder.glob("pgbench_log.*"))
    times_ms = [int(line.split()[2]) / 1000 for log in logs for line in log.read_text().splitlines()]
    for log in logs:
        log.unlink()
    cut, rate = statistics.quantiles(times_ms, n=100), re.search(r"tps = ([\d.]+)", said)
    assert rate is not None
    return Run(cut[49], cut[98], float(rate[1]), cpu_us / len(times_ms))


def ended_cpu_us(server: psycopg.Connection[Any]) -> float:
    """CPU of all processes of the server that have ended, once those of pgbench have.

    Source: proc(5), stat, fields 16 and 17, of the process that starts the others.
    """
    left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'"
    while server.execute(left).fetchone() != (0,):
        time.sleep(0.05)
    time.sleep(0.1)
    (text,) = server.execute("SELECT pg_read_file('postmaster.pid')").fetchone() or ("",)
    fields = Path(f"/proc/{text.split()[0]}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / TICKS_A_S * 1e6


def test_a_transaction_of_a_service(tmp_path: Path, dynamodb_url: str, tables: Tables) -> None:
    """An active relay shares the cores."""

    def measured(capture: str, relay: str, folder: Path, url: str) -> None:
        with closing(psycopg.connect(url, autocommit=True)) as server:
            for connections in (1, 4, 16):
                pairs = []
                for _ in range(ROUNDS):
                    server.execute("VACUUM")
                    pairs.append(
                        [pgbench(server, url, table, connections, folder) for table in ("plain", "users")]
                    )
                tables.add(
                    f"An UPDATE by key in its own transaction, PostgreSQL, pgbench, {ROUNDS} pairs of {FOR_S} s",
                    connections=str(connections),
                    capture=capture,
                    relay=relay,
                    **{
                        name: _of_pairs([[getattr(run, name) for run in pair] for pair in pairs], form)
                        for name, form in FORMS.items()
                    },
                )

    # Autovacuum's CPU would be counted in any run.
    with own_postgres("wal_level=logical", "fsync=on", "max_connections=60", "autovacuum=off") as server:
        fill_users(server.url, ROWS)
        _add_plain(server.url)
        for capture in CAPTURES:
            folder = tmp_path / capture
            folder.mkdir()
            with sink_before(dynamodb_url) as sink:
                made = filled(folder, USERS, server.url, sink, capture)
                measured(capture, "stopped", folder, server.url)
                with made.beside("relay", str(made.job)):
                    measured(capture, "running", folder, server.url)
                made.done("relay", str(made.job), "--once")
                made.done("capture", "uninstall", str(made.job))


# ── One connection, also on MariaDB, and many rows in a statement ──


def _add_plain(url: str) -> None:
    """A table without capture, with the rows and indexes of the captured one."""
    like = "(LIKE users INCLUDING ALL)" if engine_of(url) == "PostgreSQL" else "LIKE users"
    with _cursor(url) as cursor:
        cursor.execute(f"CREATE TABLE plain {like}")
        cursor.execute("INSERT INTO plain SELECT * FROM users")


@contextmanager
def _cursor(url: str) -> Iterator[Any]:
    with closing(connect("postgresql" if engine_of(url) == "PostgreSQL" else "mariadb", url)) as opened:
        yield opened.cursor()


@pytest.mark.parametrize("empty", ["postgresql", "mariadb"], indirect=True)
def test_rows_of_a_statement(tmp_path: Path, empty: str, dynamodb_url: str, tables: Tables) -> None:
    fill_users(empty, ROWS)
    _add_plain(empty)
    first, on_postgresql = ROWS + 1, engine_of(empty) == "PostgreSQL"
    rows = more_users(empty, first, first + MANY - 1).removeprefix("INSERT INTO users ")
    marks, thread_of = (
        ("migrator.mark", "SELECT pg_backend_pid()")
        if on_postgresql
        else ("migrator_mark", "SELECT tid FROM information_schema.processlist WHERE id = connection_id()")
    )
    with sink_before(dynamodb_url) as sink, _cursor(empty) as cursor:
        filled(tmp_path, USERS, empty, sink)
        cursor.execute(thread_of)
        thread = Path(f"/proc/{cursor.fetchone()[0]}/schedstat")

        def one_by_one(table: str) -> None:
            for number in range(1, MANY + 1):
                cursor.execute(f"UPDATE {table} SET visits = visits + 1 WHERE id = {number}")

        def at_once(table: str) -> None:
            cursor.execute(f"UPDATE {table} SET visits = visits + 1 WHERE id <= {MANY}")

        def new_rows(table: str) -> None:
            cursor.execute(f"INSERT INTO {table} {rows}")

        def copied(table: str) -> None:
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(text)

        works = {
            f"{MANY:,} UPDATEs by key": one_by_one,
            f"UPDATE of {MANY:,} rows": at_once,
            f"INSERT of {MANY:,} rows": new_rows,
        }
        if on_postgresql:
            with cursor.copy(f"COPY ({rows}) TO STDOUT") as copy:
                text = b"".join(copy)
            works[f"COPY of {MANY:,} rows"] = copied
        for name, work in works.items():
            pairs: list[list[float]] = []
            # The first round fills caches.
            for _ in range(ROUNDS + 1):
                pairs.append([])
                for table in ("plain", "users"):
                    before = _cpu_us(thread)
                    work(table)
                    pairs[-1].append((_cpu_us(thread) - before) / MANY)
                    cursor.execute(f"DELETE FROM {table} WHERE id >= {first}")
                    cursor.execute(f"TRUNCATE TABLE {marks}")
            tables.add(
                f"CPU µs per row in the server, one connection, medians of {ROUNDS} pairs",
                statement=f"{engine_of(empty)}: {name}",
                without_and_with_triggers=_of_pairs(pairs[1:], ".1f"),
            )


def _cpu_us(thread: Path) -> float:
    """Source: proc(5), schedstat, whose first field is in nanoseconds."""
    return int(thread.read_text().split()[0]) / 1000


def _of_pairs(pairs: Sequence[Sequence[float]], form: str) -> str:
    """Median without and with capture, and the median of the pairs' ratios."""
    plain, captured = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(after / before for before, after in pairs)
    return f"{plain:{form}}, {captured:{form}} ({ratio:.2f})"
