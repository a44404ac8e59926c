"""Which services run: the fake one, and journals of every kind."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import update

from migrator.journal import schema
from migrator.journal.runs import SqlJournal
from migrator.journal.writers import FORGOTTEN_S, SqlInstances, SqlWriters
from migrator.mapping.model.instances import Instance, Instances
from migrator.runtime.values import replace
from tests.contract.silence import LONG_S, silence
from tests.fakes.journal import FakeInstances

SHOP = Instance("shop", "web-1", 4711, "1.4.2", "0.1.0", "dual_write", "outbox", "abc", "installation")


@pytest.fixture
def make(journal_or_fake: SqlJournal | None) -> Callable[[str], Instances]:
    """A function from a job's name to the instances of its services."""
    made: dict[str, Instances] = {}
    if journal_or_fake is None:
        return lambda job: made.setdefault(job, FakeInstances(time.time))
    database = journal_or_fake.database
    return lambda job: SqlInstances(database, job)


@pytest.fixture
def instances(make: Callable[[str], Instances]) -> Instances:
    return make("shop")


def test_instance_is_known_from_enter_to_leave_with_its_fields(instances: Instances) -> None:
    before = time.time()
    one = instances.enter(SHOP)
    time.sleep(0.02)  # the journal's clock counts milliseconds, and the list goes by it
    two = instances.enter(replace(SHOP, role="read", mode="", pid=2**31, service="Läden ’n’ mehr"))
    assert replace(one, id="", since=0.0, alive_at=0.0) == SHOP
    assert one.id != two.id
    assert one.since == one.alive_at
    # The clock of a server on this machine is this machine's.
    assert abs(one.since - before) < 30
    registry = instances.registry(60)
    assert abs(registry.now_s - before) < 30
    assert registry.living == [one, two] == instances.known()
    instances.leave(one)
    instances.leave(one)
    assert instances.known() == [two]


def test_jobs_have_instances_of_their_own(make: Callable[[str], Instances]) -> None:
    make("shop").enter(SHOP)
    assert make("other").known() == []
    assert make("other").forget_silent(0) == 0
    assert len(make("shop").known()) == 1


def test_a_beat_renews_and_brings_back_a_forgotten_instance(instances: Instances) -> None:
    one = instances.enter(SHOP)
    time.sleep(0.02)
    again = instances.beat(one)
    assert again.alive_at > one.alive_at
    assert replace(again, alive_at=one.alive_at) == one
    assert instances.forget_silent(-60) == 1
    assert instances.known() == []
    back = instances.beat(again)
    assert instances.known() == [back]
    assert (back.id, back.since) == (one.id, one.since)


def test_a_heartbeat_carries_the_current_roles(instances: Instances) -> None:
    one = instances.enter(replace(SHOP, sees="a kernel", born="4711"))
    now = instances.beat(replace(one, role="dual_write,read", mode="strict", installation="new"))
    assert instances.known() == [now]
    assert (now.role, now.mode, now.installation, now.sees, now.born) == (
        "dual_write,read",
        "strict",
        "new",
        "a kernel",
        "4711",
    )


def test_silent_instance_is_known_until_forgotten_and_not_living(instances: Instances) -> None:
    silent, loud = instances.enter(SHOP), instances.enter(SHOP)
    silence(instances, silent)
    loud = instances.beat(loud)
    assert instances.registry(LONG_S / 2).living == [loud]
    assert {one.id for one in instances.known()} == {silent.id, loud.id}
    assert instances.forget_silent(LONG_S * 2) == 0
    assert instances.forget_silent(LONG_S / 2) == 1
    assert instances.known() == [loud]


def test_long_dead_writer_is_forgotten_when_the_next_one_enters(journal: SqlJournal) -> None:
    writers, others = SqlWriters(journal.database, "table"), SqlWriters(journal.database, "other table")
    dead, of_another = writers.enter("relay"), others.enter("relay")
    lately = writers.enter("relay")
    old = update(schema.writer).where(schema.writer.c.id.in_([dead.id, of_another.id]))
    with journal.database.begin() as connection:
        connection.execute(old.values(alive_at=dead.alive_at - FORGOTTEN_S - 60))
    new = writers.enter("relay")
    always_s = 10 * FORGOTTEN_S
    assert {one.id for one in writers.living(always_s)} == {lately.id, new.id}
    assert [one.id for one in others.living(always_s)] == [of_another.id]
    assert writers.beat(dead).fenced
