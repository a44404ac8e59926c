"""An endpoint that answers every DynamoDB write at once and keeps each request's bytes; and their replay."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from urllib.parse import urlsplit

from bench.sink import answer_to


class _Recorder(socketserver.StreamRequestHandler):
    """Records each request, and answers at once."""

    kept: list[bytes]

    def handle(self) -> None:
        while line := self.rfile.readline():
            head = [line]
            while head[-1] != b"\r\n":
                head.append(self.rfile.readline())
            length = next(int(one[15:]) for one in head if one.lower().startswith(b"content-length:"))
            said, body = b"".join(head), self.rfile.read(length)
            self.kept.append(said + body)
            self.wfile.write(answer_to(said, body))


@contextmanager
def recording() -> Iterator[tuple[str, list[bytes]]]:
    """URL, and the requests so far, in order."""
    kept: list[bytes] = []
    handler = type("Handler", (_Recorder,), {"kept": kept})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", kept
        server.shutdown()


def replay(endpoint: str, requests: Sequence[bytes]) -> None:
    """Send them on one connection, each after the previous answer; only the end of an answer is looked for."""
    where = urlsplit(endpoint)
    with socket.create_connection((str(where.hostname), where.port or 80)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            connection.sendall(request)
            answer = connection.recv(1 << 16)
            while not _is_whole(answer):
                more = connection.recv(1 << 16)
                assert more, "the connection was closed within an answer"
                answer += more
            assert answer[9:12] == b"200", answer


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    _, named, length = head.lower().partition(b"content-length:")
    return bool(named) and len(body) == int(length.partition(b"\r\n")[0])
