"""A table with all its options by the installed command; and every command that writes, asked twice or only to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migrator.dynamodb.client import dynamodb_client
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop

OPTIONS = (
    "options: {deletion_protection: true, stream: new_and_old_images, tags: {team: shop}, "
    "contributor_insights: true}, "
)


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url, create=False)


def with_options(shop: Project, options: str) -> None:
    shop.job.write_text(shop.job.read_text().replace("endpoint:", f"{options}endpoint:"))


def test_a_dry_run_prints_the_request_and_creates_nothing(shop: Project) -> None:
    with_options(shop, OPTIONS)
    dry = shop.done("table", "create", str(shop.job), "--dry-run")
    assert (dry.data["TableName"], dry.data["DeletionProtectionEnabled"]) == (shop.table, True)
    assert "then update_continuous_backups:" in dry.err
    assert shop.run("table", "check", str(shop.job)).code == 2
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)
    assert shop.table not in client.list_tables()["TableNames"]


def test_table_has_every_option_and_check_finds_changes(shop: Project) -> None:
    with_options(shop, OPTIONS)
    made = shop.done("table", "create", str(shop.job))
    assert "warning" not in made.err
    assert pins.said(shop.done("table", "check", str(shop.job)).out, "mapping")
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)
    client.update_table(TableName=shop.table, DeletionProtectionEnabled=False)
    changed = shop.run("table", "check", str(shop.job))
    assert (changed.code, pins.said(changed.out, "off")) == (
        1,
        True,
    )
    lines = shop.run("table", "check", str(shop.job), "--as", "terraform").out
    assert '# deletion_protection\n  "deletion_protection_enabled": true\n' in lines
    shop.done("backfill", str(shop.job))  # options hinder no run


def test_recovery_is_on_unless_the_job_disables_it(shop: Project) -> None:
    client = dynamodb_client(region=None, profile=None, endpoint=shop.endpoint)

    def status() -> str:
        found = client.describe_continuous_backups(TableName=shop.table)["ContinuousBackupsDescription"]
        return str(found["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"])

    shop.done("table", "create", str(shop.job))
    assert status() == "ENABLED"
    client.delete_table(TableName=shop.table)
    with_options(shop, "options: {pitr: false}, ")
    shop.done("table", "create", str(shop.job))
    assert status() == "DISABLED"


def test_option_that_an_emulator_lacks_is_a_warning(shop: Project) -> None:
    with_options(shop, "options: {warm_throughput: {read: 12000, write: 4000}}, ")
    made = shop.done("table", "create", str(shop.job))
    checked = shop.run("table", "check", str(shop.job))
    assert ("warm_throughput" in made.err) == (checked.code == 1)


def test_twice_is_once(shop: Project) -> None:
    job = str(shop.job)
    shop.done("table", "create", job)
    assert pins.said(shop.done("table", "create", job).out, "already")
    first = shop.done("backfill", job, "--json").data
    items = shop.items()
    again = shop.done("backfill", job, "--json")
    assert (again.data["run"], again.data["total"]) == (first["run"], first["total"])
    assert pins.said(again.err, "left")
    assert shop.items() == items
    shop.done("backfill", job, "--restart")
    key = json.dumps
    assert sorted(map(key, shop.items())) == sorted(map(key, items))


def test_an_unknown_option_lists_the_known_ones(shop: Project) -> None:
    with_options(shop, "options: {pitt: true}, ")
    refused = shop.run("table", "create", str(shop.job))
    assert (refused.code, pins.said(refused.err)) == (2, True)
