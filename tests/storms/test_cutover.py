"""One pattern all the way on PostgreSQL and DynamoDB, with a service that reads through it: off to complete, and back."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from migrator.api import Migration
from migrator.mapping.model.evidence import Move, State
from migrator.stages.session.session import JobSession
from tests import pins
from tests.faults.proxy import FaultProxy
from tests.faults.schedule import Faults
from tests.forking import Python
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, PATTERN, cutover_shop, desk_of, phase
from tests.service.reading import part_of
from tests.support_waiting import until

SETTINGS = """\
cutover: {comparisons_min: 100, mismatch_max: 0.03, error_max: 0.03, p99_factor: 1000, quiet: 1s}
reads: {phase_cache_s: 0.2, shadow: {per_s: 1000, at_once: 8, settle_s: 0.5}}
"""
ROWS = """
CREATE TABLE customer (id integer PRIMARY KEY, name text);
CREATE TABLE invoice (id integer PRIMARY KEY, customer_id integer NOT NULL, total integer);
INSERT INTO customer SELECT n, 'Name ' || n FROM generate_series(1, 30) n;
INSERT INTO invoice SELECT n, n % 30 + 1, 5 FROM generate_series(1, 60) n;
"""


@pytest.fixture
def shop(
    tmp_path: Path, dynamodb_url: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> Project:
    made = cutover_shop(tmp_path, dynamodb_url, SETTINGS)
    made.environment["MIGRATOR_SOURCE_URL"] = postgres_database
    with psycopg.connect(postgres_database) as source:
        source.execute(ROWS)
    for name in ("MIGRATOR_SOURCE_URL", "MIGRATOR_HOME"):
        monkeypatch.setenv(name, made.environment[name])
    return made.prepared("table create", "capture install", "backfill", "verify")


class Callers:
    """Threads that ask both patterns all the time, and what they were told."""

    def __init__(self, migration: Migration) -> None:
        self.migration = migration
        self.wrong: list[Any] = []
        self.calls = 0
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(2)]

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(120)

    def _ask(self, number: int) -> None:
        while not self._done.is_set():
            id_ = self.calls % 29 + 2
            try:
                said = self.migration.read(PATTERN, id=id_)
                if not str(part_of(said, "customer")["name"]).startswith(f"Name {id_}"):
                    self.wrong.append(said)
                if len(self.migration.read(OTHER, customer_id=id_)) != 2:
                    self.wrong.append(id_)
            except Exception as error:
                self.wrong.append(error)
            self.calls += 1
            self._done.wait(0.02)


@contextmanager
def serving(shop: Project) -> Iterator[Callers]:
    """A relay, and a service that reads."""
    with (
        shop.beside("relay", str(shop.job)),
        closing(Migration.load(shop.job, service="shop-api", version="1")) as migration,
        Callers(migration) as callers,
    ):
        yield callers


def step(shop: Project, *words: str) -> None:
    """A move that is made as soon as its evidence is there."""
    ends_at = time.monotonic() + 120
    while (ended := shop.run("cutover", *words, "--wait")).code:
        assert time.monotonic() < ends_at, ended.out + ended.err
        time.sleep(0.3)


@contextmanager
def writing() -> Iterator[None]:
    """A service that writes all the time, until the pause."""
    done = threading.Event()

    def write() -> None:
        with psycopg.connect(os.environ["MIGRATOR_SOURCE_URL"], autocommit=True) as source:
            for number in range(1_000_000):
                if done.wait(0.4):
                    return
                id_ = number % 29 + 2
                change = "UPDATE customer SET name = %s WHERE id = %s"
                source.execute(change, (f"Name {id_}!{number}", id_))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(120)


@contextmanager
def faulty(shop: Project) -> Iterator[Faults]:
    """The table behind a proxy that fails some requests of everybody's."""
    faults = Faults(
        throttle=0.01,
        errors=0.01,
        unavailable=0.005,
        cut_before=0.005,
        cut_after=0.005,
        unprocessed=0.01,
        late=0.01,
    )
    faults.late_s = 0.2
    with FaultProxy(shop.endpoint, faults) as proxy:
        text = shop.job.read_text()
        shop.job.write_text(text.replace(shop.endpoint, proxy.url))
        yield faults
        shop.job.write_text(text)


def back_from(shop: Project, phase_: str, *words: str) -> None:
    """Back from a phase, with every reader behind it."""
    assert phase(shop).startswith(phase_)
    shop.done("cutover", "rollback", str(shop.job), PATTERN, "--wait", *words)
    assert phase(shop) == ("off" if "off" in words or phase_ == "shadow" else "shadow")


def only_by_evidence(shop: Project) -> None:
    """Each move forward had evidence, all of it right; those back asked for none."""
    for one in shop.done("cutover", "status", "--history", str(shop.job), "--json").data:
        verdicts = {line["verdict"] for line in one["evidence"]}
        assert (one["override"], verdicts - {"ok"}) == (False, set())
        is_back = one["to"] in ("off", "shadow") and one["from"] != "off"
        assert bool(verdicts) != is_back


