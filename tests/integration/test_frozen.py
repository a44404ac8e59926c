"""A process that is frozen between its last check and the sending of its request, and thaws when the tombstone is gone."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest

from migrator.dynamodb.exchange import BOTOCORE
from migrator.journal.writers import SqlWriters
from migrator.runtime.errors import StoppedError
from migrator.stages.live.writers import Purge, WriterLease
from tests import pins
from tests.faults.schedule import Faults
from tests.races.conftest import race, shops  # noqa: F401
from tests.races.harness import Race
from tests.support_fence import no_fence

FROZEN_S = 700.0


@pytest.fixture
def engine() -> str:
    return "sqlite"


def purge(race: Race, later_s: float) -> int:  # noqa: F811
    stage = Purge(
        race.beside.store, race.heartbeats.writers, race.target.design, race.heartbeats.lifetimes, no_fence
    )
    now_s = SqlWriters(race.shop.journal.database, race.table_id).now_s()
    return sum(stage.run((page.items for page in race.target.store.scan(0, 1)), now_s + later_s))


@pytest.mark.parametrize(
    ("lane", "moment"),
    [
        (BOTOCORE, "before-sign"),
        (BOTOCORE, "before-send"),
        ("exchange", "before-send"),
    ],
)
def test_a_put_of_one_that_thaws_brings_no_row_back(
    race: Race,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    lane: str,
    moment: str,
) -> None:
    monkeypatch.setenv("MIGRATOR_LANE", lane)
    race.sql("INSERT INTO users (id, name) VALUES (1, 'Ann')")
    now = [0.0]
    with race.through(Faults()) as (frozen, proxy):
        writer = frozen.heartbeats.writers.enter("relay")
        writer_lease = WriterLease(
            frozen.heartbeats.writers,
            frozen.heartbeats.revisions,
            writer,
            frozen.heartbeats.lifetimes,
            lambda: now[0],
            now[0],
        )
        frozen.target = frozen.target.fenced(writer_lease.check)

        def freeze(**_: Any) -> None:
            if not now[0]:
                now[0] = FROZEN_S
                # Others do it: nothing of what stands around this request is around theirs.
                Context().run(meanwhile)

        def meanwhile() -> None:
            race.sql("DELETE FROM users WHERE id = 1")
            race.shop.live.marks.release(race.mark_ids())
            race.work()
            assert set(race.tombstones()) == {("USER#1", "META")}
            race.pass_time(FROZEN_S)
            assert purge(race, FROZEN_S) == 1

        frozen.target.store.client.meta.events.register_first(f"{moment}.dynamodb.PutItem", freeze)
        with pins.refused(StoppedError):
            frozen.relay().once()
        assert (now, proxy.faults.counts["requests PutItem"]) == ([FROZEN_S], 0)
    assert race.stored() == []


def test_tombstone_stays_while_a_frozen_signature_is_valid(race: Race) -> None:  # noqa: F811
    """AWS takes a signature for five minutes: a writer silent since a moment ago may have one on its way, however old the tombstone."""
    race.sql("INSERT INTO users (id, name) VALUES (1, 'Ann')")
    race.work()
    writer = race.heartbeats.writers.enter("relay")
    race.sql("DELETE FROM users WHERE id = 1")
    race.work()
    race.pass_time(400)
    assert purge(race, 3600) == 0
    race.pass_time(201)
    assert purge(race, 3600) == 1
    race.heartbeats.writers.leave(writer)
