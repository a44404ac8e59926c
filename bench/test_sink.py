"""Both sinks answer the same, with the checksum that DynamoDB sends."""

from __future__ import annotations

import json
import urllib.request
import zlib
from collections.abc import Sequence

import pytest

from bench.conftest import IN_PYTHON, started
from bench.recorder import replay

STATEMENTS = {"Statements": [{"Statement": 'INSERT INTO "T" VALUE {}'}, {"Statement": 'x "Statement": y'}]}
REQUESTS = {
    "BatchWriteItem": {"RequestItems": {}},
    "PutItem": {"Item": {"note": {"S": '"Statement":' * 30_000}}},
    "BatchExecuteStatement": STATEMENTS,
}
SINK_HEADERS = ("Content-Type", "x-amz-crc32", "Content-Length")


def answered(endpoint: str, operation: str) -> object:
    """The answer's body, after checking its checksum."""
    body = json.dumps(REQUESTS[operation]).encode()
    request = urllib.request.Request(endpoint, body, {"X-Amz-Target": f"DynamoDB_20120810.{operation}"})
    with urllib.request.urlopen(request) as answer:
        said = answer.read()
        assert [name for name in SINK_HEADERS if name not in answer.headers] == []
        assert answer.headers["x-amz-crc32"] == str(zlib.crc32(said))
    return json.loads(said)


@pytest.mark.parametrize("operation", REQUESTS)
def test_both_sinks_answer_the_same(operation: str, sink: str) -> None:
    with started(IN_PYTHON) as in_python:
        assert answered(sink, operation) == answered(in_python, operation)


def test_requests_of_one_connection_are_answered_one_by_one(sink: str) -> None:
    """Of any length, including one that ends within the received bytes."""
    lengths = [0, 1, 300_000, 5, 1_000_000, 0]
    head = "POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\ncontent-length: {}\r\n\r\n"
    requests: Sequence[bytes] = [head.format(length).encode() + b"x" * length for length in lengths]
    replay(sink, requests)
