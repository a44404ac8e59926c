"""The contract of the registered writers of a table: the fake one, and journals of every kind."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from migrator.journal.runs import SqlJournal
from migrator.journal.writers import SqlWriters
from migrator.mapping.model.live import Writer, WriterKind, Writers
from migrator.runtime.values import replace
from tests.contract.silence import LONG_S, silence
from tests.fakes.journal import FakeWriters

MakeWriters = Callable[[str], Writers]


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> MakeWriters:
    """A function from a table's id to its writers."""
    made: dict[str, Writers] = {}
    if journal_or_fake is None:
        return lambda table_id: made.setdefault(table_id, FakeWriters(time.time))
    database = journal_or_fake.database
    return lambda table_id: SqlWriters(database, table_id)


@pytest.fixture
def writers(make: MakeWriters) -> Writers:
    return make("table-1")


def test_a_writer_is_there_from_enter_to_leave(writers: Writers) -> None:
    before = time.time()
    one, two = writers.enter("fast"), writers.enter("fast")
    assert (one.kind, one.fenced, one.since == one.alive_at, one.id != two.id) == ("fast", False, True, True)
    # The clock of a server on this machine is this machine's.
    assert abs(one.since - before) < 30
    assert writers.living(60) == [one, two]
    writers.leave(one)
    writers.leave(one)
    assert writers.living(60) == [two]


@pytest.mark.parametrize("kind", ["conditional", "relay", "strict"])
def test_conditional_writer_closes_the_fast_path_for_good(writers: Writers, kind: WriterKind) -> None:
    other = writers.enter(kind)
    assert other.kind == kind
    assert writers.enter("fast").kind == "conditional"
    writers.leave(other)
    assert writers.enter("fast").kind == "conditional"


def test_tables_have_writers_of_their_own(make: MakeWriters) -> None:
    make("table-1").enter("relay")
    assert make("table-2").enter("fast").kind == "fast"
    assert make("table-1").fence() == []
    assert [one.kind for one in make("table-2").living(60)] == ["fast"]


def test_a_fence_stops_every_fast_writer(writers: Writers) -> None:
    one, gone, two = (writers.enter("fast") for _ in range(3))
    writers.leave(gone)
    assert not writers.beat(one).fenced
    told = writers.fence()
    assert {writer.id for writer in told} == {one.id, two.id}
    assert all(writer.fenced for writer in told)
    assert writers.beat(one).fenced
    assert writers.beat(two, begins=True).fenced
    late = writers.enter("fast")
    assert (late.kind, writers.beat(late).fenced) == ("conditional", False)
    assert {writer.id for writer in writers.fence()} == {one.id, two.id}


def test_beat_renews_the_place_and_returns_its_start(writers: Writers) -> None:
    one = writers.enter("relay")
    time.sleep(0.02)
    again = writers.beat(one)
    assert again.alive_at > one.alive_at
    assert again.since == one.since
    later = writers.beat(again, begins=True)
    assert later.since == later.alive_at >= again.alive_at
    assert writers.living(60) == [later]


def test_a_silent_writer_is_not_living(writers: Writers) -> None:
    silent, loud = writers.enter("relay"), writers.enter("strict")
    silence(writers, silent)
    loud = writers.beat(loud)
    assert writers.living(LONG_S / 2) == [loud]
    assert {one.id for one in writers.living(LONG_S * 2)} == {silent.id, loud.id}


def test_a_writer_taken_for_dead_counts_as_fenced(writers: Writers) -> None:
    one = writers.enter("conditional")
    writers.leave(one)
    assert writers.beat(one) == replace(one, fenced=True)
    assert writers.living(60) == []


@pytest.mark.parametrize("seed", range(3))
def test_no_fast_writer_slips_past_a_fence(make: MakeWriters, seed: int) -> None:
    """Whatever the order, a fast writer entered before the fence and is told to stop, or it is none."""
    writers, random = make(f"table of {seed}"), Random(seed)

    def fence() -> list[Writer]:
        time.sleep(random.random() / 50)
        return writers.fence()

    def enter(_: int) -> Writer:
        time.sleep(random.random() / 50)
        return writers.enter("fast")

    with ThreadPoolExecutor(9) as executor:
        fenced = executor.submit(fence)
        entered = list(executor.map(enter, range(24)))
    fast = {one.id for one in entered if one.kind == "fast"}
    assert {one.id for one in fenced.result()} == fast
    assert all(writers.beat(one).fenced == (one.id in fast) for one in entered)
