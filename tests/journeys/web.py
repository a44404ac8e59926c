"""A shop's web service in a process of its own, as its demo starts it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.forking import Python
from tests.journeys.command import Project
from tests.support_services import free_port


@dataclass(frozen=True)
class Web:
    """A shop's web service and the project whose job it is part of."""

    made: Project
    url: str
    http: urllib3.PoolManager

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        sent = None if body is None else json.dumps(body).encode()  # urllib3's own would not send half a pair
        headers = {"Content-Type": "application/json"}
        answer = self.http.request(method, self.url + path, body=sent, headers=headers)
        return answer.status, json.loads(answer.data) if answer.data else None

    def relay(self) -> None:
        self.made.done("relay", str(self.made.job), "--once")


@contextmanager
def served(made: Project, application: Path, **environment: str) -> Iterator[Web]:
    """`application`: the folder of its module `app`."""
    port, log = free_port(), made.folder / "server.log"
    server = ["-m", "uvicorn", "--app-dir", application, "--port", port, "app:app"]
    with log.open("w") as out:
        process = Python(
            server,
            cwd=made.folder,
            env={**made.environment, "SHOP_JOB": str(made.job), **environment},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        shop = Web(made, f"http://127.0.0.1:{port}", urllib3.PoolManager(retries=False, timeout=60))
        _await(shop, process, log)
        yield shop
    finally:
        process.terminate()
        process.wait(120)
    assert "Traceback" not in log.read_text()


def _await(shop: Web, process: subprocess.Popen[str], log: Path) -> None:
    ends_at = time.monotonic() + 120
    while time.monotonic() < ends_at:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            assert shop.ask("GET", "/healthz")[0] == 200
        except urllib3.exceptions.HTTPError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("the shop does not answer")
