"""What was compared: the fake record of it, and journals of every kind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from migrator.journal import schema
from migrator.journal.database import Database
from migrator.journal.phases import SqlEvidence
from migrator.mapping.model.evidence import SAMPLES_KEPT, WINDOWS_KEPT_S, DiffKey, Evidence, Sample, Window
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from tests import pins
from tests.fakes.evidence import FakeEvidence
from tests.support_source_databases import postgresql_database

MINUTE = int(time.time()) // 60 * 60
VALUE = DiffKey("value", "orders", "total")
ODD = "Ünïts of “30%_\\' 😀"
WINDOW = Window(
    "recent_orders",
    MINUTE,
    "0123456789abcdef",
    ODD,
    "abc",
    "service",
    answered={"sql": 12, "table": 10},
    errors={"table": 2},
    compared=10,
    same=7,
    transient=1,
    different=2,
    dropped={"busy": 3},
    kinds={"": 4, "since,status": 6},
    found={VALUE: 2, DiffKey("error", attribute="table"): 2, DiffKey("missing", ODD, ODD): 1},
    latency={"sql": "eJyrVjI0NTBQsjKqBQANvgJ7", "table": "eJyrVjIEAAGnAKc="},
    answer="1:0123456789abcdef0123456789abcdef",
)
SAMPLE = Sample(
    "recent_orders",
    VALUE,
    MINUTE + 0.25,
    "0123456789abcdef",
    "abc",
    {"user_id": "1", "name": ODD},
    ("total", "status"),
    ('"9.90"', "null"),
    ('"9.9\\u2028"', '"\x00\ud800</script>"'),
)


@pytest.fixture(scope="module", params=["fake", "file", "postgresql", "mariadb"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database | None]:
    """One for all tests of this file, since jobs keep apart; None where they are to use the fake."""
    if request.param == "fake":
        yield None
        return
    with ExitStack() as stack:
        if request.param == "file":
            url = f"sqlite:///{tmp_path_factory.mktemp('journal') / 'shop.db'}"
        elif request.param == "postgresql":
            url = stack.enter_context(postgresql_database(request.getfixturevalue("postgres_url")))
        else:
            url = request.getfixturevalue("new_mysql_database")()
        made = Database(url)
        yield made
        made.close()


@pytest.fixture
def make(database: Database | None) -> Callable[[str], Evidence]:
    """A function from a job's name, made one of this test's own, to what was compared for it."""
    made: dict[str, Evidence] = {}
    own = uuid4().hex

    def evidence_of(job: str) -> Evidence:
        if job not in made:
            new = FakeEvidence(time.time) if database is None else SqlEvidence(database, f"{job}-{own}")
            made[job] = new
        return made[job]

    return evidence_of


@pytest.fixture
def evidence(make: Callable[[str], Evidence]) -> Evidence:
    return make("shop")


def test_windows_and_samples_come_back_complete(evidence: Evidence) -> None:
    missing = replace(SAMPLE, key=DiffKey("missing", "orders"), at=SAMPLE.at + 1, item=None)
    error = Sample("stock", DiffKey("error", attribute="sql"), MINUTE, "b", "abc", why="a lock\nwaited")
    evidence.keep([WINDOW], [SAMPLE, missing, error])
    assert evidence.windows(MINUTE) == [WINDOW]
    assert evidence.samples() == [missing, SAMPLE, error]
    assert evidence.samples("stock") == [error]
    assert abs(evidence.now_s() - time.time()) < 30


def test_window_replaces_that_of_the_same_minute_and_writer(evidence: Evidence) -> None:
    other = replace(WINDOW, writer="another")
    evidence.keep([WINDOW, other], [])
    grown = replace(WINDOW, compared=11, same=8, found={}, revision="def", service="shop", origin="replay")
    evidence.keep([grown], [])
    evidence.keep([grown], [])
    assert evidence.windows(MINUTE) == [grown, other]


def test_windows_are_oldest_first_filtered_by_time_and_pattern(evidence: Evidence) -> None:
    old, lately = (
        replace(WINDOW, begun_at=MINUTE - 120),
        replace(WINDOW, begun_at=MINUTE - 60, pattern="stock"),
    )
    evidence.keep([WINDOW, lately, old], [])
    assert evidence.windows(0) == [old, lately, WINDOW]
    assert evidence.windows(MINUTE - 60) == [lately, WINDOW]
    assert evidence.windows(MINUTE - 59.5) == [WINDOW]
    assert evidence.windows(0, "stock") == [lately]
    # Names that differ in case are two names.
    assert evidence.windows(0, "Stock") == []


def test_jobs_have_evidence_of_their_own(make: Callable[[str], Evidence]) -> None:
    make("shop").keep([WINDOW], [SAMPLE])
    other = make("other")
    other.keep([replace(WINDOW, same=1)], [])
    assert [one.same for one in other.windows(0)] == [1]
    assert other.samples() == []
    assert (make("shop").windows(0), make("shop").samples()) == ([WINDOW], [SAMPLE])


def test_of_each_kind_of_difference_the_newest_samples_stay(evidence: Evidence) -> None:
    many = [replace(SAMPLE, at=MINUTE + n, params={"n": str(n)}) for n in range(SAMPLES_KEPT + 5)]
    of_another_kind = replace(SAMPLE, at=MINUTE - 500, key=replace(VALUE, part="lines"))
    of_another_pattern = replace(SAMPLE, at=MINUTE - 600, pattern="stock")
    evidence.keep([], [of_another_kind, of_another_pattern])
    evidence.keep([], many[5:])
    evidence.keep([], many[:5])
    assert evidence.samples() == [*reversed(many[5:]), of_another_kind, of_another_pattern]


def test_samples_of_one_moment_are_the_last_kept_first(evidence: Evidence) -> None:
    many = [replace(SAMPLE, params={"n": str(n)}) for n in range(SAMPLES_KEPT + 5)]
    evidence.keep([], many)
    assert evidence.samples() == list(reversed(many[5:]))


def test_old_windows_go_when_new_ones_come(evidence: Evidence) -> None:
    # MINUTE is as old as this process is.
    old = replace(WINDOW, begun_at=MINUTE - int(WINDOWS_KEPT_S) - 7200)
    young = replace(WINDOW, begun_at=MINUTE - int(WINDOWS_KEPT_S) + 7200)
    evidence.keep([old, young], [])
    # Another process, or this one an hour later.
    after = SqlEvidence(evidence.database, evidence.job) if isinstance(evidence, SqlEvidence) else evidence
    after.keep([WINDOW], [])
    assert after.windows(0) == [young, WINDOW]


def test_nothing_to_keep_is_no_fault(evidence: Evidence) -> None:
    evidence.keep([], [])
    assert (evidence.windows(0), evidence.samples()) == ([], [])


def test_many_writers_at_once_lose_nothing(evidence: Evidence) -> None:
    def write(number: int) -> None:
        for step in range(10):
            mine = [replace(WINDOW, writer=f"w{number}", pattern=f"p{n}", compared=step) for n in range(3)]
            evidence.keep(mine if number % 2 else mine[::-1], [replace(SAMPLE, params={"n": str(number)})])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(evidence.windows(0)) == 12
    assert {one.compared for one in evidence.windows(0)} == {9}
    assert len(evidence.samples()) >= SAMPLES_KEPT


@pytest.fixture
def memory() -> Iterator[SqlEvidence]:
    database = Database("sqlite://")
    made = SqlEvidence(database, "shop")
    made.keep([WINDOW, replace(WINDOW, pattern="other")], [SAMPLE])
    yield made
    database.close()


def test_unknown_counts_of_a_newer_migrator_are_left_out(memory: SqlEvidence) -> None:
    with memory.database.begin() as connection:
        text = connection.execute(select(schema.window.c.counts)).scalar()
        assert text is not None
        newer = json.dumps(json.loads(text) | {"waited": 5, "cells": {"a": 1}})
        connection.execute(update(schema.window).values(counts=newer))
        sample = json.loads(connection.execute(select(schema.sample.c.content)).scalar_one())
        connection.execute(update(schema.sample).values(content=json.dumps(sample | {"region": "eu"})))
    assert memory.windows(0, "recent_orders") == [WINDOW]
    assert memory.samples() == [SAMPLE]


@pytest.mark.parametrize(
    "text", ["", "7", "{}", '{"found": [[1]]}', '{"found": [], "errors": 7}', '{"found": [], "same": "x"}']
)
def test_unreadable_window_is_named_and_spoils_no_other_pattern(memory: SqlEvidence, text: str) -> None:
    with memory.database.begin() as connection:
        bad = update(schema.window).where(schema.window.c.pattern == "recent_orders")
        connection.execute(bad.values(counts=text))
    with pins.refused(SettingsError):
        memory.windows(0, "recent_orders")
    assert [one.pattern for one in memory.windows(0, "other")] == ["other"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "{}",
        '{"key": 7, "pattern": "recent_orders", "at": 1, "writer": "w", "revision": "r"}',
        '{"key": {"kind": "value"}, "pattern": "recent_orders", "at": "now", "writer": "w", "revision": "r"}',
        '{"key": {"kind": "value"}, "pattern": "recent_orders", "at": 1, "writer": "w", "revision": "r", '
        '"attributes": ["a"], "row": ["1", "2"]}',
    ],
)
def test_a_sample_that_cannot_be_read_is_named(memory: SqlEvidence, text: str) -> None:
    with memory.database.begin() as connection:
        connection.execute(update(schema.sample).values(content=text))
    with pins.refused(SettingsError):
        memory.samples()
    assert memory.samples("other") == []
