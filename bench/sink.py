"""An endpoint that answers every DynamoDB write at once and keeps nothing, which leaves the sender's own cost."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from collections.abc import Callable
from functools import cache
from typing import NoReturn

_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nx-amz-crc32: {}\r\nContent-Length: {}\r\n\r\n"
_CONSUMED = [{"TableName": "T", "CapacityUnits": 25.0}]
_LENGTH = b"content-length:"
_STATEMENTS = b"BatchExecuteStatement"
_OF_ONE_ITEM = (b".PutItem", b".DeleteItem")


def _written(said: dict[str, object]) -> bytes:
    body = json.dumps({"ConsumedCapacity": _CONSUMED} | said).encode()
    return _HEAD.format(zlib.crc32(body), len(body)).encode() + body


_OF_BATCH = _written({"UnprocessedItems": {}})
_OF_ITEM = _written({"ConsumedCapacity": _CONSUMED[0]})


@cache
def inserted(statements: int) -> bytes:
    """Answer for so many successful statements."""
    return _written({"Responses": [{"TableName": "T"}] * statements})


def answer_to(head: bytes, body: bytes) -> bytes:
    if _STATEMENTS in head:
        # In a text of a value the quotation marks are escaped, so none is counted.
        return inserted(body.count(b'"Statement":'))
    return _OF_ITEM if any(name in head for name in _OF_ONE_ITEM) else _OF_BATCH


def _serve(connection: socket.socket) -> None:
    buffer = b""
    while True:
        while b"\r\n\r\n" not in buffer:
            data = connection.recv(1 << 18)
            if not data:
                return
            buffer += data
        head, _, rest = buffer.partition(b"\r\n\r\n")
        at = head.lower().index(_LENGTH) + len(_LENGTH)
        length = int(head[at:].split(b"\r\n", 1)[0])
        while len(rest) < length:
            rest += connection.recv(1 << 18)
        body, buffer = rest[:length], rest[length:]
        connection.sendall(answer_to(head, body))


def serve(answer: Callable[[socket.socket], None]) -> NoReturn:
    """Print the port, and answer each connection in a thread until killed."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection = server.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=answer, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    serve(_serve)
