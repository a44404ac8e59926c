"""Batches over a connection that a page holds: an answer that takes everything, and any other one."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.exceptions import ClientError

from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.store import DynamoStore
from migrator.mapping.model.table import KeyAttribute, TableDesign
from migrator.runtime.errors import StoppedError, TargetError
from migrator.runtime.retry import Backoff
from migrator.runtime.system import Places
from tests.support_fence import no_fence
from tests.support_items import encoded

DESIGN = TableDesign("T", (KeyAttribute("PK"),), "type")
USED = {"ConsumedCapacity": [{"TableName": "T", "CapacityUnits": 2.0}]}
ALL_TAKEN: dict[str, Any] = {"UnprocessedItems": {}, **USED}
BROKEN = {**ALL_TAKEN, "more": "a checksum of something else"}


class Table(ThreadingHTTPServer):
    """Answers each request by the next of `answers`, then by ALL_TAKEN; None closes the connection."""

    daemon_threads = True

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.answers = answers
        self.puts: list[list[str]] = []
        self.connections = 0


class Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Table

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        puts = body["RequestItems"]["T"]
        self.server.puts.append([put["PutRequest"]["Item"]["PK"]["S"] for put in puts])
        answer = self.server.answers.pop(0) if self.server.answers else ALL_TAKEN
        if answer is None:
            self.close_connection = True
            return
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("x-amz-crc32", str(zlib.crc32(text) + (answer is BROKEN)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def table(*answers: Any) -> Iterator[tuple[Table, DynamoStore]]:
    with Table(list(answers)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = dynamodb_client(region=None, profile=None, endpoint=f"http://127.0.0.1:{server.server_port}")
        yield server, DynamoStore(client, DESIGN, no_fence, Backoff(base_s=0.0))
        server.shutdown()


ITEMS = encoded(
    [{"PK": f"P#{number}", "type": "User", "_src": f"users:[{number}]", "_tk": 0} for number in range(60)],
    DESIGN,
)
KEYS = [f"P#{number}" for number in range(60)]


def left(*numbers: int) -> dict[str, Any]:
    puts = [{"PutRequest": {"Item": json.loads(ITEMS[number].json)}} for number in numbers]
    return {"UnprocessedItems": {"T": puts}, **USED}


def test_a_page_goes_over_one_connection() -> None:
    with table() as (server, store):
        receipt = store.put(ITEMS)
    assert server.puts == [KEYS[:25], KEYS[25:50], KEYS[50:]]
    assert (server.connections, receipt.items, receipt.requests, receipt.write_units) == (1, 60, 3, 6.0)
    assert (store.sent.taken, store.sent.unanswered, store.sent.write_units) == (60, 0, 6.0)


def test_only_what_an_answer_leaves_is_sent_again() -> None:
    with table(ALL_TAKEN, left(27, 30), left(30)) as (server, store):
        receipt = store.put(ITEMS)
    assert server.puts == [KEYS[:25], KEYS[25:50], ["P#27", "P#30"], ["P#30"], KEYS[50:]]
    assert (receipt.items, receipt.requests, receipt.write_units, receipt.unwritten) == (60, 5, 10.0, {})
    assert (store.sent.taken, store.sent.unanswered, store.sent.write_units) == (60, 0, 10.0)
    assert store.sent.throttled["requests",] == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        BROKEN,
        USED,
        {"UnprocessedItems": {}},
        {**ALL_TAKEN, "ConsumedCapacity": [{"TableName": "T"}]},
        [],
        {"UnprocessedItems": None},
    ],
)
def test_a_batch_that_got_no_whole_answer_is_sent_again_and_counted(answer: Any) -> None:
    with table(ALL_TAKEN, answer) as (server, store):
        receipt = store.put(ITEMS)
    assert server.puts == [KEYS[:25], KEYS[25:50], KEYS[25:50], KEYS[50:]]
    assert (receipt.items, receipt.requests, store.sent.unanswered) == (60, 4, 1)


def test_nothing_is_sent_once_the_check_fails() -> None:
    asked = 0

    def lost() -> None:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise StoppedError("another process has this run")

    with table() as (server, store), pytest.raises(StoppedError):
        store.fenced(lost).put(ITEMS)
    assert server.puts == [KEYS[:25], KEYS[25:50]]


def test_a_role_that_is_refused_is_said_and_nothing_is_sent() -> None:
    class Refused:
        def get_frozen_credentials(self) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole")

    with table() as (server, store):
        store.client.exchange.sockets.signing._credentials = Refused()
        with pytest.raises(TargetError, match="AssumeRole"):
            store.put(ITEMS)
    assert server.puts == []


def test_a_limit_that_is_set_meanwhile_lets_the_connection_go() -> None:
    with table() as (server, store):
        store.client.exchange.sockets.connections._places = Places(1)
        checks = iter(range(100))

        def limited() -> None:
            if next(checks) == 1:
                store.limit.change(10_000)

        receipt = store.fenced(limited).put(ITEMS)
    assert server.puts == [KEYS[:25], KEYS[25:50], KEYS[50:]]
    assert (server.connections, receipt.requests) == (1, 3)
