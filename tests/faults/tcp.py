"""A TCP proxy that can be cut: connections break, and it does not listen until it is mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TcpWay:
    """Forwards a port of this machine to a server. `cut` breaks every connection and closes the port. `watching`: gives for
    each connection what is told of the bytes that the server answers."""

    def __init__(
        self, host: str, port: int, watching: Callable[[], Callable[[bytes], None]] = lambda: _unwatched
    ) -> None:
        self._server = (host, port)
        self._watching = watching
        self._ends: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._listen()

    def cut(self) -> None:
        # Without it the thread that waits in accept() would take one more connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._ends.clear()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(self._server)
                self._ends += [near, far]
                for one, other, seen in ((near, far, _unwatched), (far, near, self._watching())):
                    threading.Thread(target=_forward, args=(one, other, seen), daemon=True).start()


def _unwatched(data: bytes) -> None: ...


def _forward(one: socket.socket, other: socket.socket, seen: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            seen(data)
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@contextmanager
def tcp_way(
    host: str, port: int, watching: Callable[[], Callable[[bytes], None]] = lambda: _unwatched
) -> Iterator[TcpWay]:
    way = TcpWay(host, port, watching)
    try:
        yield way
    finally:
        with contextlib.suppress(OSError):  # it may be cut already
            way.cut()
