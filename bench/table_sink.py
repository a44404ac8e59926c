"""An endpoint that keeps items in memory and answers BatchWriteItem, BatchGetItem and Scan with prepared pages.

Its own operation `Answered` returns the number of requests by operation. It is a separate process, so that a
bench measures the reader's CPU. Attributes come in another order than sent, as DynamoDB guarantees none.
"""

from __future__ import annotations

import socket
import zlib
from collections import Counter
from functools import cache
from typing import Any

import orjson

from bench.sink import serve

_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nx-amz-crc32: {}\r\nContent-Length: {}\r\n\r\n"
_PAGE_BYTES = 1_000_000
_ITEMS: dict[bytes, Any] = {}
_ANSWERED: Counter[str] = Counter()


def _key(item: Any) -> bytes:
    return orjson.dumps([item["PK"], item["SK"]])


def _written(request: Any) -> Any:
    for table, requests in request["RequestItems"].items():
        for one in requests:
            item = one["PutRequest"]["Item"]
            _ITEMS[_key(item)] = dict(sorted(item.items(), key=lambda part: zlib.crc32(part[0].encode())))
        capacity = [{"TableName": table, "CapacityUnits": 25.0}]
    return {"UnprocessedItems": {}, "ConsumedCapacity": capacity}


def _read(request: Any) -> Any:
    ((table, wanted),) = request["RequestItems"].items()
    keys = map(_key, wanted["Keys"])
    found = [_ITEMS[key] for key in keys if key in _ITEMS]
    return {"UnprocessedKeys": {}, "Responses": {table: found}}


@cache
def _pages(segment: int, segments: int, count: int) -> dict[bytes, bytes]:
    """Answers by the prefix of their request; rebuilt when the number of items changes."""
    own = [item for key, item in _ITEMS.items() if zlib.crc32(key) % segments == segment]
    pages, start, begin = {}, b"", 0
    while True:
        end, size = begin, 0
        while end < len(own) and size < _PAGE_BYTES:
            size += len(orjson.dumps(own[end]))
            end += 1
        answer: dict[str, Any] = {"Items": own[begin:end], "Count": end - begin, "ScannedCount": end - begin}
        if end == len(own):
            pages[start] = orjson.dumps(answer)
            return pages
        answer["LastEvaluatedKey"] = {name: own[end - 1][name] for name in ("PK", "SK")}
        pages[start] = orjson.dumps(answer)
        start, begin = _key(own[end - 1]), end


def _answer(target: str, body: bytes) -> bytes:
    if target == "Answered":
        return orjson.dumps(_ANSWERED)
    _ANSWERED[target] += 1
    request = orjson.loads(body)
    if target == "Scan":
        start = request.get("ExclusiveStartKey")
        pages = _pages(request["Segment"], request["TotalSegments"], len(_ITEMS))
        return pages[b"" if start is None else _key(start)]
    return orjson.dumps(_written(request) if target == "BatchWriteItem" else _read(request))


def _serve(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as stream:
        while stream.readline():
            headers = {}
            while line := stream.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = stream.read(int(headers["content-length"]))
            answer = _answer(headers["x-amz-target"].rpartition(".")[2], body)
            connection.sendall(_HEAD.format(zlib.crc32(answer), len(answer)).encode() + answer)


if __name__ == "__main__":
    serve(_serve)
