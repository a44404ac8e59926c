"""Checkpoints of a stream's shards, on each kind of journal and on the fake of them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, update

from migrator.journal.database import Database
from migrator.journal.reverse import READERS, STREAMS, SqlStreamJournal
from migrator.journal.runs import SqlJournal
from migrator.journal.schema import stream_shard
from migrator.mapping.model.live import Checkpoint, Shard, StreamJournal
from migrator.runtime.values import replace
from tests.fakes.stream_journal import FakeStreamJournal

ARN, OTHER = "arn:aws:dynamodb:eu:1:table/Shop/stream/1", "arn:aws:dynamodb:eu:1:table/Shop/stream/2"
TREE = [Shard("a"), Shard("b", "a"), Shard("c", "a"), Shard("d", "gone")]


@pytest.fixture
def checkpoints(journal_or_fake: SqlJournal | None) -> StreamJournal:
    if journal_or_fake is None:
        return FakeStreamJournal(time.time)
    return SqlStreamJournal(journal_or_fake.database, "shop", "Shop")


def let_leases_lapse(checkpoints: StreamJournal, owner: str) -> None:
    before = time.time() - 5
    if isinstance(checkpoints, FakeStreamJournal):
        checkpoints.alive_until[owner] = before
        checkpoints.shards = {
            name: replace(shard, leased_until=before if shard.owner == owner else shard.leased_until)
            for name, shard in checkpoints.shards.items()
        }
        return
    assert isinstance(checkpoints, SqlStreamJournal)
    with checkpoints.database.begin() as connection:
        reader = READERS.all(connection, "shop")[owner]
        READERS.put(connection, "shop", replace(reader, alive_at=before - reader.lease_s), owner)
        connection.execute(
            update(stream_shard).where(stream_shard.c.owner == owner).values(leased_until=before)
        )


def let_pass(checkpoints: StreamJournal, seconds: float) -> None:
    """All that the journal knows was so long ago."""
    if isinstance(checkpoints, FakeStreamJournal):
        checkpoints.listed_at -= seconds
        checkpoints.shards = {
            name: replace(shard, passed_at=shard.passed_at - seconds)
            for name, shard in checkpoints.shards.items()
        }
        return
    assert isinstance(checkpoints, SqlStreamJournal)
    with checkpoints.database.begin() as connection:
        stream = STREAMS.get(connection, "shop", "Shop")
        assert stream is not None
        STREAMS.put(connection, "shop", replace(stream, listed_at=stream.listed_at - seconds), "Shop")
        connection.execute(update(stream_shard).values(passed_at=stream_shard.c.passed_at - seconds))


def names(checkpoints: StreamJournal, owner: str) -> list[str]:
    return [shard.shard for shard in checkpoints.claim(ARN, owner, 60).shards]


def finish(checkpoints: StreamJournal, owner: str, shard: str) -> bool:
    return checkpoints.save(ARN, owner, Checkpoint(shard, "", "7", time.time(), is_finished=True))


def test_a_stream_begins_once_and_can_restart(checkpoints: StreamJournal) -> None:
    assert checkpoints.stream() == ""
    assert checkpoints.claim(ARN, "one", 60).shards == ()
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, TREE, 0)
    assert checkpoints.stream() == ARN
    assert len(checkpoints.read(ARN).shards) == 4
    checkpoints.begin(OTHER)
    assert checkpoints.stream() == OTHER
    assert checkpoints.read(ARN).shards == () == checkpoints.read(OTHER).shards
    checkpoints.list_shards(ARN, TREE, 0)
    assert checkpoints.read(ARN).shards == (), "a process that has not seen it changes nothing"
    assert checkpoints.claim(ARN, "one", 60).shards == ()


def test_a_shard_is_claimed_when_its_parent_is_finished_or_gone(checkpoints: StreamJournal) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, TREE, 0)
    assert names(checkpoints, "one") == ["a", "d"]
    assert finish(checkpoints, "one", "a")
    assert names(checkpoints, "one") == ["b", "c", "d"]
    finished = checkpoints.read(ARN).shards[0]
    assert (finished.shard, finished.sequence, finished.is_finished, finished.owner) == ("a", "7", True, "")


def test_readers_have_equal_parts_and_no_shard_twice(checkpoints: StreamJournal) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, [Shard(f"s{number}") for number in range(5)], 0)
    assert len(names(checkpoints, "one")) == 5
    assert names(checkpoints, "two") == [], "the other one gives nothing up before it asks again"
    assert len(names(checkpoints, "one")) == 3
    assert len(names(checkpoints, "two")) == 2
    held = {shard.shard: shard.owner for shard in checkpoints.read(ARN).shards}
    assert sorted(held.values()) == ["one"] * 3 + ["two"] * 2
    checkpoints.leave(ARN, "one")
    assert len(names(checkpoints, "two")) == 5


def test_expired_lease_passes_on_and_its_holder_saves_nothing(
    checkpoints: StreamJournal,
) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, [Shard("a")], 0)
    assert names(checkpoints, "one") == ["a"]
    assert names(checkpoints, "two") == []
    let_leases_lapse(checkpoints, "one")
    assert names(checkpoints, "two") == ["a"]
    assert not checkpoints.save(ARN, "one", Checkpoint("a", "", "9", time.time()))
    assert checkpoints.renew(ARN, "one", 60, {}) == set()
    assert checkpoints.save(ARN, "two", Checkpoint("a", "", "5", time.time()))
    (shard,) = checkpoints.claim(ARN, "two", 60).shards
    assert (shard.sequence, shard.owner) == ("5", "two")


def test_a_reader_that_is_gone_has_no_part(checkpoints: StreamJournal) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, [Shard(f"s{number}") for number in range(4)], 0)
    names(checkpoints, "one")
    let_leases_lapse(checkpoints, "one")
    assert len(names(checkpoints, "two")) == 4


def test_renewed_lease_stays_and_records_the_shards_progress(checkpoints: StreamJournal) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, [Shard("a"), Shard("b")], 0)
    names(checkpoints, "one")
    let_leases_lapse(checkpoints, "one")
    ahead = time.time() + 3600
    assert checkpoints.renew(ARN, "one", 60, {"a": ahead, "b": 5.0}) == {"a", "b"}
    assert names(checkpoints, "two") == []
    read = checkpoints.read(ARN)
    assert read.shards[0].passed_at == pytest.approx(ahead)
    assert read.shards[1].passed_at > 5.0, "it never goes back"
    assert read.lags_s()["a"] == 0.0
    assert read.lags_s()["b"] < 60


def test_a_new_shard_is_as_old_as_the_last_list_without_it(checkpoints: StreamJournal) -> None:
    checkpoints.begin(ARN)
    let_pass(checkpoints, 500)
    checkpoints.list_shards(ARN, [Shard("a")], 100)
    checkpoints.list_shards(ARN, [Shard("a"), Shard("b", "a")], 0)
    lags = checkpoints.read(ARN).lags_s()
    assert lags["a"] == pytest.approx(500, abs=60)
    assert lags["b"] == pytest.approx(100, abs=60)
    checkpoints.list_shards(ARN, [Shard("a"), Shard("b", "a")], 0)
    assert checkpoints.read(ARN).lags_s()["b"] == pytest.approx(100, abs=60), "what is known stays"


def test_finished_shard_is_forgotten_after_days_off_the_stream(
    checkpoints: StreamJournal,
) -> None:
    checkpoints.begin(ARN)
    checkpoints.list_shards(ARN, TREE, 0)
    names(checkpoints, "one")
    finish(checkpoints, "one", "a")
    checkpoints.list_shards(ARN, TREE[1:], 0)
    assert len(checkpoints.read(ARN).shards) == 4
    let_pass(checkpoints, 49 * 3600)
    checkpoints.list_shards(ARN, TREE, 0)
    assert len(checkpoints.read(ARN).shards) == 4
    checkpoints.list_shards(ARN, TREE[1:], 0)
    assert [shard.shard for shard in checkpoints.read(ARN).shards] == ["b", "c", "d"]
    assert names(checkpoints, "one") == ["b", "c", "d"], "its children are free as before"


def test_jobs_and_tables_are_apart(journal: SqlJournal) -> None:
    places = (("shop", "Shop", ARN), ("other", "Shop", ARN), ("shop", "Else", OTHER))
    own, *others = [SqlStreamJournal(journal.database, job, table) for job, table, _ in places]
    for number, (one, place) in enumerate(zip((own, *others), places, strict=True)):
        one.begin(place[2])
        one.list_shards(place[2], [Shard("s"), Shard(f"s{number}")], 0)
    own.begin(ARN.replace("Shop", "New"))
    assert own.read(ARN).shards == ()
    assert [shard.shard for shard in others[0].read(ARN).shards] == ["s", "s1"]
    assert [shard.shard for shard in others[1].read(OTHER).shards] == ["s", "s2"]


def test_readers_claiming_at_the_same_moment_share_no_shard(journal: SqlJournal) -> None:
    own = SqlStreamJournal(journal.database, "shop", "Shop")
    readers = [f"reader {number}" for number in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(8):
            own.begin(ARN)
            own.list_shards(ARN, [Shard(f"s{number}") for number in range(9)], 0)
            claims = list(pool.map(lambda owner: names(own, owner), readers))
            assert len(set().union(*claims)) == sum(map(len, claims)) == 9


class _Overtaken(SqlStreamJournal):
    """A journal in whose claim another reader's lease is renewed, between what the claim reads and what it writes."""

    def __init__(self, database: Database, job: str, table: str) -> None:
        super().__init__(database, job, table)
        self.kept: set[str] | None = None
        self.renewed = threading.Event()

    def _shards(self, connection: Connection, stream: str) -> list[Checkpoint]:
        read = super()._shards(connection, stream)
        if self.kept is None:
            self.kept = set()
            threading.Thread(target=self._renew).start()
            # Where it has to wait for the end of the claim, this is waited for in vain.
            self.renewed.wait(1)
        return read

    def _renew(self) -> None:
        other = SqlStreamJournal(self.database, self.job, self.table)
        self.kept = other.renew(ARN, "late", 60, {})
        self.renewed.set()


def test_expired_lease_renewed_during_a_claim_has_one_owner(
    journal: SqlJournal,
) -> None:
    own = SqlStreamJournal(journal.database, "shop", "Shop")
    own.begin(ARN)
    own.list_shards(ARN, [Shard("s")], 0)
    names(own, "late")
    let_leases_lapse(own, "late")
    claiming = _Overtaken(journal.database, "shop", "Shop")
    claimed = names(claiming, "another")
    assert claiming.renewed.wait(60)
    assert (claimed, claiming.kept) in ((["s"], set()), ([], {"s"}))
