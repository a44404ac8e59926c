"""Ten seconds of writes, kills and faults; tests/storms has a minute of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.storms.storm import Storm, faults_of, rage, shop_project

SEED = int(os.environ.get("MIGRATOR_TEST_SEED", random.randrange(10**6)))
GUST = Storm(10, writers=8, per_s=2, customers=150, relays_first=True, lives_s=(2.5, 5.0))
# An SQLite file has one writer at a time, and relays write to it, too.
SMALL = Storm(10, writers=3, per_s=3, customers=150, relays_first=True, lives_s=(2.5, 5.0))


@pytest.mark.parametrize(
    ("engine", "storm"),
    [
        ("postgres_database", GUST),
        # MariaDB has its minute in the soak; SQLite's ten seconds go there too.
        pytest.param("sqlite", SMALL),
    ],
)
def test_a_storm_loses_nothing(
    engine: str, storm: Storm, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    sqlite = f"sqlite:///{tmp_path}/shop.db"
    url, faults = sqlite if engine == "sqlite" else request.getfixturevalue(engine), faults_of(SEED)
    with shop_project(tmp_path, url, dynamodb_url, faults) as made:
        weather = rage(made, url, storm, SEED)
    weather.counts["faults"] = faults.counts
    print(f"\n{engine}, MIGRATOR_TEST_SEED={SEED}{weather}")
    assert weather.marks
    assert sum(counts["kills"] for counts in weather.counts.values())
