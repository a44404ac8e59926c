"""A process of a service that is frozen while a newer one takes its place and the patterns move on, and that thaws too late."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests import pins
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import (
    OTHER,
    PATTERN,
    cutover_shop,
    desk_of,
    filled,
    live,
    obey,
    phase,
    reader,
)
from tests.support_waiting import until

SERVICE = """\
import os
import sys

import sqlalchemy as sa

from migrator.api import Migration
from migrator.runtime.errors import MigratorError

engine = sa.create_engine(os.environ["MIGRATOR_SOURCE_URL"])
migration = Migration.load(sys.argv[1], service="shop-api", version="1")
migration.dual_write(engine)
migration.begin_reading()
print("ready", flush=True)
for line in sys.stdin:
    try:
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE customer SET name = :name WHERE id = 1"), {"name": line.strip()})
        print("written", flush=True)
    except MigratorError as error:
        print(error, flush=True)
"""


@pytest.fixture
def shop(tmp_path: Path, dynamodb_url: str) -> Project:
    return live(filled(cutover_shop(tmp_path, dynamodb_url)))


@contextmanager
def service(shop: Project) -> Iterator[subprocess.Popen[str]]:
    program = shop.folder / "service.py"
    program.write_text(SERVICE)
    process = Python(
        [program, shop.job],
        cwd=shop.folder,
        env=shop.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert said(process) == "ready"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=120)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def writes(process: subprocess.Popen[str], name: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{name}\n")
    process.stdin.flush()


def name_of_the_first(shop: Project) -> str:
    with closing(sqlite3.connect(shop.folder / "shop.db")) as connection:
        return str(connection.execute("SELECT name FROM customer WHERE id = 1").fetchone()[0])


def silent_line(shop: Project, *words: str) -> tuple[str, str]:
    told = shop.run("cutover", *words, "--dry-run", "--json").data
    return next((one["verdict"], one["found"]) for one in told["evidence"] if one["name"] == "silent")


def test_frozen_process_blocks_the_end_and_writes_nothing_after(shop: Project) -> None:
    job = str(shop.job)
    with service(shop) as old, desk_of(shop) as session:
        writes(old, "before")
        assert said(old) == "written"
        os.kill(old.pid, signal.SIGSTOP)
        until(lambda: [one.pid for one in session.service_registry().silent] == [old.pid])
        (frozen,) = (one.id for one in session.service_registry().silent)
        new = reader(session, shop)
        obey(session, new)
        # It is there still, as the system knows, so no other process says goodbye for it; a newer one of its service took its place.
        assert [one.pid for one in session.service_registry().replaced] == [old.pid]
        assert silent_line(shop, "advance", job, PATTERN)[0] == "unknown"
        shop.done("cutover", "rollback", job, OTHER)
        verdict, found = silent_line(shop, "advance", job, OTHER)
        assert (verdict, pins.said(found, "replaced")) == ("ok", True)
        for words in (["advance", job, OTHER], ["ramp", job, OTHER, "100"], ["advance", job, OTHER]):
            shop.done("cutover", *words, "--override", "drill")
        # An operator is sure, and mistaken.
        for pattern in (PATTERN, OTHER):
            more = ["--evict", frozen] if pattern == PATTERN else []
            shop.done("cutover", "advance", job, pattern, "--override", "drill", "--yes", *more)
            assert phase(shop, pattern) == "complete"
        writes(old, "after the end")
        os.kill(old.pid, signal.SIGCONT)
        assert pins.said(said(old), "access")
        assert name_of_the_first(shop) == "before"
