"""Many requests side by side by one thread: each has its own answer, whatever becomes of the connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ConnectionClosedError, ReadTimeoutError

from migrator.dynamodb.answers import Received
from migrator.dynamodb.client import dynamodb_client
from migrator.dynamodb.conditional import AT_ONCE, ManyExchanges
from migrator.dynamodb.exchange import BOTOCORE, Connections
from migrator.runtime.retry import ending_at
from tests import pins

Answers = Callable[[socket.socket, int], None]
"""Answers the request of a number, or does what a server may do in its place."""
HANGING_S = 60.0
COUNT = 3 * AT_ONCE


def ok(connection: socket.socket, number: int) -> None:
    body = b"%d" % number
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


@contextmanager
def server(answers: Answers) -> Iterator[str]:
    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while line := incoming.readline():
                incoming.read(int(line.split()[1]))
                answers(connection, int(line.split()[0]))

    def accept(listening: socket.socket) -> None:
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def connections_to(url: str, timeout_s: float = 120.0) -> Connections:
    client = dynamodb_client(region=None, profile=None, endpoint=url, timeout_s=timeout_s)
    kept: Connections = client.exchange.sockets.connections
    return kept


def request(number: int, more: int = 0) -> bytes:
    return b"%d %d\r\n" % (number, more) + bytes(more)


def exchanged(
    connections: Connections, count: int = COUNT, of: Callable[[int], bytes] = request
) -> dict[int, Any]:
    """What came of each: the body of its answer, or the kind of its error."""
    found: dict[int, Any] = {}

    def answered(number: int, answer: Received | BotoCoreError) -> bool:
        assert number not in found
        found[number] = answer.body if isinstance(answer, Received) else type(answer)
        return isinstance(answer, Received)

    ManyExchanges(connections, of, answered).run(count)
    return found


ALL = {number: b"%d" % number for number in range(COUNT)}


def test_each_request_has_its_answer_and_connections_are_reused() -> None:
    with server(ok) as url:
        connections = connections_to(url)
        assert exchanged(connections) == exchanged(connections) == ALL
        assert 1 <= len(connections._idle) <= AT_ONCE


def test_answers_may_come_in_pieces_and_in_any_order() -> None:
    def in_pieces(connection: socket.socket, number: int) -> None:
        body = b"%d" % number
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            len(body),
            body,
        )
        for start in range(0, len(whole), 1 + number % 9):
            connection.sendall(whole[start : start + 1 + number % 9])
            threading.Event().wait(0.001 * (number % 3))

    with server(in_pieces) as url:
        assert exchanged(connections_to(url)) == ALL


def test_request_larger_than_the_socket_buffer_is_sent_whole() -> None:
    with server(ok) as url:
        assert (
            exchanged(connections_to(url), of=lambda number: request(number, 3_000_000 * (number == 5)))
            == ALL
        )


def test_connections_that_end_with_their_answer_are_replaced() -> None:
    def once(connection: socket.socket, number: int) -> None:
        body = b"%d" % number
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_RDWR)

    with server(once) as url:
        connections = connections_to(url)
        assert exchanged(connections) == ALL
        assert not connections._idle


@pytest.mark.parametrize("half", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"no HTTP\r\n\r\n"])
def test_truncated_answer_fails_alone_and_stops_further_sends(half: bytes) -> None:
    def cut(connection: socket.socket, number: int) -> None:
        if number != 2:
            ok(connection, number)
            return
        connection.sendall(half)
        connection.shutdown(socket.SHUT_RDWR)

    with server(cut) as url:
        found = exchanged(connections_to(url), 1000)
    assert found.pop(2) is ConnectionClosedError
    assert found == {number: b"%d" % number for number in found}
    assert len(found) < 999


def test_an_answer_that_does_not_come_in_time_is_its_own_error() -> None:
    def silent(connection: socket.socket, number: int) -> None:
        if number != 2:
            ok(connection, number)

    with server(silent) as url:
        found = exchanged(connections_to(url, timeout_s=1.0), 10)
    assert found.pop(2) is ReadTimeoutError
    # A machine that stands still may be late with others, too.
    assert all(came in (b"%d" % number, ReadTimeoutError) for number, came in found.items())


@pytest.mark.parametrize("lane", ["side by side", "one", BOTOCORE, "admin"])
def test_request_in_flight_ends_with_the_time_of_its_caller(
    lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIGRATOR_LANE", lane)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = dynamodb_client(region=None, profile=None, endpoint=url, timeout_s=HANGING_S)
        transport, began = client.exchange.transport, time.monotonic()
        with ending_at(began + 0.1, "late"):
            if lane == "admin":
                with pytest.raises(ReadTimeoutError):
                    client.describe_table(TableName="Shop")
            elif lane == "side by side":
                assert exchanged(transport.connections, 3) == dict.fromkeys(range(3), ReadTimeoutError)
            else:
                with pytest.raises(ReadTimeoutError):
                    transport.send(client, "GetItem", {}, b"{}")
        assert time.monotonic() - began < HANGING_S


def test_connection_kept_after_a_short_wait_has_its_own_timeout() -> None:
    with server(ok) as url:
        connections = connections_to(url)
        with ending_at(time.monotonic() + HANGING_S, "late"):
            connections.exchange(lambda: request(1))
        (kept,) = connections._idle
        connections.exchange(lambda: request(2))
        assert connections._idle == [kept]
        assert kept.sock.gettimeout() == 120.0


def test_without_a_listener_nothing_is_sent_or_raised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    assert exchanged(connections_to(url)) == {}


def test_request_error_is_raised_after_sent_ones_are_answered() -> None:
    sent: list[int] = []

    def stopped(number: int) -> bytes:
        if number == 7:
            raise ValueError("stopped")
        sent.append(number)
        return request(number)

    answered: list[int] = []

    def note(number: int, answer: Received | BotoCoreError) -> bool:
        answered.append(number)
        return True

    with server(ok) as url:
        connections = connections_to(url)
        with pins.refused(ValueError):
            ManyExchanges(connections, stopped, note).run(COUNT)
        assert sorted(answered) == sent == list(range(7))
        # Nothing is left on a connection that would be read as the answer of another request.
        assert exchanged(connections) == ALL


def test_request_waits_for_room_while_other_answers_are_read() -> None:
    under_way: set[int] = set()
    most: list[int] = []

    def sent(number: int) -> bytes:
        under_way.add(number)
        most.append(len(under_way))
        return request(number)

    def answered(number: int, answer: Received | BotoCoreError) -> bool:
        under_way.remove(number)
        return isinstance(answer, Received)

    def waited(_: float) -> None:
        pytest.fail("an answer is awaited")

    with server(ok) as url:
        pause_s = lambda _: 60.0 if len(under_way) == 3 else 0.0  # noqa: E731
        ManyExchanges(connections_to(url), sent, answered, pause_s, waited).run(COUNT)
    assert (max(most), len(most), under_way) == (3, COUNT, set())


def test_pause_is_waited_for_if_no_answer_is_pending() -> None:
    waited: list[float] = []
    left = [5.0, 3.0]

    def request_noted(number: int) -> bytes:
        waited.append(0.0)
        return request(number)

    with server(ok) as url:
        pause_s = lambda _: left.pop(0) if left else 0.0  # noqa: E731
        ManyExchanges(connections_to(url), request_noted, lambda *_: True, pause_s, waited.append).run(1)
    assert waited == [5.0, 3.0, 0.0]
