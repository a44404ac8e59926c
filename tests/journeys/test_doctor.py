"""The doctor by the installed command: well, ill in one place after the other, and on a server of its own."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path

import boto3
import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.in_process import Ended
from tests.journeys.small import small_shop


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return small_shop(tmp_path, dynamodb_url)


def states(ended: Ended) -> dict[str, str]:
    return {check["name"]: check["state"] for check in ended.data["checks"]}


def test_all_is_well(shop: Project) -> None:
    found = states(shop.done("doctor", str(shop.job), "--json"))
    assert [name for name, state in found.items() if state != "ok"] == ["permission BatchWriteItem"]
    assert {
        "job",
        "Python",
        "SELECT for invoice",
        "table",
        "permission Scan",
        "clock of DynamoDB",
        "journal",
    } <= set(found)
    written = states(shop.done("doctor", str(shop.job), "--json", "--write"))
    assert set(written.values()) == {"ok"}
    assert shop.items() == []
    told = shop.done("doctor", str(shop.job)).out
    assert pins.said(told)
    assert f"SQLite {sqlite3.sqlite_version}" in told
    assert "migrator doctor --write" in told
    assert told.splitlines()[-1] == f"{len(found)} checks: {len(found) - 1} ok, 1 warning"


def test_a_fault_fails_and_names_its_fix(shop: Project, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("DROP TABLE invoice")
    shop.job.write_text(shop.job.read_text().replace(f"table: {shop.table}", "table: NoSuchTable"))
    ended = shop.run("doctor", str(shop.job), "--json")
    found = states(ended)
    assert (ended.code, found["source and mapping"], found["table"], found["journal"]) == (
        1,
        "failed",
        "failed",
        "ok",
    )
    mends = [check["mend"] for check in ended.data["checks"] if check["name"] == "table"]
    assert mends == [pins.text(job=shop.job)]


def test_every_fault_of_the_mapping_is_shown(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("[name]", "[nme]").replace("[total]", "[totl]"))
    found = shop.run("doctor", str(shop.job), "--json").data["checks"]
    (what,) = [check["what"] for check in found if check["name"] == "source and mapping"]
    assert "nme" in what
    assert "totl" in what
    told = shop.run("doctor", str(shop.job)).out
    assert "more line" not in told
    assert "totl" in told


def test_missing_index_is_not_reported_as_a_permission_problem(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    index = "type: type, indexes: {GSI1: {key: [GSI1PK]}}"
    mapping.write_text(mapping.read_text().replace("type: type", index))
    found = {one["name"]: one for one in shop.run("doctor", str(shop.job), "--json").data["checks"]}
    assert found["table"]["state"] == "failed"
    asked = found["permission Query GSI1"]
    assert (asked["state"], asked["mend"], "table check" in asked["what"]) == ("failed", "", True)


def test_a_job_that_cannot_be_read_is_a_failed_check(shop: Project) -> None:
    shop.job.write_text("job: 1\n")
    ended = shop.run("doctor", str(shop.job), "--json")
    assert (ended.code, states(ended)["job"]) == (1, "failed")


def test_decreased_tickets_are_found_before_anything_is_written(tmp_path: Path, dynamodb_url: str) -> None:
    shop = small_shop(tmp_path, dynamodb_url, create=False)
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type", "type: type, ttl: ttl"))
    job = str(shop.job)
    for words in (("table", "create", job), ("capture", "install", job), ("backfill", job)):
        shop.done(*words)
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("UPDATE customer SET name = 'Eve' WHERE id = 1")
    shop.done("relay", job, "--once")
    well = states(shop.done("doctor", job, "--json"))
    assert (well["marks"], well["tickets"]) == ("ok", "ok")
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("UPDATE migrator_ticket SET number = 0")
    ended = shop.run("doctor", job, "--json")
    (found,) = [one for one in ended.data["checks"] if one["name"] == "tickets"]
    assert (ended.code, found["state"]) == (1, "failed")
    assert pins.said(found["what"])


def test_a_bucket_is_tried_and_nothing_stays_in_it(shop: Project, dynamodb_url: str) -> None:
    bucket = f"b{secrets.token_hex(6)}"
    words = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
    made = boto3.client("s3", endpoint_url=dynamodb_url, **words)
    made.create_bucket(Bucket=bucket)
    text = shop.job.read_text()
    shop.job.write_text(text.replace(f"table: {shop.table}", f"table: {shop.table}, bucket: {bucket}"))
    found = states(shop.done("doctor", str(shop.job), "--json", "--write"))
    probed = {name: state for name, state in found.items() if name.startswith("permission s3:")}
    actions = ("ListBucket", "GetObject", "PutObject", "DeleteObject")
    assert probed == dict.fromkeys((f"permission s3:{action}" for action in actions), "ok")
    assert made.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    shop.job.write_text(text.replace(f"table: {shop.table}", f"table: {shop.table}, bucket: absent-{bucket}"))
    ended = shop.run("doctor", str(shop.job), "--json", "--write")
    (refused,) = [one for one in ended.data["checks"] if one["name"] == "permission s3:PutObject"]
    assert (refused["state"], pins.said(refused["what"])) == ("failed", True)
