"""A backfill and a verify by one process and by two, in one run, from the moment when all are ready.

CPU-bound: rows with two joins and a collection, an SQLite source, a local endpoint that answers at once. The
endpoint and other load use part of the second core, so the free cores and the highest possible ratio are
measured also. MIGRATOR_TEST_PROCESSES_ROWS sets the number of rows (300,000).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from bench.processes_work import PAGE_ROWS
from migrator.journal.runs import SqlJournal

ROWS = int(os.environ.get("MIGRATOR_TEST_PROCESSES_ROWS", 300_000))
ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 3))
SINKS = {
    "backfill": [sys.executable, "-m", "bench.sink"],
    "verify": [sys.executable, "-m", "bench.table_sink"],
}
"""What starts the endpoint of each kind; it prints its port. Another one that does the same may stand here."""
SCHEMA = """
CREATE TABLE countries (code VARCHAR(2) PRIMARY KEY, name VARCHAR(80));
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(80), country_code VARCHAR(2) REFERENCES countries);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customers, placed_at DATETIME, note VARCHAR(200));
CREATE TABLE lines (order_id INTEGER REFERENCES orders, n INTEGER, product VARCHAR(80), price NUMERIC(10, 2),
  PRIMARY KEY (order_id, n));
INSERT INTO countries VALUES ('AT', 'Austria'), ('CH', 'Switzerland'), ('DE', 'Germany');
"""
NUMBERS = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {})"
FILL = [
    "INSERT INTO customers {} SELECT n, 'Customer ' || n, substr('ATCHDE', n % 3 * 2 + 1, 2) FROM number",
    "INSERT INTO orders {} SELECT n, n, '2026-01-02 03:04:05.000000', 'a note of some forty letters, as people do'"
    " FROM number",
    "INSERT INTO lines {} SELECT n, l.column1, 'product ' || l.column1, n / 100.0 FROM number"
    " JOIN (VALUES (1), (2), (3)) AS l",
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = f"sqlite:///{tmp_path_factory.mktemp('bench')}/orders.db"
    engine = sa.create_engine(made)
    with engine.begin() as connection:
        for statement in [
            *filter(str.strip, SCHEMA.split(";")),
            *(one.format(NUMBERS.format(ROWS)) for one in FILL),
        ]:
            connection.exec_driver_sql(statement)
    engine.dispose()
    return made


@dataclass(frozen=True)
class Endpoint:
    url: str
    process: psutil.Process

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def endpoint(kind: str) -> Iterator[Endpoint]:
    with subprocess.Popen(SINKS[kind], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Endpoint(f"http://127.0.0.1:{process.stdout.readline().strip()}", psutil.Process(process.pid))
        process.kill()


@dataclass(frozen=True)
class Took:
    """`wall_s`: until the run was done. `cpu_s`: of all processes. `sink_s`: CPU of the endpoint. `free`:
    otherwise idle cores."""

    wall_s: float
    cpu_s: float
    sink_s: float
    free: float

    @property
    def used(self) -> float:
        return (self.cpu_s + self.sink_s) / self.wall_s


def busy_s() -> float:
    """CPU of the whole machine."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq + times.steal)


def taken(kind: str, number: int, url: str, journal: str, sink: Endpoint) -> Took:
    words = [sys.executable, "-m", "bench.processes_work", kind, url, journal, sink.url]
    started = [started_one(words)]
    started += [started_one([*words, "join"]) for _ in range(number - 1)]
    before_sink, before, began = sink.cpu_s(), busy_s(), time.monotonic()
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [json.loads(process.communicate()[0]) for process in started]
    busy, sink_s, lasted_s = busy_s() - before, sink.cpu_s() - before_sink, time.monotonic() - began
    wall_s, cpu_s = said[0]["wall_s"], sum(one["cpu_s"] for one in said)
    others = max(0.0, busy - cpu_s - sink_s) / lasted_s
    return Took(wall_s, cpu_s, sink_s, (os.cpu_count() or 1) - others)


def started_one(words: Sequence[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def need_all(journal_url: str) -> None:
    """Check that each page was checkpointed once."""
    journal = SqlJournal(journal_url)
    run = journal.runs("bench")[-1]
    done, planned = journal.page_counts(run, "orders")
    assert (done, journal.tally(run, "orders").rows) == (planned, ROWS)
    assert planned >= ROWS // PAGE_ROWS
    journal.close()


@pytest.mark.parametrize("kind", ["backfill", "verify"])
def test_two_processes_against_one(kind: str, url: str, tmp_path: Path) -> None:
    figures: dict[int, list[Took]] = {1: [], 2: []}
    with endpoint(kind) as sink:
        if kind == "verify":
            taken("backfill", 1, url, f"sqlite:///{tmp_path}/filled.db", sink)
        for turn in range(ROUNDS):
            for number, found in figures.items():
                journal = f"sqlite:///{tmp_path}/{turn}-{number}.db"
                found.append(taken(kind, number, url, journal, sink))
                need_all(journal)
    for number, found in figures.items():
        one = sorted(found, key=lambda took: took.wall_s)[len(found) // 2]
        print(
            f"\n{kind}, {number} process(es), {ROWS:,} rows: {one.wall_s:.1f} s, {one.cpu_s / ROWS * 1e6:.1f} µs of CPU an item,"
            f" and {one.sink_s / ROWS * 1e6:.1f} of the endpoint; {one.used:.2f} cores used of {one.free:.2f} that were free",
            end="",
        )
    pairs = list(zip(figures[1], figures[2], strict=True))
    ratio = statistics.median(one.wall_s / two.wall_s for one, two in pairs)
    by_cpu = statistics.median(2 * one.cpu_s / two.cpu_s for one, two in pairs)
    print(
        f"\n{kind}: {ratio:.2f} times; {by_cpu:.2f} where two cores are free for them and the endpoint has a third"
    )
