"""What rows and marks cost in counts that no machine changes: calls of functions, requests, and blocks of memory."""

from __future__ import annotations

import gc
import json
import sys
import threading
import tracemalloc
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.conftest import IN_PYTHON, compiled, started
from bench.recorder import recording
from bench.shapes import PLAIN
from bench.test_growth import filled
from bench.test_relay import USERS, sink_before
from bench.test_relay import filled as job_of
from bench.ways import Way, beside_others, by_backfill, by_verify
from migrator.dynamodb.control import ControlItem
from migrator.mapping.check.check import check_mapping
from migrator.mapping.items.encoder import compile_encoder, encode_page
from migrator.source.capture.marks import SqlMarks
from migrator.source.engines.connect import source_url
from migrator.source.reader import SqlSource
from tests.journeys.in_process import run_here
from tests.storms.shop import marks_left, service
from tests.support_capture import capturing
from tests.support_mapping import parse_mapping

pytestmark = pytest.mark.slow

ROWS = 2000
CALLS_A_ROW = 34
"""At most, those of C functions included: reading, encoding and sending it, and its share of the rest."""
CALLS_A_CONDITIONAL_ROW = 58
CALLS_A_VERIFIED_ROW = 28
CALLS_A_MARK = 600
"""Of a row that was changed, by the command `relay`."""
BLOCKS_A_ROW_READ, BLOCKS_A_ROW_ENCODED = 8.5, 6.5
"""Of memory that are held at most: a row is a tuple and its values; an item is a key, JSON, a size and the name of its row."""
SCANNED_ROWS = 1700
"""In a page of a scan, at least: 1 MB of these items."""


