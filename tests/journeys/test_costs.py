"""What a backfill costs by the installed command: told before it starts, and held against a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url, region="us-east-1")


def test_dry_run_estimates_the_cost_of_the_real_run(shop: Project) -> None:
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    told = dry.data["estimate"]
    assert (told["rows"], told["items"], told["write_units"]) == (90, 150, 150)
    assert told["write_usd"] == pytest.approx(150 * 0.625 / 1_000_000)
    assert pins.said(dry.err, "estimate")
    assert pins.said(dry.err, "demand")
    assert shop.items() == []

    real = shop.done("backfill", str(shop.job), "--json", "--max-cost", "0.01")
    assert real.data["total"]["write_units"] == 150
    assert "estimate:" not in shop.done("backfill", str(shop.job)).err


def test_above_the_limit_nothing_starts(shop: Project) -> None:
    refused = shop.run("backfill", str(shop.job), "--max-cost", "0.00001")
    assert (refused.code, "more than --max-cost 0.00001" in refused.err) == (2, True)
    assert shop.run("backfill", str(shop.job), "--max-cost", "much").code == 2
    shop.job.write_text(shop.job.read_text().replace("tuning: {", "tuning: {confirm_above: 0.00001"))
    asked = shop.run("backfill", str(shop.job))
    assert (asked.code, pins.said(asked.err, "terminal")) == (2, True)
    assert shop.items() == []
    assert pins.said(shop.done("status", str(shop.job)).out, "yet")
    shop.done("backfill", str(shop.job), "--yes")
    assert len(shop.items()) == 150


def test_a_region_without_prices_is_reported(shop: Project) -> None:
    shop.job.write_text(shop.job.read_text().replace("us-east-1", "mars-north-1"))
    dry = shop.done("backfill", str(shop.job), "--dry-run")
    assert pins.said(dry.err, "price")
    refused = shop.run("backfill", str(shop.job), "--dry-run", "--max-cost", "5")
    assert (refused.code, pins.said(refused.err, "region")) == (
        2,
        True,
    )


def test_without_a_region_prices_are_those_of_the_usual_one(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        shop.environment.pop(name, None)
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--max-cost", "1")
    assert pins.said(dry.err, "demand")
    assert dry.err.rstrip() == pins.text("region")
    shop.environment["AWS_REGION"] = "eu-central-1"
    dry = shop.done("backfill", str(shop.job), "--dry-run")
    assert pins.said(dry.err, "demand-2")
    assert not pins.said_by("test_without_a_region_prices_are_those_of_the_usual_one region", dry.err)


def test_the_tables_class_and_capacity_count(shop: Project) -> None:
    plain = shop.job.read_text()
    shop.job.write_text(
        plain.replace("target: {", "target: {options: {table_class: standard_infrequent_access}, ")
    )
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    assert dry.data["estimate"]["write_usd"] == pytest.approx(150 * 0.78125 / 1_000_000)
    assert pins.said(dry.err, "infrequent")

    shop.job.write_text(plain.replace("target: {", "target: {options: {provisioned: {read: 5, write: 5}}, "))
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    assert dry.data["estimate"]["write_usd"] is None
    assert pins.said(dry.err, "bills")
    refused = shop.run("backfill", str(shop.job), "--dry-run", "--max-cost", "5")
    assert (refused.code, pins.said(refused.err, "hour")) == (2, True)
