"""Lag of a relay's items behind rows that change at a steady rate: from a commit to its item's write."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import statistics
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from bench.measure import Tables
from bench.shapes import fill_users
from bench.test_relay import USERS, filled, sink_before
from migrator.mapping.model.live import MarkedBy
from tests.support_services import own_postgres

# Else the fixture of a server refuses a test that is collected outside of tests/.
pytestmark = pytest.mark.postgres

ROWS = 20_000
FOR_S = float(os.environ.get("MIGRATOR_TEST_LAG_S", 20))
WORKERS = os.environ.get("MIGRATOR_TEST_RELAY_WORKERS", "2")
SETTLES_S = 30.0
"""So long the relay may take for what is left when the changes end."""
TICK_S = 0.01
CHANGE = (
    "UPDATE users SET visits = made.number FROM unnest(%s::int[], %s::int[]) AS made (id, number)"
    " WHERE users.id = made.id"
)


def changed(url: str, rate: float, for_s: float) -> list[tuple[int, int, float]]:
    changes: list[tuple[int, int, float]] = []
    with psycopg.connect(url, autocommit=True) as connection:
        started = time.monotonic()
        for tick in count(1):
            due = int(tick * TICK_S * rate)
            numbers = list(range(len(changes) + 1, due + 1))
            ids = [number * 7919 % ROWS + 1 for number in numbers]
            time.sleep(max(0.0, started + tick * TICK_S - time.monotonic()))
            if numbers:
                connection.execute(CHANGE, (ids, numbers))
            at = time.time()
            changes += [(number, id_, at) for number, id_ in zip(numbers, ids, strict=True)]
            if tick * TICK_S >= for_s:
                return changes
    return changes


def written(endpoint: str) -> list[tuple[str, int, float]]:
    request = urllib.request.Request(endpoint, b"", {"X-Amz-Target": "Sink.Written"})
    with urllib.request.urlopen(request) as answer:
        return [tuple(line) for line in json.load(answer)]


def lags_s(changes: list[tuple[int, int, float]], writes: list[tuple[str, int, float]]) -> list[float]:
    """Seconds from each change until its row was written in that or a later state; infinite if it never was."""
    of_key: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for key, number, at in writes:
        of_key[key].append((number, at))
    return [
        min(
            (at for written_number, at in of_key[f"USER#{id_:09}"] if written_number >= number),
            default=math.inf,
        )
        - committed_at
        for number, id_, committed_at in changes
    ]


@contextmanager
def source_of(marked_by: MarkedBy, database: str) -> Iterator[str]:
    if marked_by != "log":
        yield database
        return
    with own_postgres("wal_level=logical") as server:
        yield server.url


@pytest.mark.parametrize(
    ("into", "marked_by", "rate"),
    [
        *(("sink", "triggers", rate) for rate in (500, 1000, 2000)),
        ("embedded server", "triggers", 500),
        *(("sink", "log", rate) for rate in (500, 2000)),
    ],
)
def test_lag_at_a_steady_rate(
    into: str,
    marked_by: MarkedBy,
    rate: int,
    tmp_path: Path,
    postgres_database: str,
    dynamodb_url: str,
    tables: Tables,
) -> None:
    through = ["--through"] if into == "embedded server" else []
    apart = multiprocessing.get_context("spawn")
    with (
        source_of(marked_by, postgres_database) as url,
        sink_before(dynamodb_url, *through) as sink,
        ProcessPoolExecutor(1, apart) as generator,
    ):
        fill_users(url, ROWS)
        made = filled(tmp_path, USERS, url, sink, marked_by)
        with made.beside("relay", str(made.job), "--workers", WORKERS):
            time.sleep(3)
            changes = generator.submit(changed, url, rate, FOR_S).result()
            until = time.monotonic() + SETTLES_S
            while math.inf in (found := lags_s(changes, written(sink))) and time.monotonic() < until:
                time.sleep(1)
    cut = statistics.quantiles(found, n=100)
    took_s = changes[-1][2] - changes[0][2]
    tables.add(
        f"Lag from commit to item, PostgreSQL, one process, {FOR_S:.0f} s each",
        changes_a_second=f"{rate:,} ({len(changes) / took_s:,.0f} were made)",
        marks_by=marked_by,
        into=f"the {into}",
        p50=f"{cut[49]:.2f} s",
        p99=f"{cut[98]:.2f} s",
        longest=f"{max(found):.2f} s",
    )
    assert math.inf not in found
