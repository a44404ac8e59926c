"""A table by DynamoDB's own import: exported while services write, imported, caught up by the relay, proved by verify."""

from __future__ import annotations

import gzip
import hashlib
import json
import secrets
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import pytest

from migrator.features.bulk.export import keep_state
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import Manifest, manifest_digest
from migrator.runtime.values import replace
from tests import pins
from tests.journeys.command import Project
from tests.journeys.small import small_shop

_S3 = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}


@pytest.fixture
def s3(dynamodb_url: str) -> Any:
    return boto3.client("s3", endpoint_url=dynamodb_url, **_S3)


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"items-{secrets.token_hex(4)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    made = small_shop(tmp_path, dynamodb_url, create=False)
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("type: type", "type: type, ttl: expiresAt"))
    return made


def changed(shop: Project, *statements: str) -> None:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as source, source:
        for statement in statements:
            source.execute(statement)


def exported(shop: Project, to: str, *words: str) -> Any:
    return shop.done("table", "export", str(shop.job), "--to", to, *words, "--json").data


def lines_of(data: bytes) -> list[Any]:
    return [json.loads(line)["Item"] for line in gzip.decompress(data).splitlines()]


def objects(s3: Any, bucket: str) -> list[str]:
    return sorted(one["Key"] for one in s3.list_objects_v2(Bucket=bucket).get("Contents", []))


def test_table_imported_during_writes_is_clean_after_the_relay(shop: Project, s3: Any, bucket: str) -> None:
    job, place = str(shop.job), f"s3://{bucket}/shop"
    shop.done("capture", "install", job)
    assert exported(shop, place)["items"] == 150
    changed(shop, "UPDATE customer SET name = 'New' WHERE id = 1", "DELETE FROM invoice WHERE id = 2")
    assert objects(s3, bucket) == ["shop/data/part-00001.json.gz", "shop/manifest.json"]
    imported = shop.done("table", "import", job, "--from", place, "--json").data
    assert (imported["items"], imported["replaced"]) == (150, 0)
    changed(shop, "UPDATE invoice SET total = 9 WHERE id = 3", "INSERT INTO customer VALUES (99, 'Zoë')")
    assert pins.said(shop.done("backfill", job).err, "left")
    assert shop.run("verify", job, "--settle", "0").code == 1
    shop.done("relay", job, "--once")
    shop.done("verify", job)
    assert pins.said(shop.done("table", "import", job, "--from", place).err, "nothing")


def test_two_exports_of_the_same_rows_are_equal_in_folder_and_s3(shop: Project, s3: Any, bucket: str) -> None:
    whole = exported(shop, "first")
    assert (whole["published"], whole["files"], whole["rows"]) == (True, 1, 90)
    exported(shop, "second", "--workers", "1")
    exported(shop, f"s3://{bucket}")
    parts = [
        (shop.folder / name / "data" / "part-00001.json.gz").read_bytes() for name in ("first", "second")
    ]
    parts.append(s3.get_object(Bucket=bucket, Key="data/part-00001.json.gz")["Body"].read())
    assert len({hashlib.md5(part).hexdigest() for part in parts}) == 1
    keys = [(item["PK"]["S"], item["SK"]["S"]) for item in lines_of(parts[0])]
    assert len(set(keys)) == 150
    # In no order of keys: one that is sorted would be written to one partition after the other.
    assert sum(a < b for a, b in pairwise(keys)) < 100
    assert not [path for path in (shop.folder / "first").rglob("*") if "pages" in path.parts]
    assert pins.said(shop.done("table", "export", str(shop.job), "--to", "first").err)


