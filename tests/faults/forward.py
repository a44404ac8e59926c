"""An HTTP proxy such as companies have: it forwards requests that name a whole URL, and opens tunnels for TLS."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_POLL_S = 0.02
_TIMEOUT_S = 60
_OF_ONE_HOP = frozenset({"connection", "proxy-connection", "proxy-authorization", "content-length", "host"})


class ForwardProxy:
    """Use as a context manager. `url` is what HTTP_PROXY is to say; `seen`: requests by their method and target.

    `user`: "name:password" that it asks for, else it answers 407.
    """

    def __init__(self, user: str = "") -> None:
        self.seen: Counter[str] = Counter()
        handler = type("Handler", (_Handler,), {"seen": self.seen, "user": user, "lock": Lock()})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{user}@{self.address}" if user else f"http://{self.address}"

    def __enter__(self) -> ForwardProxy:
        Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close its connection at any moment."""


class _Handler(BaseHTTPRequestHandler):
    seen: Counter[str]
    user: str
    lock: Lock
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_POST(self) -> None:
        """Any request that is no CONNECT."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._is_allowed():
            return
        target = urlsplit(self.path)
        connection = http.client.HTTPConnection(str(target.hostname), target.port or 80, timeout=_TIMEOUT_S)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP} | {
            "Host": target.netloc
        }
        try:
            path = target.path or "/"
            connection.request(self.command, f"{path}?{target.query}" if target.query else path, body, kept)
            self._answer(connection.getresponse())
        except (OSError, http.client.HTTPException):
            # Cut off behind it: it cuts off in front of it, too.
            self.close_connection = True
        finally:
            connection.close()

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST

    def _answer(self, answer: http.client.HTTPResponse) -> None:
        body = answer.read()
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        if not self._is_allowed():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as far:
            self.send_response_only(200, "Connection established")
            self.end_headers()
            self.wfile.flush()
            there = Thread(target=_pass_on, args=(self.connection, far), daemon=True)
            there.start()
            _pass_on(far, self.connection)
            there.join()
        self.close_connection = True

    def _is_allowed(self) -> bool:
        with self.lock:
            self.seen[f"{self.command} {self.path}"] += 1
        wanted = f"Basic {base64.b64encode(self.user.encode()).decode()}"
        if not self.user or self.headers.get("Proxy-Authorization") == wanted:
            return True
        self.send_response_only(407, "Proxy Authentication Required")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
