"""How a service ends: by itself, by a signal under a server, in a worker that was forked; and which process deregisters then."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from migrator.journal.writers import SqlInstances
from migrator.mapping.model.instances import Instance
from migrator.runtime.system import visible_processes
from tests import pins
from tests.forking import Python, run_python
from tests.service.reading import ReadShop
from tests.support_waiting import until

LOADED = """\
import os
from contextlib import asynccontextmanager

from migrator.api import Migration, worker_exit

migration = Migration.load("reads.yaml", service="shop")
migration.begin_reading()


def answer():
    migration.read("by_status", status="open")
"""
ASGI = f"""{LOADED}

async def plain(scope, receive, send):
    assert scope["type"] == "http", "an application that knows no lifespan"
    await migration.read_async("by_status", status="open")
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"answered"}})


wrapped = migration.asgi(plain)


def fastapi(lifespan):
    from fastapi import FastAPI

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    async def index():
        return len(await migration.read_async("by_status", status="open"))

    return app


@asynccontextmanager
async def own(app):
    async with migration.lifespan(app):
        print("the service's own beginning")
        yield
        print("the service's own end")


def given():
    return fastapi(migration.lifespan)


def composed():
    return fastapi(own)


def without():
    return fastapi(None)
"""


def known(shop: ReadShop) -> list[Instance]:
    return SqlInstances(shop.journal.database, "reads").known()


def answered(shop: ReadShop) -> int:
    found = shop.windows().get("by_status")
    return found.answered.get("sql", 0) if found else 0


def ran(shop: ReadShop, program: str) -> subprocess.CompletedProcess[str]:
    path = shop.folder / "program.py"
    path.write_text(program)
    return run_python([path.name], cwd=shop.folder)


@contextmanager
def served(shop: ReadShop, app: str, *more: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A server of the application, which has answered once; and what it says."""
    (shop.folder / "web.py").write_text(ASGI)
    log = shop.folder / "web.log"
    words = ["-m", "uvicorn", f"web:{app}", "--port", "0", *more]
    with log.open("w") as out:
        process = _started(words, shop, out)
        try:
            workers = 2 if "--workers" in more else 1
            # The parent of several workers says where it listens before it does.
            until(lambda: log.read_text().count("startup complete") == workers, f"{app} did not start")
            until(lambda: "running on http" in log.read_text(), f"{app} did not start")
            port = log.read_text().split("http://127.0.0.1:")[1].split()[0]
            asked = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/', timeout=60).read()"
            run_python(["-c", asked], check=True)
            yield process, log
        finally:
            process.kill()
            process.wait(120)


def _started(words: list[str], shop: ReadShop, out: IO[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return Python(words, cwd=shop.folder, env=environment, stdout=out, stderr=subprocess.STDOUT)


pytestmark = [pytest.mark.slow, pytest.mark.engines("sqlite")]


def test_program_that_ends_deregisters_and_keeps_its_last_counts(read_shop: ReadShop) -> None:
    ended = ran(read_shop, f"{LOADED}\nfor _ in range(5):\n    answer()\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert known(read_shop) == []
    assert answered(read_shop) == 5


def test_a_migration_without_a_reference_completes(read_shop: ReadShop) -> None:
    program = (
        LOADED
        + "\nimport gc\ndel migration\ngc.collect()\nfrom migrator import api\n(migration,) = api._OPEN\nanswer()\n"
    )
    ended = ran(read_shop, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (known(read_shop), answered(read_shop)) == ([], 1)


def test_program_that_fails_deregisters_and_shows_only_its_error(read_shop: ReadShop) -> None:
    ended = ran(read_shop, f"{LOADED}\nanswer()\nraise SystemExit('the service failed')\n")
    assert (ended.returncode, ended.stderr) == (1, pins.text())
    assert (known(read_shop), answered(read_shop)) == ([], 1)


def test_unreachable_journal_at_the_end_prints_no_traceback(read_shop: ReadShop) -> None:
    program = f"{LOADED}\nanswer()\nos.rename('journal.db', 'elsewhere.db')\nos.mkdir('journal.db')\n"
    ended = ran(read_shop, program + "from migrator.api import _OPEN\n")
    (read_shop.folder / "journal.db").rmdir()
    (read_shop.folder / "elsewhere.db").rename(read_shop.folder / "journal.db")
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr, ended.stderr


@pytest.mark.parametrize(
    ("app", "more"),
    [
        ("wrapped", ()),
        ("given", ("--factory",)),
        ("composed", ("--factory",)),
        ("composed", ("--factory", "--workers", "2")),
    ],
)
def test_stopped_server_deregisters(read_shop: ReadShop, app: str, more: tuple[str, ...]) -> None:
    with served(read_shop, app, *more) as (process, log):
        until(lambda: len(known(read_shop)) == (2 if "--workers" in more else 1), "instances")
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    said = log.read_text()
    assert "Traceback" not in said, said
    assert known(read_shop) == [], said
    assert answered(read_shop) == 1
    if app == "composed":
        assert pins.said(said)


@pytest.mark.skipif(not visible_processes(), reason="this system does not say which processes one sees")
def test_silent_server_is_deregistered_by_the_next_process(read_shop: ReadShop) -> None:
    with served(read_shop, "without", "--factory") as (process, _):
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    assert [one.pid for one in known(read_shop)] == [process.pid]
    with read_shop.migration() as migration:
        migration.begin_reading()
        assert [one.pid for one in known(read_shop)] == [os.getpid()]


def test_forked_workers_are_instances_that_each_deregister(read_shop: ReadShop) -> None:
    """As gunicorn --preload does: loaded, forked, `worker_exit` called in a worker that ends past the interpreter."""
    program = f"""{LOADED}
import time

def known():
    service = migration._service
    return {{one.pid for one in service.session.instances.known()}}

def wait(holds):
    ends_at = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < ends_at, known()
        time.sleep(0.05)

answer()
workers = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        wait(lambda: os.getpid() in known())
        answer()
        worker_exit(None, None)
        assert os.getpid() not in known()
        os._exit(0)
    workers.append(pid)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers] == [0, 0, 0]
assert known() == {{os.getpid()}}
answer()
"""
    ended = ran(read_shop, program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (known(read_shop), answered(read_shop)) == ([], 5)
