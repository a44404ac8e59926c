"""From old tables of DynamoDB to one, pattern by pattern: the moves, a rollback, the end; and what stands in its way."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.api import Migration
from tests import pins
from tests.journeys.documents import Shop, old_shop
from tests.service.reading import records

PROFILE = [{"name": "Name 4", "city": "City 4", "score": 4}]
LIMITS = {
    "cutover": {
        "quiet": "0.5s",
        "comparisons_min": 100,
        "mismatch_max": 0.05,
        "error_max": 0.05,
        "p99_factor": 1000,
        "leave": ["Coupons"],
    },
    "tuning": {"request_life_s": 0.5, "silent_s": 10, "lease_s": 1},
    "reads": {"phase_cache_s": 0.2, "shadow": {"settle_s": 0.1}},
}


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Iterator[Shop]:
    """Of its patterns the one by which profiles are read."""
    with old_shop(tmp_path, dynamodb_url, {"Coupons": "prod-coupons"}) as made:
        mapping = tmp_path / "mapping.yaml"
        mapping.write_text(mapping.read_text().partition("  orders_of_user:")[0])
        job = json.loads(made.project.job.read_text())
        made.project.job.write_text(json.dumps(job | LIMITS))
        yield made


def answers(shop: Shop) -> tuple[str, list[dict[str, object]]]:
    """Which side answers a service now, and what."""
    with Migration.load(shop.job) as migration:
        answer = records(migration.read("profile", user_id="u4"))
        return answer.origin, [dict(record) for record in answer]


def moved(shop: Shop, *words: str) -> None:
    override = () if words[0] == "rollback" else ("--override", "another test's")
    shop.project.done("cutover", words[0], shop.job, "profile", *words[1:], *override)


def test_a_pattern_moves_there_and_back_and_there(shop: Shop) -> None:
    steps = (["advance"], ["ramp", "100"], ["advance"], ["rollback"], ["advance"], ["ramp", "100"])
    origins = [answers(shop)]
    for words in steps:
        moved(shop, *words)
        origins.append(answers(shop))
    assert [origin for origin, _ in origins] == ["sql", "sql", "table", "table", "sql", "sql", "table"]
    assert all(answer == PROFILE for _, answer in origins)
    assert "profile" in shop.project.done("cutover", "status", "--history", shop.job, "profile").out
    shop.project.done("report", shop.job)


def proven(shop: Shop, migration: Migration, *words: str) -> dict[str, Any]:
    """The service reads until its answers are evidence enough; then the move."""
    asked = ("cutover", words[0], shop.job, "profile", *words[1:])
    ends_at = time.monotonic() + 300
    while not shop.project.run(*asked, "--dry-run", "--json").data.get("ok"):
        assert time.monotonic() < ends_at, shop.project.run(*asked, "--dry-run").out
        for number in range(60):
            assert migration.read("profile", user_id=f"u{number % 12}")
    return dict(shop.project.done(*asked, "--yes", "--json").data)


def test_service_reads_are_evidence_and_streams_show_no_changes(shop: Shop) -> None:
    made, job = shop.project, shop.job
    made.done("verify", job)
    moved(shop, "advance")
    with made.beside("relay", job), Migration.load(job) as migration:
        proven(shop, migration, "ramp", "100")
        proven(shop, migration, "advance")
        refused = made.run("cutover", "advance", job, "profile", "--yes", "--json")
        assert refused.code == 1
        assert pins.said(refused.out, "databases")
        told = proven(shop, migration, "advance", "--one-way")
    found = {line["name"]: line["found"] for line in told["evidence"]}
    assert (found["transactions"], found["unmigrated"]) == ("0 open", pins.text("purpose"))
    assert "complete" in str(made.done("cutover", "status", job, "--json").data)


def test_end_lists_the_aws_calls_and_a_late_write_is_detected(shop: Shop) -> None:
    made, job = shop.project, shop.job
    made.done("verify", job)
    for words in (["advance"], ["ramp", "100"], ["advance"]):
        moved(shop, *words)
    made.done("cutover", "advance", job, "profile", "--one-way", "--yes", "--override", "another test's")
    quiet = made.done("decommission", "check", job, "--explain")
    assert "nothing depends on SQL" in quiet.out
    orders = shop.real["Orders"]
    for call in (
        "aws dynamodb put-resource-policy --endpoint-url http://",
        "remove the record of capture and the pending changes from the journal\n",
        f":table/{orders} --policy '{{",
        f" --table-name {orders} --backup-name {orders}-last",
        "describe-alarms",
    ):
        assert call in quiet.out
    shop.tables.put(orders, [{"order_id": "late", "user_id": "u1", "placed": "2024-06-01T10:00:00Z"}])
    late = made.run("decommission", "check", job, "--json")
    lines = {line["name"]: line for line in late.data["lines"]}
    assert (late.code, lines["verify"]["verdict"]) == (1, "no")
    assert pins.said(lines["verify"]["found"], "orders")
    made.done("capture", "uninstall", job, "--discard-marks")
    made.done("clean", "--attributes", job, "--yes")
    item = shop.tables.client.get_item(
        TableName=made.table, Key={"PK": {"S": "USER#u4"}, "SK": {"S": "PROFILE"}}
    )
    assert set(item["Item"]) == {"PK", "SK", "type", "id", "name", "score", "city"}


def test_unmapped_table_and_continued_writes_block_the_end(shop: Shop) -> None:
    made, job = shop.project, shop.job
    text = made.job.read_text().replace('"quiet": "0.5s"', '"quiet": "3s"').replace('["Coupons"]', "[]")
    made.job.write_text(text)
    made.done("verify", job)
    ends = threading.Event()

    def write() -> None:
        number = 0
        while not ends.wait(0.1):
            number += 1
            shop.tables.put(shop.real["Users"], [{"id": "u1", "name": f"Name {number}"}])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        told = made.run("decommission", "check", job, "--json").data
    finally:
        ends.set()
        writer.join()
    lines = {line["name"]: line for line in told["lines"]}
    assert lines["changes"]["verdict"] == "no"
    assert "Users" in lines["changes"]["found"]
    assert lines["marks"]["verdict"] == "no"
    assert lines["unmigrated"]["found"] == "Coupons"
