"""An endpoint for relays that answers item writes at once and keeps only migrator's control item.

`python -m bench.relay_sink URL`: other requests go to the DynamoDB at that URL; with `--through` all go
  there. Its own operation `Written` returns, for each item put by a separate request: [key, number of the
  change, seconds since 1970]. `Answered` returns the number of requests by operation.
"""

from __future__ import annotations

import http.client
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson

from bench.sink import serve
from migrator.mapping.model.table import CONTROL

_CAPACITY = {"TableName": "T", "CapacityUnits": 1.0}
_OK: bytes = orjson.dumps({"ConsumedCapacity": _CAPACITY})
_OK_OF_MANY: bytes = orjson.dumps({"UnprocessedItems": {}, "ConsumedCapacity": [_CAPACITY]})
_REFUSED: bytes = orjson.dumps({"__type": "com.amazonaws.dynamodb#ConditionalCheckFailedException"})
_OF_THREAD = threading.local()
_AS_CONTROL = f'"{CONTROL}"'.encode()


@dataclass
class Request:
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers.get("x-amz-target", "").rpartition(".")[2]


@dataclass
class Sink:
    """`upstream`: answers other requests. `control`: the control item last put."""

    upstream: str
    is_through: bool = False
    written: list[tuple[str, int, float]] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    control: dict[str, Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while (request := _request(incoming)) is not None:
                status, body = self.answer(request)
                head = f"HTTP/1.1 {status} -\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

    def answer(self, request: Request) -> tuple[int, bytes]:
        if request.operation == "Written":
            return 200, orjson.dumps(self.written)
        if request.operation == "Answered":
            return 200, orjson.dumps(self.answered)
        with self.lock:
            self.answered[request.operation] += 1
        status, body = self._forwarded(request) if self.is_through else self._at_once(request)
        if request.operation == "PutItem" and b'"visits"' in request.body:
            item = orjson.loads(request.body)["Item"]
            self.written.append((item["PK"]["S"], int(item["visits"]["N"]), time.time()))
        return status, body

    def _at_once(self, request: Request) -> tuple[int, bytes]:
        match request.operation:
            case "PutItem" if _AS_CONTROL in request.body:
                return self._put_control(orjson.loads(request.body)["Item"])
            case "PutItem":
                return 200, _OK
            case "BatchWriteItem" | "TransactWriteItems":
                return 200, _OK_OF_MANY
            case "BatchExecuteStatement":
                responses = [{"TableName": "T"}] * request.body.count(b'"Statement":')
                return 200, orjson.dumps({"Responses": responses, "ConsumedCapacity": [_CAPACITY]})
            case "GetItem" if self.control is not None:
                return 200, orjson.dumps({"Item": self.control, "ConsumedCapacity": _CAPACITY})
        return self._forwarded(request)

    def _put_control(self, item: dict[str, Any]) -> tuple[int, bytes]:
        """Rule 8 only requires that the table's ticket never falls."""
        with self.lock:
            if self.control is not None and int(item["_tk"]["N"]) < int(self.control["_tk"]["N"]):
                return 400, _REFUSED
            self.control = item
        return 200, _OK

    def _forwarded(self, request: Request) -> tuple[int, bytes]:
        connection = self._connection()
        named = {name: value for name, value in request.headers.items() if name != "host"}
        connection.request("POST", "/", request.body, named)
        response = connection.getresponse()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPConnection:
        kept: http.client.HTTPConnection | None = getattr(_OF_THREAD, "connection", None)
        if kept is None:
            at = urlsplit(self.upstream)
            kept = _OF_THREAD.connection = http.client.HTTPConnection(at.hostname or "", at.port)
        return kept


def _request(incoming: BinaryIO) -> Request | None:
    if not incoming.readline():
        return None
    headers = {}
    while line := incoming.readline().strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return Request(headers, incoming.read(int(headers["content-length"])))


if __name__ == "__main__":
    serve(Sink(sys.argv[1], "--through" in sys.argv).serve)
