"""A proxy between migrator and a DynamoDB endpoint that lets requests fail, on a seeded schedule."""

from __future__ import annotations

import http.client
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.faults.schedule import Faults, Wire

__all__ = ["FaultProxy", "Faults", "Spent", "Wire", "most_spent"]


_POLL_S = 0.02
"""How soon it sees that it is to end."""
_WRITES = {
    *("BatchWriteItem", "PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"),
    *("ExecuteStatement", "BatchExecuteStatement"),
}
_NO_ITEMS: Wire = {"Items": [], "Count": 0, "ScannedCount": 0}


def _capacity(table: str) -> Wire:
    return {"ConsumedCapacity": {"TableName": table, "CapacityUnits": 0.5}}


def _units(answer: Wire) -> dict[str, float]:
    """By meter, from what an answer says that it consumed."""
    told = answer.get("ConsumedCapacity") or {"CapacityUnits": 1.0}
    units: dict[str, float] = {}
    for part in [told] if isinstance(told, dict) else told:
        indexes = part.get("GlobalSecondaryIndexes") or {}
        apart = {name: float(index["CapacityUnits"]) for name, index in indexes.items()}
        apart[""] = float(part["CapacityUnits"]) - sum(apart.values())
        for name, number in apart.items():
            units[name] = units.get(name, 0.0) + number
    return units


@dataclass(frozen=True)
class Spent:
    """What one write consumed: write units of each meter, '' for the table itself. `at`: seconds that only grow, after the
    table had it and before the sender knew."""

    at: float
    units: dict[str, float]


def most_spent(spent: Sequence[Spent], meter: str, window_s: float) -> float:
    """The most units that any `window_s` seconds hold."""
    ordered = sorted((one.at, one.units.get(meter, 0.0)) for one in spent)
    most = inside = 0.0
    first = 0
    for at, units in ordered:
        inside += units
        while at - ordered[first][0] > window_s:
            inside -= ordered[first][1]
            first += 1
        most = max(most, inside)
    return most


@dataclass(frozen=True)
class _Held:
    """A request that its sender gave up waiting for."""

    headers: dict[str, str]
    body: bytes