def test_plan_prices_the_import_and_names_the_cheapest_way(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    indexes = "indexes: {GSI1: {key: [PK2, SK2]}}"
    mapping.write_text(
        mapping.read_text()
        .replace("type: type", f"type: type, {indexes}")
        .replace("keep: [total]}", "keep: [total], GSI1: [INVOICES, 'I#{id:06}']}")
    )
    planned = shop.done("plan", str(shop.job), "--region", "us-east-1", "--json").data
    assert planned["load"]["json_bytes"] == exported(shop, "items")["json_bytes"]
    said = " ".join(shop.done("plan", str(shop.job), "--region", "us-east-1").out.split())
    # So few items cost less than a cent whichever way, and then nothing is simpler than batches.
    assert "cheapest: batches (less than USD 0.01); fastest: batches (less than a minute; 4,000 write" in said
    assert pins.said(said, "bucket")
    assert (planned["cheapest"], planned["fastest"]) == ("batches", "batches")
    assert {way["name"]: way["usd"] for way in planned["ways"]}["import"] == pytest.approx(
        0.15 * planned["load"]["json_bytes"] / 1024**3
    )
    mapping.write_text(
        mapping.read_text()
        .replace("[PK2, SK2]", "[PK, {name: SK2, type: text}], local: true")
        .replace("[INVOICES, ", "[")
    )
    local = shop.run("plan", str(shop.job), "--region", "us-east-1")
    assert pins.said(" ".join(local.out.split()), "local"), local.err


def test_existing_export_is_replaced_only_on_request(shop: Project) -> None:
    job, place = str(shop.job), shop.folder / "items"
    exported(shop, "items")
    changed(shop, "INSERT INTO customer VALUES (99, 'Zoë')")
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace("keep: [name]", "keep: [id, name]"))
    refused = shop.run("table", "export", job, "--to", "items")
    assert (refused.code, pins.said(refused.err, "holds")) == (2, True)
    assert exported(shop, "items", "--restart")["items"] == 151
    (place / "mine.txt").write_text("")
    refused = shop.run("table", "export", job, "--to", "items", "--restart")
    assert (refused.code, pins.said(refused.err, "wrote")) == (2, True)


def test_two_rows_of_one_key_are_never_published(shop: Project, s3: Any, bucket: str) -> None:
    job, place = str(shop.job), f"s3://{bucket}/shop"
    mapping = shop.folder / "mapping.yaml"
    mapping.write_text(mapping.read_text().replace('["C#{id}", META]', '["N#{name}", META]'))
    changed(shop, "UPDATE customer SET name = 'Name 1' WHERE id = 2")
    found = shop.run("table", "export", job, "--to", place)
    assert found.code == 1
    assert pins.said(found.err, "published")
    shown = " ".join(shop.run("status", "--findings", job, "--show-keys").out.split())
    assert "collision: customer [2] item Customer" in shown
    assert pins.said(shown, "customer")
    assert not [name for name in objects(s3, bucket) if "/pages/" not in name]
    refused = shop.run("table", "import", job, "--from", place)
    assert (refused.code, pins.said(refused.err, "manifest")) == (2, True)
    # The row that was first moves on; the other one has its key from now on, and no item of the first is left.
    changed(shop, "UPDATE customer SET name = 'Another' WHERE id = 1")
    assert exported(shop, place)["items"] == 150
    shop.done("table", "import", job, "--from", place)
    shop.done("verify", job)


def test_refused_rows_prevent_publishing_the_export(shop: Project) -> None:
    changed(shop, "INSERT INTO customer VALUES (77, '" + "x" * 410_000 + "')")
    found = shop.run("table", "export", str(shop.job), "--to", "items", "--json")
    assert (found.code, found.data["published"], found.data["findings"]) == (1, False, {"refused": 1})
    assert not (shop.folder / "items" / "manifest.json").exists()


@pytest.fixture
def items(shop: Project, bucket: str) -> str:
    """Where the shop was exported to."""
    exported(shop, f"s3://{bucket}/shop")
    return f"s3://{bucket}/shop"


