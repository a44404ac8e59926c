"""Chinook, a real database, from end to end; the figures are those of its README."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.proxy import FaultProxy, Faults
from tests.journey.command import Project, digest, keys, project

KEYS = "0e10dfc2f6319e2f47264525d45a6338"
GSI1 = "2472c5c1e196cfbed472dc13b076ec1d"
GSI2_SQLITE = "b2ce87e87712732a0f0489d0d1f8c634"
GSI2_POSTGRESQL = "0542af16537dfbbcc0a1307a6a723430"
GSI2_MARIADB = "fac6c125cb028662534577ed149c035e"
COUNTS = {
    "Artist": 275,
    "Album": 347,
    "Track": 3503,
    "Genre": 25,
    "MediaType": 5,
    "Playlist": 18,
    "PlaylistTrack": 8715,
    "Employee": 8,
    "Customer": 59,
    "CustomerEmail": 59,
    "Invoice": 412,
    "InvoiceLine": 2240,
}

New = Callable[..., Project]


@pytest.fixture
def new(tmp_path: Path, dynamodb_url: str) -> New:
    def make(source: str, **words: str) -> Project:
        return project(tmp_path, source, dynamodb_url, f"Chinook{secrets.token_hex(4)}", **words)

    return make


def assert_whole(made: Project, gsi2: str) -> None:
    items = made.items()
    assert Counter(str(item["entity"]) for item in items) == COUNTS
    assert len(items) == 15_666
    assert [len(keys(items, index)) for index in ("GSI1", "GSI2", "GSI3")] == [15_576, 3_974, 1_984]
    assert digest(keys(items)) == KEYS
    assert digest(keys(items, "GSI1")) == GSI1
    assert digest(keys(items, "GSI2")) == gsi2


def test_sqlite_from_end_to_end(new: New, chinook_sqlite: Path) -> None:
    made = new(f"sqlite:///{chinook_sqlite}")
    made.done("table", "create", str(made.job))
    assert "as the mapping says" in made.done("table", "check", str(made.job)).out
    result = made.done("backfill", str(made.job), "--json").data
    assert (result["total"]["rows"], result["total"]["items"], result["total"]["refused"]) == (
        15_607,
        15_666,
        0,
    )
    assert_whole(made, GSI2_SQLITE)
    verified = made.done("verify", str(made.job), "--json").data
    assert (verified["clean"], verified["scanned_items"], verified["not_compared"]) == (True, 15_666, [])
    again = made.done("backfill", str(made.job), "--json")
    assert "nothing left to do" in again.err
    assert again.data["total"]["items"] == 15_666
    runs = made.done("status", str(made.job), "--json").data["runs"]
    assert [(run["kind"], run["state"]) for run in runs] == [("backfill", "done"), ("verify", "done")]


def test_postgresql_from_end_to_end(new: New, chinook_postgres: str) -> None:
    made = new(chinook_postgres)
    made.done("table", "create", str(made.job))
    made.done("backfill", str(made.job))
    assert_whole(made, GSI2_POSTGRESQL)
    made.done("verify", str(made.job))


def test_mariadb_from_end_to_end(new: New, chinook_mysql: str) -> None:
    made = new(chinook_mysql)
    made.done("table", "create", str(made.job))
    result = made.done("backfill", str(made.job), "--json").data
    assert (result["total"]["rows"], result["total"]["refused"]) == (15_607, 0)
    assert_whole(made, GSI2_MARIADB)
    verified = made.done("verify", str(made.job), "--json").data
    assert (verified["clean"], verified["scanned_items"], verified["not_compared"]) == (True, 15_666, [])


def test_three_kills_and_every_fault_and_the_table_is_the_same(
    new: New, chinook_sqlite: Path, dynamodb_url: str
) -> None:
    faults = Faults(unprocessed=0.3, throttle=0.03, errors=0.03, cut_after=0.02, seed=7)
    with FaultProxy(dynamodb_url, faults) as proxy:
        made = new(
            f"sqlite:///{chinook_sqlite}",
            through=proxy.url,
            tuning="workers: 3, page_rows: 100, attempts: 60, backoff_cap_s: 0.2",
        )
        made.done("table", "create", str(made.job))
        for _ in range(3):
            process = made.start("backfill", str(made.job))
            while '"event": "entity_started"' not in (line := process.stderr.readline()):  # type: ignore[union-attr]
                assert line, "the run ended before it began"
            time.sleep(random.uniform(0.3, 2.0))
            assert process.poll() is None, "the run ended before it was killed"
            process.kill()
            process.communicate()
        assert len(made.items()) < 15_666
        finished = made.done("backfill", str(made.job), "--json")
    assert "goes on" in finished.err
    assert finished.data["total"]["items"] == 15_666
    assert min(faults.counts[kind] for kind in ("unprocessed", "throttle", "errors", "cut_after")) > 0
    assert_whole(made, GSI2_SQLITE)


def test_a_killed_verify_goes_on_and_is_clean(new: New, chinook_sqlite: Path) -> None:
    made = new(f"sqlite:///{chinook_sqlite}", tuning="workers: 2, page_rows: 100, scan_segments: 8")
    made.done("table", "create", str(made.job))
    made.done("backfill", str(made.job))
    for sign in ('"entity": "track", "page"', '"entity": "(table)", "page"'):
        process = made.start("verify", str(made.job))
        while sign not in (line := process.stderr.readline()):  # type: ignore[union-attr]
            assert line, "verify ended before it was killed"
        process.kill()
        process.communicate()
    finished = made.done("verify", str(made.job), "--json")
    assert "goes on" in finished.err
    assert (finished.data["clean"], finished.data["scanned_items"]) == (True, 15_666)
    assert finished.data["total"]["rows"] == 15_607
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
    found = made.done("findings", str(made.job)).out
    assert "customer [60]" in found
    assert "customer [1] makes the same key" in found
    assert made.run("backfill", str(made.job), "--max-refused", "1").code == 0
    candidates = [*keys(items), ["EMAIL#luisg@embraer.com.br", "EMAIL"]]
    assert digest(candidates) == "b139534fdf081560badf3d4a80f9b75a"
    verified = made.run("verify", str(made.job), "--json")
    assert verified.code == 1
    assert verified.data["findings"] == {"collision": 1}


def test_verify_finds_what_is_changed_missing_and_extra(new: New, chinook_sqlite: Path) -> None:
    made = new(f"sqlite:///{chinook_sqlite}")
    made.done("table", "create", str(made.job))
    made.done("backfill", str(made.job))
    store = made.store()
    (track,) = store.get([("TRACK#1", "META")]).values()
    extra = {**track, "PK": "TRACK#99999", "_src": "track:[99999]"}
    store.put([{**track, "unit_price": 1, "name": 7}, extra, {"PK": "X", "SK": "Y", "n": 1}])
    store.delete([("GENREXX", "none"), ("INVOICE#1", "META")])
    ended = made.run("verify", str(made.job), "--json")
    assert ended.code == 1
    # Counts of Track and Invoice; sums of Track's seven numeric columns and of Invoice's three.
    expected = {"different": 2, "missing": 1, "unexpected": 1, "foreign": 1, "count": 2, "sum": 10}
    assert ended.data["findings"] == expected
    found = made.done("findings", str(made.job), "--all", "--keys").out
    assert (
        'different: track [1] item ["TRACK#1","META"] attribute name: Track: the attribute\'s type differs'
        in found
    )
    assert "attribute unit_price: Track: the attribute's value differs" in found
    assert 'missing: invoice [1] item ["INVOICE#1","META"]' in found
    assert 'unexpected: track [99999] item ["TRACK#99999","META"]: Track: its row is not there' in found
    assert 'foreign: item ["X","Y"]' in found
    assert "For Those About To Rock" not in found