class FaultProxy:
    """Use as a context manager; `url` is the endpoint to give to the code under test. `spent`: what all writes consumed,
    whoever sent them, as the table's answers say; a write that is told nothing of it counts as one unit a request."""

    def __init__(self, upstream: str, faults: Faults) -> None:
        self.faults = faults
        self.upstream = upstream
        self.held: list[_Held] = []
        self.spent: list[Spent] = []
        shared = {"upstream": upstream, "faults": faults, "held": self.held, "spent": self.spent}
        handler = type("Handler", (_Handler,), shared)
        self._server = _Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultProxy:
        Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True).start()
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
    spent: list[Spent]
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
        refusal = self.faults.refusal() or self._refusal_of_items(operation, json.loads(body))
        if refusal is not None:
            self._refuse(*refusal)
            return
        if self.faults.is_empty(operation):
            self._answer(200, self.faults.empty_body)
            return
        status, answer = self._answer_to(operation, body)
        if status == 200 and operation in _WRITES:
            self.spent.append(Spent(time.monotonic(), _units(json.loads(answer))))
        answer = self.faults.as_altered(operation, status, answer) if self.faults.altered else answer
        if self.faults.happens("late", self.faults.late):
            time.sleep(self.faults.late_s)
        if self.faults.happens("cut_after", self.faults.cut_after):
            self.close_connection = True
        else:
            self._answer(status, answer)

    def _refusal_of_items(self, operation: str, body: Wire) -> tuple[int, str] | None:
        """What a whole request is refused with for its operation, or for an item that is in it."""
        if operation in self.faults.denied:
            return 400, "AccessDeniedException"
        if operation == "PutItem" and self.faults.is_withheld(body["Item"]):
            return 400, "ProvisionedThroughputExceededException"
        found = (self.faults.refuses(item) for item in items_of(operation, body))
        return next(((400, code) for code in found if code), None)

    def _answer_to(self, operation: str, body: bytes) -> tuple[int, bytes]:
        if operation in ("BatchWriteItem", "BatchGetItem"):
            return self._batch(operation, body)
        if operation == "BatchExecuteStatement":
            return self._statements(body)
        if operation == "TransactWriteItems":
            if any(map(self.faults.is_withheld, items_of(operation, json.loads(body)))):
                return self._cancelled(body, "ProvisionedThroughputExceeded")
            if self.faults.happens("cancel", self.faults.cancel):
                return self._cancelled(body, self.faults.cancel_code)
        if operation == "Query" and "IndexName" in json.loads(body):
            if self.faults.sees_nothing():
                return 200, json.dumps(_NO_ITEMS | _capacity(json.loads(body)["TableName"])).encode()
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
        name = "UnprocessedItems" if write else "UnprocessedKeys"
        status, answer = 200, json.dumps({name: {}} if write else {name: {}, "Responses": {}}).encode()
        if taken:
            status, answer = self._forward(json.dumps({**request, "RequestItems": taken}).encode())
        if status != 200 or not withheld:
            return status, answer
        found = json.loads(answer)
        found[name] = withheld
        return 200, json.dumps(found).encode()

    def _statements(self, body: bytes) -> tuple[int, bytes]:
        """The batch without the statements that fail; each has an answer of its own, in the request's order."""
        request = json.loads(body)
        codes = [self._code_of(_inserted(one)) for one in request["Statements"]]
        kept = [one for one, code in zip(request["Statements"], codes, strict=True) if not code]
        status, answer = 200, b'{"Responses": []}'
        if kept:
            status, answer = self._forward(json.dumps({**request, "Statements": kept}).encode())
        if status != 200:
            return status, answer
        found = json.loads(answer)
        others = iter(found["Responses"])
        found["Responses"] = [{"Error": {"Code": code}} if code else next(others) for code in codes]
        return 200, json.dumps(found).encode()

    def _code_of(self, item: Wire) -> str:
        """What a statement that inserts the item fails with; '' where it does not."""
        if self.faults.refuses(item):
            return "ValidationError"
        if self.faults.is_withheld(item):
            return "ProvisionedThroughputExceeded"
        return (
            self.faults.statement_code if self.faults.happens("unprocessed", self.faults.unprocessed) else ""
        )

    def _cancelled(self, body: bytes, why: str) -> tuple[int, bytes]:
        """The answer to a transaction of which nothing was written."""
        others = len(json.loads(body)["TransactItems"]) - 1
        reasons = [
            {"Code": why, "Message": "put in by the fault proxy"},
            *[{"Code": "None"}] * others,
        ]
        code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        return 400, json.dumps(
            {"__type": code, "message": "cancelled", "CancellationReasons": reasons}
        ).encode()

    def _withholds(self, entry: Wire) -> bool:
        wire = entry.get("PutRequest", {}).get("Item") or entry.get("DeleteRequest", {}).get("Key") or entry
        return self.faults.is_withheld(wire) or self.faults.happens("unprocessed", self.faults.unprocessed)

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        return _forward(self.upstream, dict(self.headers.items()), body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """What the header Date says."""
        return super().date_time_string((timestamp or time.time()) + self.faults.clock_s)

    def _refuse(self, status: int, code: str) -> None:
        is_late = code == self.faults.clock_code
        message = self.faults.clock_message if is_late else "put in by the fault proxy"
        fault = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
        self._answer(status, json.dumps(fault).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def items_of(operation: str, body: Wire) -> list[Wire]:
    """The items that a request puts, in wire form."""
    if operation == "PutItem":
        return [body["Item"]]
    if operation == "TransactWriteItems":
        return [one["Put"]["Item"] for one in body["TransactItems"] if "Put" in one]
    if operation == "BatchWriteItem":
        entries = [one for batch in body["RequestItems"].values() for one in batch]
        return [one["PutRequest"]["Item"] for one in entries if "PutRequest" in one]
    return []


def _inserted(statement: Wire) -> Wire:
    """The item of an INSERT of ours."""
    names = re.findall(r"'((?:[^']|'')*)': \?", statement["Statement"])
    return dict(zip(names, statement["Parameters"], strict=True))


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
