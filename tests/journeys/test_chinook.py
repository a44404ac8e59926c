"""Chinook, a real database, killed, made ill and made tricky; the figures are those of its README."""

from __future__ import annotations

import random
import secrets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.journeys.chinook import ITEMS, ROWS, assert_whole
from tests.journeys.command import Project, digest, keys, project

New = Callable[..., Project]


@pytest.fixture
def new(tmp_path: Path, dynamodb_url: str) -> New:
    def make(source: str, **words: Any) -> Project:
        return project(tmp_path, source, dynamodb_url, f"Chinook{secrets.token_hex(4)}", **words)

    return make


def await_line(process: subprocess.Popen[str], sign: str) -> None:
    while sign not in (line := process.stderr.readline()):  # type: ignore[union-attr]
        assert line, f"the run ended before it said {sign}"


def test_three_kills_and_every_fault_and_the_table_is_the_same(
    new: New, chinook_sqlite: Path, dynamodb_url: str
) -> None:
    faults = Faults(unprocessed=0.3, throttle=0.03, errors=0.03, cut_after=0.02, empty=0.03, seed=7)
    with FaultProxy(dynamodb_url, faults) as proxy:
        made = new(
            f"sqlite:///{chinook_sqlite}",
            through=proxy.url,
            tuning="workers: 3, page_rows: 100, attempts: 60, backoff_cap_s: 0.2",
        )
        made.done("table", "create", str(made.job))
        for _ in range(3):
            process = made.start("backfill", str(made.job), "--verbose")
            for _ in range(random.randint(1, 15)):
                await_line(process, "page_done")
            time.sleep(random.uniform(0, 0.1))  # somewhere inside of the pages under way
            assert process.poll() is None, "the run ended before it was killed"
            process.kill()
            process.communicate()
        assert len(made.items()) < ITEMS
        finished = made.done("backfill", str(made.job), "--json")
    assert "is resumed" in finished.err
    # Its mapping names no TTL attribute, which capture needs first.
    assert "{ttl: expiresAt} in the mapping, then run `migrator capture install" in " ".join(
        finished.err.split()
    )
    assert finished.data["total"]["items"] == ITEMS
    assert min(faults.counts[kind] for kind in ("unprocessed", "throttle", "errors", "cut_after")) > 0
    assert_whole(made.items(), "sqlite")


def test_a_killed_verify_resumes_and_is_clean(new: New, chinook_sqlite: Path) -> None:
    made = new(f"sqlite:///{chinook_sqlite}", tuning="workers: 2, page_rows: 100, scan_segments: 8")
    made.prepared("table create", "backfill")
    for sign in ('"entity": "track", "page"', '"entity": "(table)", "page"'):
        process = made.start("verify", str(made.job), "--verbose", "--log-format", "json")
        await_line(process, sign)
        process.kill()
        process.communicate()
    finished = made.done("verify", str(made.job), "--json")
    assert "is resumed" in finished.err
    assert (finished.data["clean"], finished.data["scanned_items"]) == (True, ITEMS)
    assert finished.data["total"]["rows"] == ROWS
    assert len(made.done("status", str(made.job), "--json").data["runs"]) == 2


def test_the_tricky_rows(new: New, chinook_postgres_overlay: str) -> None:
    made = new(chinook_postgres_overlay)
    made.done("table", "create", str(made.job))
    ended = made.run("backfill", str(made.job), "--json")
    assert ended.code == 1
    assert ended.data["findings"] == {"collision": 1}
    items = made.items()
    assert len(items) == 15_695
    assert [len(keys(items, index)) for index in ("GSI1", "GSI2", "GSI3")] == [15_597, 3_983, 1_985]
    found = made.done("status", "--findings", str(made.job)).out
    assert "customer [60]" in found
    assert pins.said(found)
    made.job.write_text(made.job.read_text().replace("tuning: {", "tuning: {max_refused: 1, "))
    assert made.run("backfill", str(made.job)).code == 0
    candidates = [*keys(items), ["EMAIL#luisg@embraer.com.br", "EMAIL"]]
    assert digest(candidates) == "b139534fdf081560badf3d4a80f9b75a"
    verified = made.run("verify", str(made.job), "--json")
    assert verified.code == 1
    assert verified.data["findings"] == {"collision": 1}