def test_an_export_that_was_touched_is_not_imported(shop: Project, s3: Any, bucket: str, items: str) -> None:
    def refused() -> str:
        ended = shop.run("table", "import", str(shop.job), "--from", items)
        assert ended.code == 2, ended.err
        return ended.err

    name = "shop/data/part-00001.json.gz"
    whole = s3.get_object(Bucket=bucket, Key=name)["Body"].read()
    s3.put_object(Bucket=bucket, Key=name, Body=gzip.compress(gzip.decompress(whole) + b"{no item\n"))
    s3.put_object(Bucket=bucket, Key="shop/data/part-00002.json.gz", Body=whole)
    said = refused()
    assert pins.said(said, "export")
    s3.delete_object(Bucket=bucket, Key="shop/data/part-00002.json.gz")
    s3.delete_object(Bucket=bucket, Key=name)
    assert "data/part-00001.json.gz is missing" in refused()
    manifest = s3.get_object(Bucket=bucket, Key="shop/manifest.json")["Body"].read()
    s3.put_object(Bucket=bucket, Key="shop/manifest.json", Body=manifest.replace(b"150", b"151"))
    assert pins.said(refused(), "manifest")
    s3.put_object(Bucket=bucket, Key="shop/manifest.json", Body=b"[]")
    assert pins.said(refused(), "none")
    assert pins.said(shop.run("table", "check", str(shop.job)).err, "table")


def test_export_of_another_mapping_or_journal_is_not_imported(shop: Project, items: str) -> None:
    asked = ("table", "import", str(shop.job), "--from", items)
    mapping = shop.folder / "mapping.yaml"
    text = mapping.read_text()
    mapping.write_text(text.replace("keep: [name]", "keep: [id, name]"))
    refused = shop.run(*asked)
    assert (refused.code, pins.said(refused.err, "exported")) == (2, True)
    mapping.write_text(text)
    shop.done("capture", "install", str(shop.job))
    assert pins.said(shop.run(*asked).err, "installed")
    (shop.folder / ".migrator" / "shop.db").rename(shop.folder / "lost.db")
    refused = shop.run(*asked)
    assert (refused.code, pins.said(refused.err, "journal")) == (2, True)


def test_a_table_that_is_there_is_left_alone(shop: Project, items: str) -> None:
    shop.done("table", "create", str(shop.job))
    refused = shop.run("table", "import", str(shop.job), "--from", items)
    assert (refused.code, pins.said(refused.err, table=shop.table)) == (2, True)
    assert shop.items() == []


def test_a_mapping_with_a_local_index_is_not_imported(shop: Project) -> None:
    mapping = shop.folder / "mapping.yaml"
    index = "indexes: {Local: {key: [PK, {name: total, type: number}], local: true}}"
    mapping.write_text(mapping.read_text().replace("type: type", f"type: type, {index}"))
    refused = shop.run("table", "import", str(shop.job), "--from", "s3://some-bucket/x")
    assert (refused.code, pins.said(refused.err)) == (2, True), refused.err


@pytest.mark.parametrize(
    "place",
    [
        "s3://no-such-bucket-here/x",
        "s3://B/x",
        "/proc/items",
    ],
)
def test_a_place_that_cannot_be_written_is_named(shop: Project, place: str) -> None:
    refused = shop.run("table", "export", str(shop.job), "--to", place)
    assert (refused.code, pins.said(refused.err)) == (2, True), refused.err


def test_an_import_reads_from_s3_alone(shop: Project) -> None:
    refused = shop.run("table", "import", str(shop.job), "--from", "items")
    assert (refused.code, pins.said(refused.err)) == (2, True)


def published_anew(shop: Project, s3: Any, bucket: str, change: Callable[[bytes], bytes]) -> None:
    """The export's one part changed, and manifest and journal with it: what no check can see, DynamoDB does."""
    name = "shop/data/part-00001.json.gz"
    part = gzip.compress(change(gzip.decompress(s3.get_object(Bucket=bucket, Key=name)["Body"].read())))
    s3.put_object(Bucket=bucket, Key=name, Body=part)
    before = Manifest.read(s3.get_object(Bucket=bucket, Key="shop/manifest.json")["Body"].read())
    md5 = hashlib.md5(part, usedforsecurity=False).hexdigest()
    manifest = replace(before, parts=[replace(before.parts[0], md5=md5, bytes=len(part))])
    s3.put_object(Bucket=bucket, Key="shop/manifest.json", Body=manifest.data())
    with closing(SqlJournal(f"sqlite:///{shop.folder}/.migrator/shop.db")) as journal:
        keep_state(journal, journal.runs("shop")[0], manifest=manifest_digest(manifest.data()))