def would_strip(shop: Project) -> str:
    """A relay that was stopped amid a request that failed counts as a writer until its requests cannot land any more."""
    ends_at = time.monotonic() + 120
    while (ended := shop.run("clean", "--attributes", str(shop.job), "--dry-run")).code:
        assert time.monotonic() < ends_at, ended.err
        time.sleep(1)
    return ended.out


def test_patterns_complete_under_load_and_roll_back_at_any_phase(shop: Project) -> None:
    job = str(shop.job)
    with faulty(shop) as faults, serving(shop) as callers:
        with writing():
            step(shop, "advance", job, PATTERN)
            back_from(shop, "shadow")
            step(shop, "advance", job, PATTERN)
            step(shop, "ramp", job, PATTERN, "50")
            back_from(shop, "ramp")
            step(shop, "ramp", job, PATTERN, "100")
            step(shop, "advance", job, PATTERN)
            back_from(shop, "live", "--to", "off")
            for word, *percent in (["advance"], ["ramp", "100"], ["advance"]):
                for pattern in (PATTERN, OTHER):
                    step(shop, word, job, pattern, *percent)
            assert shop.done("cutover", "watch", job, "--once").out == ""
        # Nothing writes from here on; what was written is in the table, and PostgreSQL has counted it.
        time.sleep(2)
        shop.done("verify", job, "--settle", "1")
        for pattern in (PATTERN, OTHER):
            step(shop, "advance", job, pattern, "--yes", "--one-way")
        calls = callers.calls
        time.sleep(0.5)
        assert callers.calls > calls
    assert callers.wrong == []
    assert min(faults.counts[kind] for kind in ("throttle", "errors", "cut_before", "cut_after", "late")) > 0
    only_by_evidence(shop)
    checked = shop.run("decommission", "check", job, "--explain")
    assert checked.code == 0, checked.out
    for text in (
        "nothing depends on SQL",
        "DROP FUNCTION",
        "DROP TABLE public.customer, public.invoice",
    ):
        assert text in checked.out
    shop.done("capture", "uninstall", job)
    assert "90 items" in would_strip(shop)


@pytest.mark.nightly
def test_a_fault_under_load_is_rolled_back_by_the_watch(shop: Project) -> None:
    job = str(shop.job)
    with serving(shop):
        step(shop, "advance", job, PATTERN)
        step(shop, "ramp", job, PATTERN, "100")
        with psycopg.connect(os.environ["MIGRATOR_SOURCE_URL"]) as source:
            source.execute("ALTER TABLE customer DISABLE TRIGGER USER")
            source.execute("UPDATE customer SET name = name || ' the second'")
        until(lambda: shop.run("cutover", "watch", job, "--once").code != 0)
        assert phase(shop) == "shadow"
        refused = shop.run("cutover", "advance", job, PATTERN)
        assert pins.said(refused.err)


SERVICE = """
import sys
from migrator.api import Migration
from migrator.stages.session.session import JobSession
from migrator.mapping.model.evidence import State
from migrator.mapping.model.evidence import Move
with Migration.load(sys.argv[1], service="shop-api") as migration:
    migration.read("customer_by_id", id=2)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.nightly
def test_two_processes_follow_a_move_within_cache_time_plus_1_s(shop: Project) -> None:
    cache_s = 2.0
    shop.job.write_text(shop.job.read_text().replace("phase_cache_s: 0.2", f"phase_cache_s: {cache_s}"))
    words, pipe = ["-c", SERVICE, shop.job], subprocess.PIPE
    services = [
        Python(words, env=shop.environment, cwd=shop.folder, stdin=pipe, stdout=pipe) for _ in range(2)
    ]
    try:
        assert [one.stdout.readline() for one in services if one.stdout] == ["ready\n"] * 2
        with desk_of(shop) as session:
            took = [_moved(session, before, after) for before, after in MOVES]
    finally:
        for one in services:
            one.communicate("", timeout=120)
    print(f"\nseconds until both acted by a move: {', '.join(f'{one:.2f}' for one in took)}")
    assert max(took) <= cache_s + 1


MOVES = [(State("off"), State("shadow")), (State("shadow"), State("off"))] * 3


def _moved(session: JobSession, before: State, after: State) -> float:
    """Seconds from the move until both readers say that they act by it."""
    known = session.phases.all().get(PATTERN)
    made = session.phases.move(Move(PATTERN, before, after, "ada"), known.version if known else 0)
    begun = time.monotonic()
    while [one.get(PATTERN) for one in session.phases.confirmed().values()] != [made.version] * 2:
        assert time.monotonic() - begun < 30
        time.sleep(0.02)
    return time.monotonic() - begun
