"""Large values by the installed command: S3 holds them before their items point to them, and verify looks."""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests import pins
from tests.journeys.command import Project, project

MAPPING = """\
mapping: 1
table: {name: Documents, key: [PK, SK], type: type}
entities:
  document:
    items:
      Document:
        key: ["DOC#{id}", META]
        attributes: {body: {from: body, to: s3}, title: {from: title, to: s3, over: 20}}
"""
BODIES = {1: "x" * 500_000, 2: "short", 3: None, 4: "x" * 500_000}


@pytest.fixture
def s3(dynamodb_url: str) -> Any:
    words = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=dynamodb_url, **words)


@pytest.fixture
def made(tmp_path: Path, dynamodb_url: str, s3: Any) -> tuple[Project, str]:
    bucket = f"documents-{secrets.token_hex(4)}"
    connection = sqlite3.connect(tmp_path / "documents.db")
    connection.execute("CREATE TABLE document (id INTEGER PRIMARY KEY, title TEXT, body TEXT)")
    rows = [(number, f"Title {number}", body) for number, body in BODIES.items()]
    connection.executemany("INSERT INTO document VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()
    (tmp_path / "documents.yaml").write_text(MAPPING)
    made = project(tmp_path, f"sqlite:///{tmp_path}/documents.db", dynamodb_url, f"D{secrets.token_hex(4)}")
    text = made.job.read_text().replace("endpoint:", f"bucket: {bucket}, prefix: large/, endpoint:")
    made.job.write_text(re.sub("mapping: .*", "mapping: documents.yaml", text))
    return made, bucket


def test_values_are_in_s3_and_verify_misses_one_that_is_gone(made: tuple[Project, str], s3: Any) -> None:
    shop, bucket = made
    shop.done("table", "create", str(shop.job))
    without = shop.run("backfill", str(shop.job))
    assert without.code == 2
    assert pins.said(without.err, "object", bucket=bucket)

    s3.create_bucket(Bucket=bucket)
    shop.prepared("backfill", "verify")
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    names = {hashlib.sha256(body.encode()).hexdigest() for body in BODIES.values() if body}
    assert sorted(keys) == sorted(f"large/{name}" for name in names)

    gone = hashlib.sha256(b"short").hexdigest()
    s3.delete_object(Bucket=bucket, Key=f"large/{gone}")
    found = shop.run("verify", str(shop.job))
    assert found.code == 1
    listed = shop.run("status", "--findings", str(shop.job))
    assert pins.said(" ".join(listed.out.split()), "points", gone=gone)


def test_a_repair_brings_back_an_object_that_is_gone(made: tuple[Project, str], s3: Any) -> None:
    shop, bucket = made
    job, mapping = str(shop.job), shop.folder / "documents.yaml"
    mapping.write_text(MAPPING.replace("type: type", "type: type, ttl: expiresAt"))
    s3.create_bucket(Bucket=bucket)
    shop.prepared("table create", "capture install", "backfill")
    s3.delete_object(Bucket=bucket, Key=f"large/{hashlib.sha256(b'short').hexdigest()}")
    found = shop.run("verify", job, "--repair", "--settle", "0")
    assert (found.code, pins.said(found.err)) == (1, True)
    shop.done("relay", job, "--once")
    assert "clean" in shop.done("verify", job, "--settle", "0").out


def test_a_job_without_a_bucket_is_reported(made: tuple[Project, str]) -> None:
    shop, bucket = made
    shop.job.write_text(shop.job.read_text().replace(f"bucket: {bucket}, ", ""))
    shop.done("table", "create", str(shop.job))
    refused = shop.run("backfill", str(shop.job))
    assert refused.code == 2
    assert pins.said(refused.err)
