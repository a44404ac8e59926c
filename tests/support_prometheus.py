"""Prometheus' own programs, where they are installed: promtool, and a server that scrapes texts which a test gives it."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests import support_services as services

LIMIT_S = 120.0


def program(name: str) -> str:
    """Where it is installed. A test without it is skipped; in CI it fails."""
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is not installed (Debian: apt-get install prometheus)"
        if services.in_ci():
            pytest.fail(f"CI=true, and {missing}", pytrace=False)
        pytest.skip(missing)
    return path


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])


def until(holds: Callable[[], object], what: str) -> None:
    """Returns when it holds; a limit that only a failure reaches."""
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.2)


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@dataclass(frozen=True)
class Server:
    """A server that is at work."""

    url: str

    def asked(self, path: str, **words: str) -> Any:
        code, body = fetched(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}")
        assert code == 200, body
        return json.loads(body)["data"]


@contextmanager
def prometheus(folder: Path, texts: Sequence[str], rules: Path) -> Iterator[Server]:
    """A server that has scraped each text twice at least, so that rates can be told."""
    path, port = program("prometheus"), free_port()
    with _serving(texts) as addresses:
        config = folder / "prometheus.yml"
        scrape = {
            "job_name": "migrator",
            "honor_labels": True,
            "static_configs": [{"targets": addresses}],
        }
        settings = {
            "global": {"scrape_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [scrape],
        }
        config.write_text(json.dumps(settings))
        words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
        with (folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [path, *words, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
            )
        server = Server(f"http://127.0.0.1:{port}")
        try:
            until(lambda: _scraped(server, len(texts)), f"scraped twice; see {folder / 'prometheus.log'}")
            yield server
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def _scraped(server: Server, count: int) -> bool:
    try:
        if fetched(f"{server.url}/-/ready")[0] != 200:  # it listens before it can answer
            return False
        found = server.asked("query", query="count_over_time(up[1m]) >= 3 and up == 1")["result"]
    except OSError:
        return False
    return len(found) == count


@contextmanager
def _serving(texts: Sequence[str]) -> Iterator[list[str]]:
    """Addresses at which the texts are served, one each."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(text)) for text in texts]
    for server in servers:
        Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield [f"127.0.0.1:{server.server_port}" for server in servers]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def _handler(text: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *words: object) -> None:
            """Nothing."""

    return Handler