def calls(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile, by this thread and those that it starts."""
    found: Counter[int] = Counter()

    def count(_: Any, event: str, __: Any) -> None:
        if event in ("call", "c_call"):
            found[threading.get_ident()] += 1

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found.total()


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an endpoint that answers at once."""
    made = compiled(tmp_path_factory.mktemp("sink"))
    with started([made] if made else IN_PYTHON) as url:
        yield url


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Of so many rows, and of twice as many, with capture installed."""
    folder = tmp_path_factory.mktemp("counts")
    urls = filled(folder / "few.db", ROWS), filled(folder / "many.db", 2 * ROWS)
    for url in urls:
        with capturing("sqlite", url) as capture:
            capture.install()
    return urls


def calls_a_row(way: Way, databases: Sequence[str], endpoint: str) -> float:
    """The difference of twice the rows: what a run costs whatever its rows are is in both, and what the first one loads in
    neither."""
    way(PLAIN, databases[0], endpoint)
    few, many = (calls(lambda: way(PLAIN, url, endpoint)) for url in databases)  # noqa: B023
    return (many - few) / ROWS


def test_rows_by_generated_functions(sink: str, databases: Sequence[str]) -> None:
    found = calls_a_row(by_backfill, databases, sink)
    print(f"\n{found:.1f} calls a row")
    assert found <= CALLS_A_ROW


def test_rows_with_other_writers(sink: str, databases: Sequence[str]) -> None:
    found = calls_a_row(beside_others, databases, sink)
    print(f"\n{found:.1f} calls a row of a conditional backfill")
    assert found <= CALLS_A_CONDITIONAL_ROW


@pytest.mark.parametrize("way", [by_backfill, beside_others])
def test_requests_of_rows(way: Way, databases: Sequence[str]) -> None:
    with recording() as (url, requests):
        way(PLAIN, databases[0], url)
    assert len(requests) == ROWS / 25


# ── Verify ──


@pytest.fixture
def table() -> Iterator[str]:
    with started([*IN_PYTHON[:2], "bench.table_sink"]) as url:
        yield url


def answered(endpoint: str) -> Counter[str]:
    """How many requests an endpoint has answered, by operation."""
    request = urllib.request.Request(endpoint, b"{}", {"X-Amz-Target": "Sink.Answered"})
    with urllib.request.urlopen(request) as answer:
        return Counter(json.load(answer))


def test_rows_that_are_verified(table: str, databases: Sequence[str]) -> None:
    found = []
    for url in (databases[0], *databases):
        by_backfill(PLAIN, url, table)
        before = answered(table)
        found.append(calls(lambda: by_verify(PLAIN, url, table)))  # noqa: B023
        asked = answered(table) - before
    a_row = (found[2] - found[1]) / ROWS
    print(f"\n{a_row:.1f} calls a row of a verify, {dict(asked)} for {2 * ROWS:,} rows")
    assert a_row <= CALLS_A_VERIFIED_ROW
    # A clean table is read once, by four segments, and no item by its key.
    assert asked.keys() == {"Scan"}
    assert asked["Scan"] <= 4 + 2 * ROWS / SCANNED_ROWS


# ── Relay ──


def counted(of: type, name: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One more element each time that the method is called."""
    counts, method = list[int](), getattr(of, name)

    def called(*words: Any, **named: Any) -> Any:
        counts.append(1)
        return method(*words, **named)

    monkeypatch.setattr(of, name, called)
    return counts


def test_marks_of_rows_that_were_changed(
    tmp_path: Path, dynamodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = counted(SqlMarks, "take", monkeypatch)
    control_puts = counted(ControlItem, "_put", monkeypatch)
    url = filled(tmp_path / "marks.db", ROWS)
    with sink_before(dynamodb_url) as sink:
        made = job_of(tmp_path, USERS, url, sink)

        def relay() -> None:
            ended = run_here(["relay", str(made.job), "--once", "--workers", "1"], tmp_path, made.environment)
            assert ended.code == 0, ended.err

        found = {}
        for marks in (10, ROWS // 2, ROWS):
            with service(url) as database:
                database.run("UPDATE users SET visits = visits + 1 WHERE id <= %s", marks)
                database.connection.commit()
            before = answered(sink)
            found[marks] = calls(relay)
            puts = (answered(sink) - before)["PutItem"]
            assert marks_left(url) == 0
            # An item's put for each mark, and one of the control item for each take, of which a slow machine has more.
            assert puts - len(control_puts) == marks
            assert len(control_puts) <= len(takes)
            takes.clear()
            control_puts.clear()
    _, few, many = found.values()
    print(f"\n{(many - few) / (ROWS // 2):.1f} calls a mark")
    assert many - few <= CALLS_A_MARK * (ROWS // 2)


# ── Memory ──


def blocks(work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work gives, and how many blocks of memory it holds."""
    gc.collect()
    before = sys.getallocatedblocks()
    made = work()
    gc.collect()
    return made, sys.getallocatedblocks() - before


def test_blocks_of_a_page(databases: Sequence[str]) -> None:
    source = SqlSource(source_url(databases[0]))
    (entity,) = check_mapping(parse_mapping(PLAIN.mapping, "m.yaml"), source.facts()).entities
    encoder = compile_encoder(entity, source.raw_places(entity.plan))
    source.read_raw(entity.plan, encoder.raw, None, None)
    page, read = blocks(lambda: source.read_raw(entity.plan, encoder.raw, None, None))
    made, encoded = blocks(lambda: encode_page(encoder, page, 0, 0.0))
    source.close()
    print(f"\n{read / ROWS:.1f} blocks a row read, {encoded / ROWS:.1f} a row encoded")
    assert len(made.items) == len(page.rows) == ROWS
    assert read <= BLOCKS_A_ROW_READ * ROWS
    assert encoded <= BLOCKS_A_ROW_ENCODED * ROWS


def test_five_times_the_rows_hold_no_more_memory(sink: str, databases: Sequence[str], tmp_path: Path) -> None:
    """Pages are of 2,000 rows. One may be read while the one before is sent, and that is as the threads have it."""
    by_backfill(PLAIN, databases[1], sink)
    most = []
    for url in (databases[1], filled(tmp_path / "most.db", 10 * ROWS)):
        tracemalloc.start()
        by_backfill(PLAIN, url, sink)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    print(f"\n{most[0] / 1e6:.2f} MB at most of {2 * ROWS:,} rows, {most[1] / 1e6:.2f} MB of {10 * ROWS:,}")
    assert most[1] <= 1.7 * most[0]
