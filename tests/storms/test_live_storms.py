"""A minute of writes, kills and faults on a real server, after which every item is what the rows say."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.storms.storm import Storm, faults_of, rage, shop_project

SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))
MINUTE = Storm(
    seconds=float(os.environ.get("MIGRATOR_TEST_STORM_S", "60")), writers=8, per_s=5, customers=1500
)


@pytest.mark.parametrize(
    "engine", ["postgres_database", pytest.param("mysql_database", marks=pytest.mark.nightly)]
)
def test_a_minute_of_storm_loses_nothing(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url, faults = request.getfixturevalue(engine), faults_of(SEED)
    with shop_project(tmp_path, url, dynamodb_url, faults) as made:
        weather = rage(made, url, MINUTE, SEED)
    weather.counts["faults"] = faults.counts
    print(f"\n{engine}, MIGRATOR_TEST_SEED={SEED}{weather}")
    assert all(faults.counts[kind] for kind in ("throttle", "errors", "cut_before", "cut_after", "late"))
    assert all(weather.counts[name]["kills"] for name in ("backfill", "relay 1", "relay 2"))
