"""/healthz tells a stuck process, /readyz a store that is away, and neither the other."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from threading import Event, Thread, active_count

import pytest

from migrator.cli.lag import Signs
from migrator.cli.metrics import ProcessMetrics
from migrator.cli.watched import MOST_CONNECTIONS, Monitored, Readiness, serve
from migrator.runtime.errors import SettingsError, StoppedError
from tests import pins
from tests.support_prometheus import fetched, free_port, until

PHASES = {"format": 1, "patterns": {}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_silent_worker_is_stuck_even_if_others_are_busy() -> None:
    clock, ended = Clock(), Event()
    signs = Signs(60, clock)
    assert signs.fault() == ""
    signs.give()
    gave = Event()

    def once_and_wait() -> None:
        signs.give()
        gave.set()
        ended.wait()

    other = Thread(target=once_and_wait)
    other.start()
    gave.wait()
    clock.now = 61
    signs.give()
    assert signs.fault() == pins.text()
    ended.set()
    other.join()
    assert signs.fault() == ""  # whose thread has ended is done


def test_one_that_never_began_is_stuck_at_last() -> None:
    clock = Clock()
    signs = Signs(60, clock)
    clock.now = 61
    assert signs.fault()


@pytest.fixture
def away() -> Iterator[Event]:
    """Set: the store that hangs goes on."""
    event = Event()
    yield event
    event.set()


def test_readiness_checks_each_store_and_waits_once_for_a_hang(away: Event) -> None:
    asked: list[str] = []

    def hangs() -> None:
        asked.append("table")
        away.wait()

    def fails() -> None:
        raise StoppedError("it is away")

    readiness = Readiness({"source": lambda: None, "journal": fails, "table": hangs}, answer_s=0.2)
    told = readiness.faults()
    assert told == {"source": "ok", "journal": pins.text("away"), "table": pins.text("within")}
    assert readiness.faults() == told
    assert asked == ["table"]


def monitored(signs: Signs, readiness: Readiness) -> Monitored:
    return Monitored(
        ProcessMetrics("shop", "relay", ()), signs, readiness, lambda: PHASES, lambda: "paused by me"
    )


def test_unreachable_store_does_not_cause_a_restart() -> None:
    def fails() -> None:
        raise StoppedError("it is away")

    clock, port = Clock(), free_port()
    signs = Signs(60, clock)
    serve(monitored(signs, Readiness({"journal": fails})), "127.0.0.1", port)
    code, body = fetched(f"http://127.0.0.1:{port}/readyz")
    assert (code, json.loads(body)) == (
        503,
        {"status": "not ready", "stores": {"journal": pins.text("away")}, "held": pins.text("paused")},
    )
    assert fetched(f"http://127.0.0.1:{port}/healthz")[0] == 200
    clock.now = 61
    code, body = fetched(f"http://127.0.0.1:{port}/healthz")
    assert (code, json.loads(body)["status"]) == (503, "stuck")
    assert fetched(f"http://127.0.0.1:{port}/readyz?verbose=1")[0] == 503
    assert fetched(f"http://127.0.0.1:{port}/")[0] == 404
    assert "migrator_process_info{" in fetched(f"http://127.0.0.1:{port}/metrics")[1]


def test_a_taken_port_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pins.refused(SettingsError, port=port):
            serve(monitored(Signs(60), Readiness({})), "127.0.0.1", port)


@contextmanager
def served() -> Iterator[int]:
    port = free_port()
    serve(monitored(Signs(60), Readiness({})), "127.0.0.1", port)
    yield port


def test_silent_connections_are_bounded_and_a_probe_is_answered() -> None:
    with served() as port, ExitStack() as stack:
        before = active_count()
        silent = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
            for _ in range(4 * MOST_CONNECTIONS)
        ]
        assert fetched(f"http://127.0.0.1:{port}/healthz")[0] == 200
        silent[0].settimeout(30)
        assert silent[0].recv(1) == b"", "the oldest connection is closed"
        until(lambda: active_count() - before <= MOST_CONNECTIONS + 1, "threads of closed connections end")


def test_a_silent_connection_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.cli.watched.REQUEST_S", 0.1)
    with served() as port, closing(socket.create_connection(("127.0.0.1", port))) as silent:
        silent.settimeout(30)
        assert silent.recv(1) == b""


def test_the_endpoint_lives_on_when_files_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, fails = socket.socket.accept, iter([True, True])

    def accepting(self: socket.socket) -> object:
        if next(fails, False):
            raise OSError(errno.EMFILE, "too many open files")
        return accept(self)

    with served() as port:
        monkeypatch.setattr(socket.socket, "accept", accepting)
        assert fetched(f"http://127.0.0.1:{port}/healthz")[0] == 200
        assert next(fails, False) is False


def test_head_is_answered_without_a_body() -> None:
    with served() as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("HEAD", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, int(answer.headers["Content-Length"]) > 0, answer.read()) == (200, True, b"")


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:9464", 200), ("[::1]:9464", 200), ("evil.example", 421), ("", 421)],
)
def test_a_loopback_address_refuses_other_host_headers(host: str, status: int) -> None:
    with served() as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/phases", headers={"Host": host})
        assert connection.getresponse().status == status
