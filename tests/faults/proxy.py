"""A proxy between boto3 and a DynamoDB endpoint that lets requests fail, on a seeded schedule.

Each kind of fault stands in docs/faults.md with the tests that put it in.
"""

from __future__ import annotations

import http.client
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

Wire = dict[str, Any]


@dataclass
class Faults:
    """Shares of requests (or, for `unprocessed`, of the entries of a batch) that go wrong, each from 0 to 1.

    `statement_code`: what an unprocessed statement of a batch fails with. `cancel`: transactions cancelled for
    `cancel_code`, which is the reason of their first action.
    `throttle`: over the table's capacity; `slow_down`: over the account's rate. `errors`: 500; `unavailable`: 503.
    `cut_before`, `cut_after`: the connection is cut before, or after, the request took effect. `late`: the answer
    comes after `late_s` seconds. `in_use`: the table is changing. `expires_after`: so many requests are answered,
    then the credentials have expired until `renew()`. `blind_reads`: so many queries of an index see nothing yet;
    `stale_s`: they may see it as it was up to so long ago.
    `never` names wire items or keys that are never taken. `holds` says of which requests (operation and body) the
    caller hears nothing and the table neither, until FaultProxy.land().
    """

    unprocessed: float = 0.0
    cancel: float = 0.0
    throttle: float = 0.0
    slow_down: float = 0.0
    errors: float = 0.0
    unavailable: float = 0.0
    in_use: float = 0.0
    cut_before: float = 0.0
    cut_after: float = 0.0
    late: float = 0.0
    late_s: float = 0.0
    expires_after: int | None = None
    blind_reads: int = 0
    stale_s: float = 0.0
    seed: int = 1
    statement_code: str = "ProvisionedThroughputExceeded"
    cancel_code: str = "TransactionConflict"
    never: Callable[[Wire], bool] = lambda wire: False
    holds: Callable[[str, Wire], bool] = lambda operation, body: False
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = Lock()
        self._answered = 0
        self._seen: dict[bytes, tuple[float, tuple[int, bytes]]] = {}

    def happens(self, kind: str, share: float) -> bool:
        """Whether this fault happens now; counted when it does."""
        with self._lock:
            found = self._random.random() < share
            self.counts[kind] += found
            return found

    def count(self, kind: str) -> None:
        with self._lock:
            self.counts[kind] += 1

    def refusal(self) -> tuple[int, str] | None:
        """The status and error code that this request gets in place of an answer."""
        if self._has_expired():
            return 400, "ExpiredTokenException"
        for kind, (status, code) in _REFUSALS.items():
            if self.happens(kind, getattr(self, kind)):
                return status, code
        return None

    def renew(self) -> None:
        """New credentials."""
        self.expires_after = None

    def sees_nothing(self) -> bool:
        """Whether this query of an index comes before the index has caught up; counted when it does."""
        with self._lock:
            found = self.blind_reads > 0
            self.blind_reads -= found
            self.counts["blind_reads"] += found
            return found

    def lagging(self, body: bytes, forward: Callable[[bytes], tuple[int, bytes]]) -> tuple[int, bytes]:
        """The answer to a query of an index, or one that it had not long ago."""
        with self._lock:
            at, answer = self._seen.get(body, (-math.inf, (0, b"")))
            if time.monotonic() - at < self._random.uniform(0, self.stale_s):
                self.counts["stale_s"] += 1
                return answer
        began, answer = time.monotonic(), forward(body)
        with self._lock:
            self._seen[body] = (began, answer)
        return answer

    def _has_expired(self) -> bool:
        with self._lock:
            self._answered += 1
            found = self.expires_after is not None and self._answered > self.expires_after
            self.counts["expired"] += found
            return found


_REFUSALS = {
    "throttle": (400, "ProvisionedThroughputExceededException"),
    "slow_down": (400, "ThrottlingException"),
    "in_use": (400, "ResourceInUseException"),
    "errors": (500, "InternalServerError"),
    "unavailable": (503, "ServiceUnavailable"),
}


@dataclass(frozen=True)
class _Held:
    """A request that its sender gave up waiting for."""

    headers: dict[str, str]
    body: bytes


