"""The source's server ends at once in the middle of a run, and comes back: for real, on servers of the tests' own."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import pins, support_mysql
from tests import support_services as services
from tests.journeys.command import Project, digest, keys, project
from tests.journeys.in_process import Ended
from tests.support_own_server import OwnServer

BASE = "0e10dfc2f6319e2f47264525d45a6338"


@contextmanager
def postgresql(chinook: Path) -> Iterator[tuple[OwnServer, str]]:
    with services.own_postgres() as server, services.postgres_database(server.url) as url:
        services.run_script(url, services.chinook_postgres_script(chinook))
        yield server, url


@contextmanager
def mariadb(chinook: Path) -> Iterator[tuple[OwnServer, str]]:
    with support_mysql.own_mariadb() as server, support_mysql.mysql_database(server.url) as url:
        support_mysql.run_script(url, support_mysql.chinook_mysql_script(chinook))
        yield server, url


@dataclass(frozen=True)
class Shop:
    server: OwnServer
    project: Callable[[str], Project]
    """A project with this tuning; all of one test have one table."""


@pytest.fixture(params=[postgresql, mariadb])
def shop(
    request: pytest.FixtureRequest, tmp_path: Path, chinook_dir: Path, dynamodb_url: str
) -> Iterator[Shop]:
    table = f"Chinook{secrets.token_hex(4)}"
    with request.param(chinook_dir) as (server, url):
        yield Shop(server, lambda tuning: project(tmp_path, url, dynamodb_url, table, tuning=tuning))


def crashed(shop: Shop, made: Project, command: str, *, down_s: float | None) -> Ended:
    """How the command ended whose source crashed after some pages, and came back `down_s` later (None: it did not)."""
    process = made.start(command, str(made.job), "--verbose")
    assert process.stderr is not None
    pages = 0
    while pages < 12:
        line = process.stderr.readline()
        assert line, f"{command} ended before its source crashed"
        pages += "page_done" in line
    shop.server.crash()
    if down_s is not None:
        time.sleep(down_s)
        assert process.poll() is None, "it did not wait"
        shop.server.start()
    return _ended(process)


def _ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in out + err, err
    return Ended(process.returncode, out, err)


def whole(made: Project) -> bool:
    items = made.items()
    return (len(items), digest(keys(items))) == (15_666, BASE)


def test_a_run_waits_for_a_source_that_starts_again(shop: Shop) -> None:
    made = shop.project("page_rows: 100, workers: 2, attempts: 200, backoff_cap_s: 1")
    made.done("table", "create", str(made.job))
    for command in ("backfill", "verify"):
        ended = crashed(shop, made, command, down_s=3)
        assert ended.code == 0, ended.err[-2000:]  # of verify: clean
    assert whole(made)


def test_run_with_an_unreachable_source_stops_and_resumes(shop: Shop) -> None:
    made = shop.project("page_rows: 100, workers: 2, attempts: 3, backoff_cap_s: 0.2")
    made.done("table", "create", str(made.job))
    ended = crashed(shop, made, "backfill", down_s=None)
    assert ended.code == 3, ended.err[-2000:]
    assert pins.said(ended.err)
    shop.server.start()
    assert "is resumed" in made.done("backfill", str(made.job)).err
    assert whole(made)
