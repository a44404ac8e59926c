"""How many marks a relay works in a second of its own CPU, into a sink that answers at once and into an embedded server.

Each figure is of the command in a process of its own, less what it takes where no mark waits.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journey.command import Project, project
from tests.storm.shop import MAPPING, marks_left, open_shop, service

pytestmark = pytest.mark.bench

MARKS = int(os.environ.get("MIGRATOR_TEST_MARKS", 20_000))
WORKERS = os.environ.get("MIGRATOR_TEST_RELAY_WORKERS", "2")

USERS = """
mapping: 1
table: {name: Bench, key: [PK, SK], type: type, ttl: expiresAt, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
entities:
  users:
    items:
      User:
        key: ["USER#{id:09}", PROFILE]
        GSI1: ["EMAIL#{email}", "USER#{id}"]
        keep: all
"""
MAKE_USERS = (
    "CREATE TABLE users (id INTEGER PRIMARY KEY, email VARCHAR(80) UNIQUE NOT NULL, name VARCHAR(80) NOT NULL,"
    " city VARCHAR(80), note VARCHAR(200) NOT NULL, total NUMERIC(10, 2) NOT NULL, created_at TIMESTAMP NOT NULL,"
    " visits INTEGER NOT NULL)"
)
ADD_USERS = (
    "INSERT INTO users SELECT n, 'user' || n || '@example.com', 'Ann Example', NULL, repeat('x', 120), n / 100.0,"
    " TIMESTAMP '2026-01-02 03:04:05', n FROM generate_series(%s::int, %s::int) AS n"
)


@dataclass(frozen=True)
class Load:
    """`changes`: each of them changes as many rows as its value says, and leaves a mark for each."""

    mapping: str
    changes: str

    def open(self, url: str) -> None:
        if self.mapping == MAPPING:
            open_shop(url, MARKS // 2)
            return
        with service(url) as database:
            database.run(MAKE_USERS)
            database.run(ADD_USERS, 1, MARKS)
            database.connection.commit()


LOADS = {
    "plain rows": Load(USERS, "UPDATE users SET visits = visits + 1 WHERE id <= %s"),
    "new rows": Load(USERS, ADD_USERS.replace("%s", f"{MARKS} + 1", 1).replace("%s", f"{MARKS} + %s")),
    "orders with lines": Load(MAPPING, "UPDATE orders SET status = 'paid', total = total + 1 WHERE id <= %s"),
    "names of products": Load(MAPPING, "UPDATE product SET name = name || '.' WHERE id <= %s / 100"),
}


@contextmanager
def sink_before(upstream: str, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.relay_sink", upstream, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.kill()


def filled(folder: Path, mapping: str, source: str, endpoint: str) -> Project:
    """A job with its table, capture installed and no mark left."""
    (folder / "bench.yaml").write_text(mapping)
    made = project(folder, source, endpoint, f"B{secrets.token_hex(4)}", own_process=True)
    lines = made.job.read_text().splitlines()
    made.job.write_text("\n".join("mapping: bench.yaml" if "mapping:" in line else line for line in lines))
    made.done("table", "create", str(made.job))
    made.done("capture", "install", str(made.job))
    made.done("relay", str(made.job), "--once")
    return made


@dataclass(frozen=True)
class Relayed:
    """What a relay took that ran until no mark was left; `cpu_s`: of its process."""

    items: int
    cpu_s: float
    took_s: float


def relayed(made: Project) -> Relayed:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ended = made.done("relay", str(made.job), "--once", "--workers", WORKERS, "--json")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Relayed(json.loads(ended.out)["worked"].get("stored", 0), cpu_s, time.monotonic() - started)


@pytest.mark.parametrize("into", ["sink", "embedded server"])
@pytest.mark.parametrize("name", list(LOADS))
def test_marks_of_a_second(
    name: str, into: str, tmp_path: Path, postgres_database: str, dynamodb_url: str
) -> None:
    load = LOADS[name]
    load.open(postgres_database)
    with sink_before(dynamodb_url) as sink:
        made = filled(tmp_path, load.mapping, postgres_database, sink if into == "sink" else dynamodb_url)
        idle = relayed(made)
        with service(postgres_database) as database:
            database.run(load.changes, MARKS)
            database.connection.commit()
        marks = marks_left(postgres_database)
        worked = relayed(made)
    cpu_s, took_s = worked.cpu_s - idle.cpu_s, worked.took_s - idle.took_s
    print(
        f"\n{name} into the {into}: {marks:,} marks, {worked.items:,} items: {marks / cpu_s:,.0f} marks and"
        f" {worked.items / cpu_s:,.0f} items a second of CPU, {marks / took_s:,.0f} marks a second by the clock,"
        f" with {WORKERS} workers"
    )
    assert marks_left(postgres_database) == 0
