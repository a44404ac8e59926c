"""Items per second into the embedded server, against the same requests sent raw: the difference is ours to reduce."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from bench.measure import ROUNDS, Tables
from bench.recorder import recording, replay
from bench.shapes import PLAIN, ROWS
from bench.test_growth import filled
from bench.ways import by_backfill

KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}


@pytest.fixture
def table(dynamodb_url: str) -> Iterator[str]:
    client = boto3.client("dynamodb", endpoint_url=dynamodb_url, **KEYS)
    names = ["PK", "SK", "GSI1PK", "GSI1SK"]
    keys = [
        {"AttributeName": name, "KeyType": kind}
        for name, kind in zip(names, ["HASH", "RANGE"] * 2, strict=True)
    ]
    client.create_table(
        TableName="Bench",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
        KeySchema=keys[:2],
        GlobalSecondaryIndexes=[
            {"IndexName": "GSI1", "KeySchema": keys[2:], "Projection": {"ProjectionType": "ALL"}}
        ],
    )
    yield dynamodb_url
    client.delete_table(TableName="Bench")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return filled(tmp_path / "bench.db", ROWS)


def sent_by_backfill(database: str) -> list[bytes]:
    with recording() as (url, requests):
        by_backfill(PLAIN, database, url)
    return requests


def took_s(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def test_into_the_embedded_server(database: str, table: str, tables: Tables) -> None:
    requests = sent_by_backfill(database)
    rounds = [
        (took_s(lambda: replay(table, requests)), took_s(lambda: by_backfill(PLAIN, database, table)))
        for _ in range(ROUNDS)
    ]
    raw_s, ours_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(raw / ours for raw, ours in rounds)
    tables.add(
        f"Into the embedded server, {ROWS:,} rows",
        items_a_second_raw=f"{ROWS / raw_s:,.0f}",
        by_backfill=f"{ROWS / ours_s:,.0f}",
        ratio=f"{ratio:.2f}",
    )
