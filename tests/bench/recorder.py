"""An endpoint that answers every DynamoDB write at once, and keeps the bytes of each request."""

from __future__ import annotations

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from tests.bench.sink import ANSWER


class _Recorder(socketserver.StreamRequestHandler):
    """Keeps each request as it came, and answers at once."""

    kept: list[bytes]

    def handle(self) -> None:
        while line := self.rfile.readline():
            head = [line]
            while head[-1] != b"\r\n":
                head.append(self.rfile.readline())
            length = next(int(one[15:]) for one in head if one.lower().startswith(b"content-length:"))
            self.kept.append(b"".join(head) + self.rfile.read(length))
            self.wfile.write(ANSWER)


@contextmanager
def recording() -> Iterator[tuple[str, list[bytes]]]:
    """Its URL, and the requests so far, in the order in which they came."""
    kept: list[bytes] = []
    handler = type("Handler", (_Recorder,), {"kept": kept})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", kept
        server.shutdown()
