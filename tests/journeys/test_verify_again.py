"""A verify that was stopped: what it looked at before, how it begins anew, and a repair that is only tried."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import MAPPING, small_shop
from tests.support_items import put_items


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url, create=False)
    (tmp_path / "mapping.yaml").write_text(MAPPING.replace("type: type", "type: type, ttl: expiresAt"))
    made.environment["MIGRATOR_HOME"] = str(tmp_path / "home")
    made.done("table", "create", str(made.job))
    return made


def stopped(shop: Project, hours_ago: float) -> None:
    """The last verify was stopped after its last page, so long ago."""
    moment = (datetime.now(UTC) - timedelta(hours=hours_ago)).isoformat(" ", "seconds")
    with closing(sqlite3.connect(shop.folder / "home" / "shop.db")) as journal:
        journal.execute(
            "UPDATE migrator_run SET state = 'interrupted', started_at = ?, ended_at = ? WHERE kind = 'verify'",
            (moment, moment),
        )
        journal.execute(
            "UPDATE migrator_page SET done_at = ? WHERE run_id IN (SELECT id FROM migrator_run WHERE kind = 'verify')",
            (moment,),
        )
        journal.commit()


def corrupt(shop: Project) -> None:
    item = next(item for item in shop.items() if item["PK"] == "C#1" and item["SK"] == "META")
    put_items(shop.store(), [{**item, "name": "somebody else"}])


@pytest.mark.parametrize("words", [[], ["--sample", "100%", "--seed", "1"]])
def test_resumed_verify_reports_its_start_and_restart_rereads(shop: Project, words: list[str]) -> None:
    job = str(shop.job)
    shop.done("backfill", job)
    shop.done("verify", job, *words)
    stopped(shop, 0.5)
    corrupt(shop)
    resumed = shop.run("verify", job, *words)
    assert "is resumed" in resumed.err
    assert pins.said(resumed.out, "were")
    assert pins.said(resumed.out, "anew")
    stopped(shop, 0.5)
    anew = shop.run("verify", job, *words, "--restart")
    assert (anew.code, "is resumed" in anew.err, "rows were read since" in anew.out) == (1, False, False)


def test_totals_of_before_a_change_are_not_compared(shop: Project) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    for command in ("backfill", "verify"):
        shop.done(command, job)
    stopped(shop, 0.1)
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
        source.execute("INSERT INTO customer SELECT id + 1000, name FROM customer")
        source.commit()
    shop.done("relay", job, "--once")
    assert shop.done("verify", job, "--settle", "0s").code == 0


def test_verify_stopped_long_ago_begins_again(shop: Project) -> None:
    job = str(shop.job)
    shop.done("backfill", job)
    shop.done("verify", job)
    stopped(shop, 1.5)
    corrupt(shop)
    anew = shop.run("verify", job)
    assert anew.code == 1
    assert pins.said(anew.err)
    assert "starts from the beginning" in anew.err


def test_a_repair_can_be_tried(shop: Project) -> None:
    job = str(shop.job)
    shop.done("capture", "install", job)
    shop.done("backfill", job)
    corrupt(shop)
    advised = shop.run("verify", job, "--settle", "0s").err
    assert pins.said(advised, "next", job=job)
    tried = shop.run("verify", job, "--repair", "--dry-run", "--settle", "0s")
    assert (tried.code, pins.said(tried.err, "marked")) == (1, True)
    assert pins.said(shop.done("relay", job, "--dry-run").out, "waits")
    assert "the oldest for" not in tried.err
    assert pins.said(shop.run("verify", job, "--repair", "--settle", "0s").err, "row")
    assert pins.said(shop.run("verify", job, "--settle", "0s").err, "wait")
    refused = shop.run("verify", job, "--dry-run")
    assert (refused.code, "--dry-run requires --repair" in refused.err) == (2, True)


def test_items_left_to_the_service_are_not_foreign(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url).prepared("backfill")
    put_items(shop.store(), [{"PK": "COUNTER", "SK": "order", "last": 60}])
    assert shop.run("verify", str(shop.job), "--json").data["findings"] == {"foreign": 1}
    shop.job.write_text(f"{shop.job.read_text()}writes: {{leave: [COUNTER]}}\n")
    assert shop.done("verify", str(shop.job), "--json").data["clean"]
    assert shop.done("look", str(shop.job), "--pk", "COUNTER", "--json").data["items"][0]["state"] == "direct"