def test_items_that_dynamodb_does_not_take_are_findings(
    shop: Project, s3: Any, bucket: str, items: str
) -> None:
    job = str(shop.job)
    kept = b'"PK":{"S":"C#7"},"SK":{"S":"META"}'
    published_anew(
        shop,
        s3,
        bucket,
        lambda lines: b"{no item\n" + lines.replace(kept, b'"PK":{"N":"7"},"SK":{"S":"META"}'),
    )
    failed = shop.run("table", "import", job, "--from", items)
    assert failed.code == 1
    assert pins.said(failed.err, "ended")
    assert pins.said(failed.err, "taken")
    found = shop.run("status", "--findings", job, "--json", "--show-keys").data["findings"]
    assert [(one["kind"], one["entity"], one["source_key"], one["item_type"]) for one in found] == [
        ("unwritten", "", "", ""),
        ("unwritten", "customer", "[7]", "Customer"),
    ]
    assert found[0]["reason"].startswith("data/part-00001.json.gz, line 1: ")
    # What is half there is no table to write to; the import says so again, and a backfill refuses it.
    assert shop.run("table", "import", job, "--from", items).code == 1
    assert pins.said(shop.run("backfill", job).err, "case")
    shop.store().client.delete_table(TableName=shop.table)
    exported(shop, items, "--restart")
    shop.done("table", "import", job, "--from", items)
    shop.done("verify", job)


def test_an_item_that_replaced_another_is_noticed(shop: Project, s3: Any, bucket: str, items: str) -> None:
    published_anew(
        shop, s3, bucket, lambda lines: lines.replace(b'"C#7"},"SK":{"S":"META"', b'"C#8"},"SK":{"S":"META"')
    )
    failed = shop.run("table", "import", str(shop.job), "--from", items)
    assert (failed.code, pins.said(failed.err)) == (1, True), failed.err


def test_writers_are_refused_until_the_import_has_succeeded(shop: Project, s3: Any, bucket: str) -> None:
    job, place = str(shop.job), f"s3://{bucket}/shop"
    shop.done("capture", "install", job)
    exported(shop, place)
    published_anew(shop, s3, bucket, lambda lines: lines + b"{no item\n")
    assert shop.run("table", "import", job, "--from", place).code == 1
    ttl = {"Enabled": True, "AttributeName": "expiresAt"}
    shop.store().client.update_time_to_live(TableName=shop.table, TimeToLiveSpecification=ttl)
    for words in (["relay", job, "--once"], ["backfill", job, "--into-existing"]):
        refused = shop.run(*words)
        assert (refused.code, pins.said(refused.err)) == (2, True), refused.err


def test_export_with_marks_used_by_another_table_is_not_imported(shop: Project, s3: Any, bucket: str) -> None:
    job, place = str(shop.job), f"s3://{bucket}/shop"
    shop.done("capture", "install", job)
    exported(shop, place)
    changed(shop, "UPDATE customer SET name = 'New' WHERE id = 1")
    shop.done("table", "create", job)
    shop.done("relay", job, "--once")
    shop.store().client.delete_table(TableName=shop.table)
    refused = shop.run("table", "import", job, "--from", place)
    assert (refused.code, pins.said(refused.err)) == (2, True), refused.err


def test_a_killed_export_resumes_with_the_same_command(shop: Project) -> None:
    job, place = str(shop.job), shop.folder / "items"
    text = shop.job.read_text()
    slow = text.replace("SOURCE_URL}'", "SOURCE_URL}', max_rows_per_s: 15")
    shop.job.write_text(slow.replace("tuning: {}", "tuning: {page_rows: 5, workers: 1}"))
    process = shop.start("table", "export", job, "--to", "items")
    while len(list(place.rglob("pages/*/*/*.gz"))) < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not (place / "manifest.json").exists()
    went_on = shop.done("table", "export", job, "--to", "items")
    assert "is resumed" in went_on.err
    shop.job.write_text(text)
    exported(shop, "anew")
    part = Path("data", "part-00001.json.gz")
    assert (place / part).read_bytes() == (shop.folder / "anew" / part).read_bytes()
