"""Backfill and verify by Spark on this host: the whole of Chinook, executors that are killed, and a driver that dies."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from migrator.runtime.errors import INTERRUPTED
from tests.journeys.chinook import ITEMS, ROWS, assert_whole
from tests.journeys.command import ROOT, Project, project, tuned
from tests.journeys.test_processes import PAGES, done_pages, need_whole, slow
from tests.journeys.test_processes import ROWS as SHOP_ROWS
from tests.nightly.spark.shop import await_pages, by_spark, large_shop, pages_once

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def shop(
    tmp_path: Path, dynamodb_url: str, postgres_database: str, spark_environment: dict[str, str]
) -> Project:
    return large_shop(tmp_path, dynamodb_url, postgres_database, spark_environment)


def test_chinook_by_spark_is_the_same(
    tmp_path: Path, dynamodb_url: str, chinook_postgres: str, spark_environment: dict[str, str]
) -> None:
    table, tuning = f"Chinook{secrets.token_hex(4)}", "page_rows: 200"
    made = project(tmp_path, chinook_postgres, dynamodb_url, table, tuning=tuning, own_process=True)
    made.job.write_text(f"{made.job.read_text()}journal: source\n")
    made.environment.update(spark_environment)
    made.done("table", "create", str(made.job))
    finished = made.done(*by_spark("backfill", made, "--json"))
    assert finished.data["total"]["items"] == ITEMS
    assert_whole(made.items(), "postgresql")
    verified = made.done(*by_spark("verify", made, "--json"))
    assert (verified.data["clean"], verified.data["total"]["rows"]) == (True, ROWS)


STEPS = (
    "SqlJournal.claim_pages:2",
    "SqlSource.read_raw:3",
    "DynamoStore.put:7",
    "SqlJournal.finish_page:5",
    "SqlJournal.finish_page%9",
)
"""Of a page, and after which of its calls a process of a task slot is killed, or with which chance; twice each."""
STEPS_OF_VERIFY = (
    "SqlJournal.claim_pages:2",
    "DynamoStore.scan_text:1",
    "SqlSource.read_raw:7",
    "SqlJournal.finish_page:3",
)


def killing(made: Project, steps: Sequence[str]) -> Path:
    """From now on; the folder holds what was done, by step."""
    kills = made.folder / "kills"
    kills.mkdir()
    path = f"{ROOT / 'tests' / 'faults' / 'killing'}:{made.environment['PYTHONPATH']}"
    made.environment.update({"PYTHONPATH": path, "MIGRATOR_TEST_KILL": ",".join(steps)})
    made.environment["MIGRATOR_TEST_KILLS"] = str(kills)
    return kills


def need_kills(made: Project, steps: Sequence[str]) -> None:
    """Each step was met, and nobody is killed any more."""
    assert {file.name for file in (made.folder / "kills").iterdir()} == set(steps)
    made.environment["MIGRATOR_TEST_KILL"] = ""


def test_executors_killed_at_every_step_leave_a_complete_run(shop: Project) -> None:
    killing(shop, STEPS)
    ended = shop.done(*by_spark("backfill", shop, "--json"))
    assert ended.data["total"]["rows"] == 2 * (SHOP_ROWS - 1)
    need_kills(shop, STEPS)
    need_whole(shop)


def test_verify_with_killed_executors_is_whole(shop: Project) -> None:
    tuned(shop, processes=1).done("backfill", str(shop.job))
    killing(shop, STEPS_OF_VERIFY)
    ended = shop.done(*by_spark("verify", shop, "--json"))
    assert (ended.data["clean"], ended.data["scanned_items"]) == (True, 3 * (SHOP_ROWS - 1))
    need_kills(shop, STEPS_OF_VERIFY)
    assert pages_once(shop, "verify") == (PAGES, PAGES, 2 * (SHOP_ROWS - 1))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, INTERRUPTED)])
def test_driver_that_dies_or_stops_resumes_with_the_same_command(
    shop: Project, number: signal.Signals, code: int
) -> None:
    process = slow(shop).start(*by_spark("backfill", shop))
    await_pages(shop, 5)
    spark = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, err = process.communicate(timeout=600)
    assert process.returncode == code, err[-3000:]
    assert not psutil.wait_procs(spark, timeout=60)[1], "executors end with their driver"
    assert done_pages(shop) < PAGES
    shop.job.write_text(shop.job.read_text().replace(", max_write_units: 300", ""))
    ended = shop.done(*by_spark("backfill", shop, "--json"))
    assert "is resumed" in ended.err
    need_whole(shop)