class FaultProxy:
    """Use as a context manager; `url` is the endpoint to give to the code under test."""

    def __init__(self, upstream: str, faults: Faults) -> None:
        self.faults = faults
        self.upstream = upstream
        self.held: list[_Held] = []
        handler = type("Handler", (_Handler,), {"upstream": upstream, "faults": faults, "held": self.held})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def land(self) -> list[int]:
        """Every request that is held back reaches the table, once more at every call; the statuses of its answers."""
        return [_forward(self.upstream, one.headers, one.body)[0] for one in self.held]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed has closed its connections without a word, maybe in the middle of a request."""
        if not isinstance(sys.exception(), (ConnectionError, json.JSONDecodeError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    upstream: str
    faults: Faults
    held: list[_Held]
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: the second of two would wait some 40 ms for the first to be acknowledged.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.faults.count(f"requests {operation}")
        if self.faults.happens("cut_before", self.faults.cut_before):
            self.close_connection = True
            return
        if self.faults.holds(operation, json.loads(body)):
            self.held.append(_Held(dict(self.headers.items()), body))
            self.close_connection = True
            return
        refusal = self.faults.refusal()
        if refusal is not None:
            self._refuse(*refusal)
            return
        status, answer = self._answer_to(operation, body)
        if self.faults.happens("late", self.faults.late):
            time.sleep(self.faults.late_s)
        if self.faults.happens("cut_after", self.faults.cut_after):
            self.close_connection = True
        else:
            self._answer(status, answer)

    def _answer_to(self, operation: str, body: bytes) -> tuple[int, bytes]:
        if operation in ("BatchWriteItem", "BatchGetItem"):
            return self._batch(operation, body)
        if operation == "BatchExecuteStatement":
            return self._statements(body)
        if operation == "TransactWriteItems" and self.faults.happens("cancel", self.faults.cancel):
            return self._cancelled(body)
        if operation == "Query" and "IndexName" in json.loads(body):
            if self.faults.sees_nothing():
                return 200, b'{"Items": [], "Count": 0, "ScannedCount": 0}'
            return self.faults.lagging(body, self._forward)
        return self._forward(body)

    def _batch(self, operation: str, body: bytes) -> tuple[int, bytes]:
        """The batch without what is withheld, which comes back as not processed."""
        request = json.loads(body)
        write = operation == "BatchWriteItem"
        withheld: dict[str, Any] = {}
        for table, entries in request["RequestItems"].items():
            listed = entries if write else entries["Keys"]
            kept = [entry for entry in listed if not self._withholds(entry)]
            left = [entry for entry in listed if entry not in kept]
            if left:
                withheld[table] = left if write else {**entries, "Keys": left}
            request["RequestItems"][table] = kept if write else {**entries, "Keys": kept}
        taken = {t: e for t, e in request["RequestItems"].items() if (e if write else e["Keys"])}
        status, answer = 200, b"{}"
        if taken:
            status, answer = self._forward(json.dumps({**request, "RequestItems": taken}).encode())
        if status != 200 or not withheld:
            return status, answer
        found = json.loads(answer)
        found["UnprocessedItems" if write else "UnprocessedKeys"] = withheld
        return 200, json.dumps(found).encode()

    def _statements(self, body: bytes) -> tuple[int, bytes]:
        """The batch without the statements that fail; each has an answer of its own, in the request's order."""
        request = json.loads(body)
        share = self.faults.unprocessed
        failed = [self.faults.happens("unprocessed", share) for _ in request["Statements"]]
        kept = [one for one, fails in zip(request["Statements"], failed, strict=True) if not fails]
        status, answer = 200, b'{"Responses": []}'
        if kept:
            status, answer = self._forward(json.dumps({**request, "Statements": kept}).encode())
        if status != 200:
            return status, answer
        found = json.loads(answer)
        others = iter(found["Responses"])
        code = self.faults.statement_code
        found["Responses"] = [{"Error": {"Code": code}} if fails else next(others) for fails in failed]
        return 200, json.dumps(found).encode()

    def _cancelled(self, body: bytes) -> tuple[int, bytes]:
        """The answer to a transaction of which nothing was written."""
        others = len(json.loads(body)["TransactItems"]) - 1
        reasons = [
            {"Code": self.faults.cancel_code, "Message": "put in by the fault proxy"},
            *[{"Code": "None"}] * others,
        ]
        code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        return 400, json.dumps(
            {"__type": code, "message": "cancelled", "CancellationReasons": reasons}
        ).encode()

    def _withholds(self, entry: Wire) -> bool:
        wire = entry.get("PutRequest", {}).get("Item") or entry.get("DeleteRequest", {}).get("Key") or entry
        return self.faults.never(wire) or self.faults.happens("unprocessed", self.faults.unprocessed)

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        return _forward(self.upstream, dict(self.headers.items()), body)

    def _refuse(self, status: int, code: str) -> None:
        fault = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "put in by the fault proxy"}
        self._answer(status, json.dumps(fault).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _forward(upstream: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
    target = urlsplit(upstream)
    connection = http.client.HTTPConnection(str(target.hostname), target.port, timeout=60)
    dropped = {"host", "content-length", "connection", "accept-encoding"}
    kept = {name: value for name, value in headers.items() if name.lower() not in dropped}
    try:
        connection.request("POST", "/", body, kept)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
