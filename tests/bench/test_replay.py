"""Items a second into the embedded server, against the same requests sent raw: what is between them is ours to mend."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

from tests.bench.recorder import recording
from tests.bench.test_growth import filled
from tests.bench.test_items import PLAIN, ROWS, by_backfill

pytestmark = pytest.mark.bench

ROUNDS = int(os.environ.get("MIGRATOR_TEST_ROUNDS", 3))
KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}


@pytest.fixture
def table(dynamodb_url: str) -> Iterator[str]:
    """The endpoint, with the bench's table in it."""
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


def replay(endpoint: str, requests: Sequence[bytes]) -> None:
    """Sends them on one connection, each when the one before is answered."""
    where = urlsplit(endpoint)
    with socket.create_connection((str(where.hostname), where.port or 80)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            connection.sendall(request)
            response = HTTPResponse(connection, method="POST")
            response.begin()
            assert (response.status, response.read()[:1]) == (200, b"{")


def took_s(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def test_into_the_embedded_server(database: str, table: str) -> None:
    requests = sent_by_backfill(database)
    rounds = [
        (took_s(lambda: replay(table, requests)), took_s(lambda: by_backfill(PLAIN, database, table)))
        for _ in range(ROUNDS)
    ]
    raw_s, ours_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(raw / ours for raw, ours in rounds)
    print(f"\n{ROWS / raw_s:,.0f} items/s raw, {ROWS / ours_s:,.0f} by backfill: {ratio:.2f} of it")


def test_what_sending_alone_costs(database: str, sink: str) -> None:
    """The CPU below which no sender of these requests comes."""
    requests = sent_by_backfill(database)
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        replay(sink, requests)
        found.append((time.process_time() - began) / ROWS * 1e6)
    print(f"\n{statistics.median(found):.1f} µs of CPU an item, {len(requests[0]):,} bytes a request")
