"""How many connections are open at once, however many threads ask, and however many requests go side by side."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from migrator.dynamodb.answers import Received
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import ManyExchanges
from migrator.dynamodb.exchange import AT_MOST, BOTOCORE, Connections, SessionTransport
from migrator.runtime.system import Places
from tests import pins

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Counting:
    """A server that answers every request, and counts the connections that are open."""

    def __init__(self, listening: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.open = self.most = 0
        self._listening = listening
        self._lock = threading.Lock()

    def accept(self) -> None:
        while True:
            try:
                connection = self._listening.accept()[0]
            except OSError:
                return
            with self._lock:
                self.open += 1
                self.most = max(self.most, self.open)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            length = 0
            while line := incoming.readline():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
                if line == b"\r\n":
                    incoming.read(length)
                    # So long that others would have opened theirs meanwhile.
                    threading.Event().wait(0.005)
                    connection.sendall(OK)
            with self._lock:
                self.open -= 1


@contextmanager
def counting() -> Iterator[Counting]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        server = Counting(listening)
        threading.Thread(target=server.accept, daemon=True).start()
        yield server
        listening.shutdown(socket.SHUT_RDWR)


def request(number: int = 0) -> bytes:
    return b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"


def connections_to(url: str, at_most: int) -> Connections:
    client = dynamodb_client(region=None, profile=None, endpoint=url)
    return Connections(client._endpoint.http_session, url, at_most)


def test_connection_limit_holds_and_every_request_is_sent() -> None:
    with counting() as server, ThreadPoolExecutor(8) as executor:
        connections = connections_to(server.url, 3)
        answers = list(executor.map(lambda _: connections.exchange(request), range(60)))
        assert {answer.status for answer in answers} == {200}
        assert 1 <= server.most <= 3


def test_threads_sending_many_in_parallel_do_not_deadlock() -> None:
    came: list[object] = []

    def note(number: int, answer: object) -> bool:
        came.append(answer)
        return True

    with counting() as server, ThreadPoolExecutor(4) as executor:
        connections = connections_to(server.url, 2)
        list(executor.map(lambda _: ManyExchanges(connections, request, note).run(30), range(4)))
        assert len(came) == 120
        assert all(isinstance(answer, Received) for answer in came)
        assert server.most <= 2


def test_requests_by_a_botocore_session_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGRATOR_LANE", BOTOCORE)
    with counting() as server, ThreadPoolExecutor(8) as executor:
        client = dynamodb_client(region=None, profile=None, endpoint=server.url)
        transport = SessionTransport(client.exchange.transport.signing, 3)
        answers = executor.map(lambda _: transport.send(client, "PutItem", {}, b"{}"), range(60))
        assert {answer.status for answer in answers} == {200}
        assert server.most <= 3


@pytest.mark.parametrize(("workers", "at_most"), [(4, AT_MOST), (200, 200)])
def test_client_allows_stated_connections_or_one_per_worker(workers: int, at_most: int) -> None:
    client = dynamodb_client(region=None, profile=None, endpoint="http://127.0.0.1:1", connections=workers)
    assert client.exchange.sockets.connections._places.at_most == at_most


def test_failure_before_sending_frees_the_connection() -> None:
    def stopped() -> bytes:
        raise TimeoutError("another writer has taken over")

    with counting() as server:
        connections = connections_to(server.url, 1)
        for _ in range(3):
            with pytest.raises(TimeoutError, match="taken over"):
                connections.exchange(stopped)
        assert connections.exchange(request).body == b"{}"
        assert server.most == 1


def test_forked_child_has_all_places_that_parent_threads_held() -> None:
    places = Places(2)
    assert places.free.acquire()
    assert places.free.acquire()
    assert not places.free.acquire(blocking=False)
    places.after_fork(in_child=False)
    assert not places.free.acquire(blocking=False)
    places.after_fork(in_child=True)
    assert places.free.acquire(blocking=False)


def unreachable(connections: Connections) -> Any:
    with pins.refused(Exception):
        connections.exchange(request)


def test_connections_that_cannot_be_opened_take_no_place() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    connections = connections_to(url, 1)
    for _ in range(3):
        unreachable(connections)
