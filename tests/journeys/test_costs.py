"""What a backfill costs by the installed command: told before it starts, and held against a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.journeys.command import Project
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url, region="us-east-1")


def test_a_dry_run_says_what_the_real_run_will_take(shop: Project) -> None:
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    told = dry.data["estimate"]
    assert (told["rows"], told["items"], told["write_units"]) == (90, 150, 150)
    assert told["write_usd"] == pytest.approx(150 * 0.625 / 1_000_000)
    assert "estimate: 90 rows make about 150 items and 150 write units, 0 of them for indexes" in dry.err
    assert "on demand in us-east-1 less than USD 0.01 to write" in dry.err
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
    assert (asked.code, "there is no terminal to ask at; say --yes" in asked.err) == (2, True)
    assert shop.items() == []
    assert "nothing has run yet" in shop.done("status", str(shop.job)).out
    shop.done("backfill", str(shop.job), "--yes")
    assert len(shop.items()) == 150


def test_a_region_without_prices_says_so(shop: Project) -> None:
    shop.job.write_text(shop.job.read_text().replace("us-east-1", "mars-north-1"))
    dry = shop.done("backfill", str(shop.job), "--dry-run")
    assert "no price is known for the region mars-north-1" in dry.err
    refused = shop.run("backfill", str(shop.job), "--dry-run", "--max-cost", "5")
    assert (refused.code, "no price is known for the region mars-north-1; known: " in refused.err) == (
        2,
        True,
    )


def test_without_a_region_prices_are_those_of_the_usual_one(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        shop.environment.pop(name, None)
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--max-cost", "1")
    assert "on demand in us-east-1 less than USD 0.01 to write" in dry.err
    assert dry.err.rstrip().endswith("; no region is set: these are us-east-1's")
    shop.environment["AWS_REGION"] = "eu-central-1"
    dry = shop.done("backfill", str(shop.job), "--dry-run")
    assert ("on demand in eu-central-1" in dry.err, "no region is set" in dry.err) == (True, False)


def test_the_tables_class_and_capacity_count(shop: Project) -> None:
    plain = shop.job.read_text()
    shop.job.write_text(
        plain.replace("target: {", "target: {options: {table_class: standard_infrequent_access}, ")
    )
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    assert dry.data["estimate"]["write_usd"] == pytest.approx(150 * 0.78125 / 1_000_000)
    assert "on demand in us-east-1, infrequent access, less than" in dry.err

    shop.job.write_text(plain.replace("target: {", "target: {options: {provisioned: {read: 5, write: 5}}, "))
    dry = shop.done("backfill", str(shop.job), "--dry-run", "--json")
    assert dry.data["estimate"]["write_usd"] is None
    assert "AWS bills it by the hour" in dry.err
    refused = shop.run("backfill", str(shop.job), "--dry-run", "--max-cost", "5")
    assert (refused.code, "AWS bills it by the hour" in refused.err) == (2, True)
