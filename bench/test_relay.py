"""Marks that a relay processes per second of its own CPU, into a sink that answers at once and into an
embedded server.

Each figure is of the command in a separate process, less its cost without pending marks.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.measure import Tables
from bench.shapes import engine_of, fill_users, more_users
from migrator.mapping.model.live import MarkedBy
from tests.journeys.command import Project, project
from tests.storms.shop import MAPPING, marks_left, open_shop, service

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


@dataclass(frozen=True)
class Load:
    """`change`: the statement for a database's URL, which leaves a mark per changed row; run `times` times."""

    mapping: str
    change: Callable[[str], str]
    times: int = 1

    def open(self, url: str) -> None:
        if self.mapping == MAPPING:
            open_shop(url, MARKS // 2)
        else:
            fill_users(url, MARKS)


def _always(statement: str) -> Callable[[str], str]:
    return lambda _: statement


LOADS = {
    "rows that were changed": Load(
        USERS, _always(f"UPDATE users SET visits = visits + 1 WHERE id <= {MARKS}")
    ),
    "a twentieth of the rows, twenty times": Load(
        USERS, _always(f"UPDATE users SET visits = visits + 1 WHERE id <= {MARKS} / 20"), times=20
    ),
    "new rows": Load(USERS, lambda url: more_users(url, MARKS + 1, 2 * MARKS)),
    "orders with their lines": Load(
        MAPPING, _always(f"UPDATE orders SET status = 'paid', total = total + 1 WHERE id <= {MARKS}")
    ),
    "names of products": Load(
        MAPPING,
        _always(f"UPDATE product SET name = replace(name, 'thing', 'part') WHERE id <= {MARKS} / 100"),
    ),
}


@contextmanager
def sink_before(upstream: str, *options: str) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.relay_sink", upstream, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def filled(
    folder: Path, mapping: str, source: str, endpoint: str, marked_by: MarkedBy = "triggers"
) -> Project:
    """A job with its table, installed capture and no marks."""
    (folder / "bench.yaml").write_text(mapping)
    made = project(folder, source, endpoint, f"B{secrets.token_hex(4)}", own_process=True)
    lines = made.job.read_text().splitlines()
    made.job.write_text("\n".join("mapping: bench.yaml" if "mapping:" in line else line for line in lines))
    made.done("table", "create", str(made.job))
    made.done("capture", "install", str(made.job), "--by", marked_by)
    made.done("relay", str(made.job), "--once")
    return made


@dataclass(frozen=True)
class Relayed:
    """Result of a relay that ran until no mark was left. `cpu_s`: of its process."""

    items: int
    cpu_s: float
    took_s: float


def relayed(made: Project) -> Relayed:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    # A child of this process: the fork server's processes are not, and their CPU is not counted here.
    words = [
        sys.executable,
        "-m",
        "migrator",
        "relay",
        str(made.job),
        "--once",
        "--workers",
        WORKERS,
        "--json",
    ]
    ended = subprocess.run(words, cwd=made.folder, env=made.environment, stdout=subprocess.PIPE, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Relayed(json.loads(ended.stdout)["worked"].get("stored", 0), cpu_s, time.monotonic() - started)


@pytest.mark.parametrize("into", ["sink", "embedded server"])
@pytest.mark.parametrize("load", LOADS)
def test_marks_of_a_second(
    load: str, into: str, tmp_path: Path, empty: str, dynamodb_url: str, tables: Tables
) -> None:
    shape = LOADS[load]
    shape.open(empty)
    with sink_before(dynamodb_url) as sink:
        made = filled(tmp_path, shape.mapping, empty, sink if into == "sink" else dynamodb_url)
        idle = relayed(made)
        with service(empty) as database:
            for _ in range(shape.times):
                database.run(shape.change(empty))
                database.connection.commit()
        marks = marks_left(empty)
        worked = relayed(made)
    cpu_s, took_s = worked.cpu_s - idle.cpu_s, worked.took_s - idle.took_s
    tables.add(
        f"Marks a second of one relay, {WORKERS} workers",
        marks=f"{engine_of(empty)}, {marks:,}: {load}",
        into=f"the {into}",
        of_CPU=f"{marks / cpu_s:,.0f}",
        by_the_clock=f"{marks / took_s:,.0f}",
        items_of_CPU=f"{worked.items / cpu_s:,.0f}",
    )
    assert marks_left(empty) == 0
