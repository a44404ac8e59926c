"""Which writers are alive, and what follows: half-dead fast runs are fenced, tombstones outlive late writers."""

from __future__ import annotations

import pytest

from migrator.journal import writers as journal_writers
from migrator.journal.database import TEST_CLOCK
from migrator.journal.writers import SqlWriters
from migrator.runtime.errors import StoppedError
from migrator.stages.live.writers import Purge, WriterLease, fence_off
from tests import pins
from tests.faults.schedule import Faults
from tests.races.harness import Race
from tests.support_fence import no_fence

# What is raced for here is in the journal and in the table; the source only has to be there.
pytestmark = pytest.mark.engines("postgresql", "mariadb")

ANN = "INSERT INTO users (id, name, email) VALUES (1, 'Ann', 'ann@x')"
LATER_S = 3600.0


def purge(race: Race, later_s: float = LATER_S) -> int:
    """Tombstones that a purge takes away which comes so much later."""
    lifetimes = race.heartbeats.lifetimes
    stage = Purge(race.beside.store, race.heartbeats.writers, race.target.design, lifetimes, no_fence)
    now_s = SqlWriters(race.shop.journal.database, race.table_id).now_s()
    return sum(stage.run((page.items for page in race.target.store.scan(0, 1)), now_s + later_s))


# ── the fence ──


def test_fenced_fast_worker_stops_before_its_next_request(race: Race) -> None:
    race.sql(ANN)
    faults = Faults()
    with race.through(faults) as (faulty, _):
        writer_lease = faulty.heartbeats.enter("fast")

        def meanwhile() -> None:
            assert [writer.fenced for writer in race.heartbeats.writers.fence()] == [True]
            writer_lease.beat()

        with pins.refused(StoppedError):
            faulty.copy("user", fast=True, after_read=meanwhile, check=writer_lease.check)
    assert faults.counts["requests BatchWriteItem"] == 0
    race.comes_to_rest()


def test_fast_worker_without_the_journal_stops_before_the_relay(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    race.sql(ANN)
    lifetimes, now = race.heartbeats.lifetimes, [0.0]
    monkeypatch.setattr(journal_writers, "seconds", lambda connection: now[0])
    writer_lease = WriterLease(
        race.heartbeats.writers,
        race.heartbeats.revisions,
        race.heartbeats.writers.enter("fast"),
        lifetimes,
        lambda: now[0],
        now[0],
    )

    def wait(_: float) -> None:
        now[0] += 1
        # As long as the relay waits the worker may send; when it goes on, the worker has been silent for too long.
        if now[0] < lifetimes.silent_s:
            writer_lease.check()

    fence_off(race.heartbeats.writers, lifetimes, wait)
    assert now[0] == lifetimes.gone_s > lifetimes.silent_s
    with pins.refused(StoppedError):
        race.copy("user", fast=True, check=writer_lease.check)
    race.comes_to_rest()


# ── tombstones ──


def test_purge_leaves_tombstones_that_a_slow_writer_may_need(race: Race) -> None:
    race.sql(ANN)
    race.fill()
    slow = race.heartbeats.enter("conditional")

    def meanwhile() -> None:
        race.sql("DELETE FROM users WHERE id = 1")
        race.work()
        assert purge(race) == 0

    race.copy("user", after_read=meanwhile)
    assert race.live() == {}
    race.heartbeats.leave(slow, clean=True)
    assert purge(race) == 2
    assert race.stored() == []
    race.comes_to_rest()


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_clock_skew_makes_no_tombstone_older_than_a_slow_writer(
    race: Race, monkeypatch: pytest.MonkeyPatch, skew_s: float
) -> None:
    """The journal's machine is an hour ahead of the relay's, or behind it."""
    monkeypatch.setenv(TEST_CLOCK, str(skew_s))
    race.sql(ANN)
    race.fill()
    slow = race.heartbeats.enter("conditional")

    def meanwhile() -> None:
        race.sql("DELETE FROM users WHERE id = 1")
        relay = race.heartbeats.enter("relay")
        race.work()
        race.heartbeats.leave(relay, clean=True)
        assert (purge(race, 0), purge(race)) == (0, 0)

    race.copy("user", after_read=meanwhile)
    assert race.live() == {}
    race.heartbeats.leave(slow, clean=True)
    assert purge(race, 0) == 0
    assert purge(race, race.heartbeats.lifetimes.ripe_s + 2) == 2


def test_continuing_relay_keeps_no_tombstones_from_older_work(
    race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = race.heartbeats.enter("relay")
    race.sql(ANN)
    race.work()
    race.sql("DELETE FROM users WHERE id = 1")
    race.work()
    assert purge(race) == 0
    monkeypatch.setenv(TEST_CLOCK, "2")
    relay.beat(begins=True)
    assert purge(race) == 2


def test_a_young_tombstone_stays_though_no_writer_is_alive(race: Race) -> None:
    race.sql(ANN)
    race.work()
    race.sql("DELETE FROM users WHERE id = 1")
    race.work()
    assert (purge(race, 0), purge(race, race.heartbeats.lifetimes.ripe_s + 2)) == (0, 2)
