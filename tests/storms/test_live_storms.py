"""Writes, kills and faults, after which every item is what the rows say: a minute on a server, ten seconds on SQLite."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests import support_services as services
from tests.storms.storm import Storm, faults_of, rage, shop_project

SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))
MINUTE = Storm(
    seconds=float(os.environ.get("MIGRATOR_TEST_STORM_S", "60")), writers=8, per_s=5, customers=1500
)


@pytest.fixture
def postgres_log() -> Iterator[str]:
    """A database whose log is captured in place of triggers."""
    try:
        with services.own_postgres("wal_level=logical") as server:
            yield server.url
    except services.MissingPart as missing:
        pytest.skip(str(missing))


@pytest.fixture
def mysql_log(mysql_database: str) -> str:
    """The same on MySQL; the log of MariaDB is not read."""
    return mysql_database


@pytest.mark.parametrize(
    "engine",
    [
        "postgres_database",
        *(
            pytest.param(one, marks=pytest.mark.nightly)
            for one in ("mysql_database", "postgres_log", "mysql_log")
        ),
    ],
)
def test_a_minute_of_storm_loses_nothing(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url, faults = request.getfixturevalue(engine), faults_of(SEED)
    storm = replace(MINUTE, marked_by="log" if engine.endswith("_log") else "triggers")
    with shop_project(tmp_path, url, dynamodb_url, faults) as made:
        weather = rage(made, url, storm, SEED)
    weather.counts["faults"] = faults.counts
    print(f"\n{engine}, MIGRATOR_TEST_SEED={SEED}{weather}")
    assert all(faults.counts[kind] for kind in ("throttle", "errors", "cut_before", "cut_after", "late"))
    assert all(weather.counts[name]["kills"] for name in ("backfill", "relay 1", "relay 2"))


def test_ten_seconds_of_storm_on_sqlite_lose_nothing(tmp_path: Path, dynamodb_url: str) -> None:
    """A file has one writer at a time, and relays write to it as well."""
    url, faults = f"sqlite:///{tmp_path}/shop.db", faults_of(SEED)
    small = Storm(10, writers=3, per_s=3, customers=150, relays_first=True, lives_s=(2.5, 5.0))
    with shop_project(tmp_path, url, dynamodb_url, faults) as made:
        weather = rage(made, url, small, SEED)
    print(f"\nsqlite, MIGRATOR_TEST_SEED={SEED}{weather}")
    assert weather.marks
    assert sum(counts["kills"] for counts in weather.counts.values())
