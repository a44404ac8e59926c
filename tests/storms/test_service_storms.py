"""A minute of services that write through the adapter, kills and faults, after which every item is what the rows say."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.storms.service_storm import KINDS, rage_among_services
from tests.storms.storm import Storm, faults_of, shop_project

SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))
MINUTE = Storm(
    seconds=float(os.environ.get("MIGRATOR_TEST_STORM_S", "60")),
    writers=5,
    per_s=3,
    customers=600,
    lives_s=(7.0, 14.0),
)


@pytest.mark.parametrize(
    "engine", ["postgres_database", pytest.param("mysql_database", marks=pytest.mark.nightly)]
)
def test_a_minute_of_services_loses_nothing(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url, faults = request.getfixturevalue(engine), faults_of(SEED)
    with shop_project(tmp_path, url, dynamodb_url, faults) as made:
        weather = rage_among_services(made, url, MINUTE, SEED)
    weather.counts["faults"] = faults.counts
    print(f"\n{engine}, MIGRATOR_TEST_SEED={SEED}{weather}")
    assert all(weather.counts[name]["kills"] for name in weather.counts if name not in ("changes", "faults"))
    assert all(weather.counts[f"service {kind}"]["committed"] for kind in KINDS)
