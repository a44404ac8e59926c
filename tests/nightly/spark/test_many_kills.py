"""A driver and its executors killed fifty times at random; what is written is measured outside of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from migrator.journal.operations import WINDOW_S
from tests.faults.proxy import FaultProxy, most_spent
from tests.faults.schedule import Faults
from tests.journeys.test_processes import need_compared, need_pages, need_whole
from tests.nightly.spark.shop import by_spark, large_shop
from tests.storms.test_process_kills import SEED, kill_at_random

pytestmark = pytest.mark.xdist_group("spark")

UNITS_PER_S = 100


def executors(driver: int) -> Iterator[psutil.Process]:
    """Those that work the pages: one for each slot, and the one that forks them."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(driver).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "pyspark.daemon" in child.cmdline():
                    yield child


def test_executors_killed_at_random_lose_nothing_within_budget(
    tmp_path: Path, dynamodb_url: str, postgres_database: str, spark_environment: dict[str, str]
) -> None:
    print(f"\nMIGRATOR_TEST_SEED={SEED}")
    with FaultProxy(dynamodb_url, Faults(late=1.0, late_s=0.1, seed=SEED)) as proxy:
        made = large_shop(tmp_path, proxy.url, postgres_database, spark_environment)
        text = made.job.read_text()
        made.job.write_text(text.replace("workers: 2", f"workers: 2, max_write_units: {UNITS_PER_S}"))
        kill_at_random(made, need_pages, *by_spark("backfill", made), of=executors)
        most = most_spent(proxy.spent, "", WINDOW_S)
        print(f"{most:g} write units in the fullest {WINDOW_S:g} s, of {UNITS_PER_S * WINDOW_S:g}")
        assert 0 < most <= UNITS_PER_S * WINDOW_S
        need_whole(made)
        kill_at_random(made, need_compared, *by_spark("verify", made), of=executors)
        need_compared(made)
