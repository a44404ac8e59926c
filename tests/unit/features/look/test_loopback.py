"""The server on the loopback address: what it answers, and above all what it does not."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from migrator.features.look.server import HttpPage, serving
from migrator.runtime.errors import SettingsError
from tests import pins

WAIT_S = 120.0
SECRET = "the page that only the token opens"


def page(fields: Mapping[str, str]) -> HttpPage:
    return 200, f"{SECRET} {dict(fields)}"


def served_at(port: int) -> AbstractContextManager[str]:
    policy = "default-src 'none'"
    return serving({"": page, "look": page}, port, refusal=lambda why: f"refused: {why}", policy=policy)


@dataclass(frozen=True)
class Served:
    port: int
    path: str

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, Mapping[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.putrequest(method, path, skip_host=headers is not None)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, dict(answer.getheaders())

    def raw(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S) as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            parts = iter(lambda: connection.recv(65_536), b"")
            return b"".join(parts)


@pytest.fixture
def served() -> Iterator[Served]:
    with served_at(0) as url:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        assert parts.port is not None
        yield Served(parts.port, parts.path)


def test_page_opens_at_its_own_address_with_strict_headers(served: Served) -> None:
    code, text, headers = served.ask(f"{served.path}look?pk=a%20b&sk=")
    assert (code, text) == (200, f"{SECRET} {{'pk': 'a b', 'sk': ''}}")
    assert headers["Content-Security-Policy"] == "default-src 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "python" not in headers["Server"].lower()


@pytest.mark.parametrize(
    "path", ["/", "/look", "/{wrong}/", "{own}nothing", "{own}../look", "{own}%2e%2e/", "{own}look/", "*"]
)
def test_nothing_else_is_there(served: Served, path: str) -> None:
    wrong = "x" * (len(served.path) - 2)
    code, text, _ = served.ask(path.format(own=served.path, wrong=wrong))
    assert code == 404
    assert SECRET not in text


def test_half_a_token_opens_nothing(served: Served) -> None:
    assert served.ask(f"{served.path[:-3]}/")[0] == 404
    assert served.ask(f"{served.path[:-1]}x/")[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_another_hosts_name_opens_nothing(served: Served, host: str) -> None:
    code, text, _ = served.ask(served.path, headers={"Host": host.format(port=served.port)})
    assert code == 421
    assert SECRET not in text


def test_the_hosts_own_names_open_it(served: Served) -> None:
    for host in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert served.ask(served.path, headers={"Host": f"{host}:{served.port}"})[0] == 200


def test_no_host_and_two_hosts_open_nothing(served: Served) -> None:
    assert served.ask(served.path, headers={})[0] == 421
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    request = f"GET {served.path} HTTP/1.1\r\n{host}Host: evil.example\r\n\r\n"
    assert SECRET.encode() not in served.raw(request.encode())


@pytest.mark.parametrize(
    "method", ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"]
)
def test_every_other_method_is_refused(served: Served, method: str) -> None:
    code, text, headers = served.ask(served.path, method)
    assert code == 405
    assert headers["Allow"] == "GET"
    assert SECRET not in text


@pytest.mark.parametrize("query", ["pk=%ff", "&".join(f"f{number}=1" for number in range(30))])
def test_unreadable_query_fields_are_refused_with_400(served: Served, query: str) -> None:
    assert served.ask(f"{served.path}look?{query}")[0] == 400


@pytest.mark.parametrize(
    "request_",
    [
        b"GET http://evil.example{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET {path} HTTP/9.9\r\nHost: 127.0.0.1:{port}\r\n\r\n",
        b"GET {path}\r\n\r\n",
        b"\x00\xff\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET {path} HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"",
    ],
    ids=["a whole address", "a version", "no version", "bytes", "a long line", "many headers", "nothing"],
)
def test_a_broken_request_opens_nothing_and_ends_nothing(
    served: Served, request_: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    filled = request_.replace(b"{path}", served.path.encode()).replace(b"{port}", str(served.port).encode())
    assert SECRET.encode() not in served.raw(filled)
    assert served.ask(served.path)[0] == 200
    assert capfd.readouterr() == ("", "")


def test_each_start_draws_another_token_and_the_last_one_is_gone() -> None:
    with served_at(0) as first:
        pass
    with served_at(0) as second:
        parts = urlsplit(second)
        assert parts.port is not None
        assert Served(parts.port, parts.path).ask(urlsplit(first).path)[0] == 404
    with pytest.raises(ConnectionRefusedError):
        Served(parts.port, parts.path).ask(parts.path)


def test_a_used_port_is_reported(served: Served) -> None:
    with pins.refused(SettingsError, port=served.port), served_at(served.port):
        pass
