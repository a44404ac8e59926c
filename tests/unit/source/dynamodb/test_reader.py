"""The reader of a stream: order over splits, leases, expired places, lost records, lags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.mapping.model.live import StreamRecord
from migrator.runtime.errors import LostRecordsError, SettingsError, SourceError, StoppedError
from migrator.source.dynamodb.reader import LEASE_S, LIST_S, Check, StreamReader, begin
from tests import pins
from tests.unit.stages.core.stream_world import Killed, Steps, World

HOUR_S = 3600.0
KEYS = ("ant", "bee", "cat", "dog", "eel", "fox")


def split_often(world: World) -> None:
    for number in range(5):
        world.write(*KEYS, *KEYS)
        (world.fake.split if number % 2 else world.fake.roll)(number)
    world.write(*KEYS)


def hours_pass(world: World, hours: int) -> None:
    """A shard is closed after four hours, and its child takes its keys."""
    for hour in range(hours):
        world.fake.advance(HOUR_S)
        if hour % 4 == 3:
            for _ in world.fake.open_shards:
                world.fake.roll()


# ── order ──


def test_changes_of_an_item_are_processed_in_order_over_splits() -> None:
    world = World()
    split_often(world)
    world.drain()
    world.require_all_in_order()
    assert len(world.worked) == sum(world.written.values()), "and none twice"
    assert len({shard for shard, _, _ in world.worked}) > 4


# ── crashes ──


def test_reader_killed_at_any_step_loses_nothing_and_keeps_order() -> None:
    kill_at, killed = 1, True
    while killed:
        world = World(page_records=5)
        world.write(*KEYS, *KEYS)
        world.fake.split()
        world.write(*KEYS)
        killed = _ends_early(world, kill_at)
        world.drain()
        world.require_all_in_order()
        kill_at += 1
    assert kill_at > 40, "each call of the reader is two steps"


def _ends_early(world: World, kill_at: int) -> bool:
    try:
        reader = world.reader("first", Steps(left=kill_at))
        reader.__enter__()
        for _ in range(8):
            reader.turn()
    except Killed:
        return True
    return False


def test_page_with_failed_work_is_processed_again() -> None:
    world = World()
    world.write(*KEYS)
    failures = [SourceError("away")]

    def work(records: Sequence[StreamRecord], check: Check) -> None:
        world.work(records, check)
        if failures:
            raise failures.pop()

    with world.reader(work=work) as reader:
        with pytest.raises(SourceError):
            reader.turn()
        assert reader.turn() == 2
    assert [key for _, key, _ in world.worked] == ["ant", "bee", "ant", "bee"]


# ── leases ──


def test_two_readers_share_the_shards_and_never_have_one_at_once() -> None:
    world = World()
    split_often(world)
    owners: dict[str, str] = {}

    def work_as(owner: str) -> object:
        def work(records: Sequence[StreamRecord], check: Check) -> None:
            shard = world.shard_of(records[0])
            assert shard not in owners, "another reader is at work on it"
            owners[shard] = owner
            # In the middle of its page the other one has its turn.
            if len(owners) == 1:
                others[owner].turn()
            world.work(records, check)
            del owners[shard]

        return work

    first, second = (world.reader(name, work=work_as(name)) for name in ("one", "two"))
    others = {"one": second, "two": first}
    with first, second:
        while world.is_behind():
            world.fake.advance(LIST_S)
            for reader in (first, second):
                reader.turn()
        held = {shard.owner for shard in world.journal.read(world.fake.arn).shards if not shard.is_finished}
        assert held == {"one", "two"}
    world.require_all_in_order()


def test_reader_with_expired_lease_stops_before_it_writes() -> None:
    world = World()
    world.write("ant", "ant")

    def slow(records: Sequence[StreamRecord], check: Check) -> None:
        check()
        world.worked.append(("", "ant", 1))
        world.fake.advance(LEASE_S + 1)
        with world.reader("two") as other:
            other.turn()
        check()
        raise AssertionError("it went on without a lease")

    with world.reader("one", work=slow) as reader:
        with pins.refused(StoppedError):
            reader.turn()
        reader.work = world.work
        assert reader.turn() == 0, "the other one has worked the page"
    world.require_all_in_order()


def test_a_long_page_keeps_its_lease_by_asking_the_check() -> None:
    world = World()
    world.write(*KEYS)

    def slow(records: Sequence[StreamRecord], check: Check) -> None:
        for record in records:
            world.fake.advance(LEASE_S / 2)
            check()
            world.work([record], check)
        with world.reader("two") as other:
            assert (other.turn(), len(other._held)) == (0, 0)

    with world.reader("one", work=slow) as reader:
        while reader.turn():
            pass
    world.require_all_in_order()


def test_work_of_an_expired_reader_is_no_longer_a_checkpoint() -> None:
    world = World()
    world.write("ant", "ant", "ant", "ant")

    def slow(records: Sequence[StreamRecord], check: Check) -> None:
        world.work(records, check)
        world.fake.advance(LEASE_S + 1)
        with world.reader("two") as other:
            while other.turn():
                pass
            before = world.journal.read(world.fake.arn).shards
            assert before[0].owner == "two"
            world.saved = before[0].sequence  # type: ignore[attr-defined]

    with world.reader("one", work=slow) as reader:
        reader.turn()
    assert world.journal.read(world.fake.arn).shards[0].sequence == world.saved  # type: ignore[attr-defined]
    world.require_all_in_order()


def test_returning_reader_begins_where_its_successor_left_off() -> None:
    world = World()
    world.write(*KEYS)
    with world.reader("one") as reader:
        reader.turn()
        world.fake.advance(LEASE_S + 1)
        with world.reader("two") as other:
            while other.turn():
                pass
        world.write("ant")
        assert reader.turn() == 1
    world.require_all_in_order()
    assert len(world.worked) == 1 + len(KEYS), "none twice"


def test_shards_of_a_reader_are_free_as_soon_as_it_ends() -> None:
    world = World()
    world.write(*KEYS)
    with world.reader("one") as reader:
        reader.turn()
    with world.reader("two") as reader:
        assert (reader.turn(), len(reader._held)) == (2, 1)


def test_stream_begun_again_under_a_reader_ends_its_page() -> None:
    world = World()
    world.write(*KEYS)

    def work(records: Sequence[StreamRecord], check: Check) -> None:
        begin(world.source, world.journal)
        world.fake.advance(LEASE_S / 2)
        check()
        raise AssertionError("it went on with a shard that is not its own any more")

    def begin_anew(records: Sequence[StreamRecord], check: Check) -> None:
        begin(world.source, world.journal)

    with world.reader("one", work=work) as reader:
        with pins.refused(StoppedError):
            reader.turn()
        reader.work = begin_anew
        assert (reader.turn(), len(reader._held)) == (2, 0), (
            "what it did is no checkpoint, and the shard is not its own"
        )
        assert world.journal.read(world.fake.arn).shards == ()


# ── time ──


def test_expired_position_is_renewed_from_the_checkpoint() -> None:
    world = World()
    world.write(*KEYS)
    with world.reader() as reader:
        while reader.turn() or world.is_behind():
            world.fake.advance(16 * 60)
    world.require_all_in_order()
    assert len(world.worked) == len(KEYS), "none twice"


@pytest.mark.parametrize("begun", [True, False], ids=["worked in part", "named only"])
def test_pause_of_25_hours_stops_the_reader_with_the_fix(begun: bool) -> None:
    world = World()
    world.write(*KEYS)
    with world.reader() as reader:
        reader._list_shards()
        if begun:
            reader.turn()
    world.write(*KEYS)
    hours_pass(world, 25)
    world.write(*KEYS)
    with world.reader("later") as reader:
        for _ in range(2):
            with pins.refused(LostRecordsError):
                reader.turn()
        assert len(world.worked) == 2 * begun, "it works nothing before that"


def test_after_25_hours_shards_of_unknown_parents_are_lost() -> None:
    world = World()
    with world.reader() as reader:
        world.write(*KEYS)
        world.fake.roll()
        while reader.turn() or len(world.worked) < len(KEYS):
            pass
    hours_pass(world, 60)
    world.write(*KEYS)
    assert len({shard.id for shard in world.fake.shards} & set(world.journal.shards)) == 0
    with world.reader("later") as reader, pytest.raises(LostRecordsError):
        reader.turn()
    assert len(world.worked) == len(KEYS)


def test_a_pause_of_22_hours_loses_nothing() -> None:
    world = World()
    world.write(*KEYS)
    with world.reader() as reader:
        reader.turn()
    world.write(*KEYS)
    hours_pass(world, 22)
    world.write(*KEYS)
    world.drain()
    world.require_all_in_order()


def test_idle_table_is_read_on_without_its_checkpoint_record() -> None:
    world = World()
    world.write("ant")
    with world.reader() as reader:
        for _ in range(30):
            reader.turn()
            world.fake.advance(HOUR_S)
    assert not world.fake.shards[0].records
    world.write("ant")
    world.drain()
    world.require_all_in_order()


def test_restarted_it_works_on_what_is_left() -> None:
    world = World()
    world.write(*KEYS)
    hours_pass(world, 25)
    with world.reader() as reader, pytest.raises(LostRecordsError):
        reader.turn()
    begin(world.source, world.journal)
    world.write("ant")
    world.written["ant"], world.worked = 2, [("", key, 1) for key in KEYS]  # what verify mends
    world.drain()
    world.require_all_in_order()


# ── lags ──


def test_lag_is_the_age_of_unprocessed_records_by_shard() -> None:
    world = World(page_records=1)
    world.fake.advance(100)
    world.write("ant")
    world.fake.advance(50)
    world.write("ant")
    world.fake.roll()
    parent, child = (shard.id for shard in world.fake.shards)

    def lags() -> Mapping[str, float]:
        return world.journal.read(world.fake.arn).lags_s()

    with world.reader() as reader:
        reader.turn()
        assert lags()[parent] == pytest.approx(50, abs=1)
        world.fake.advance(30)
        assert lags()[parent] == pytest.approx(80, abs=1)
        assert lags()[child] == pytest.approx(180, abs=1), "it waits for its parent"
        reader.turn()
        assert parent not in lags()
        world.fake.advance(LEASE_S)
        reader.turn()
        world.fake.advance(LEASE_S / 2)
        reader.turn()
        assert lags()[child] == pytest.approx(LEASE_S / 2, abs=1), "told with the lease"


# ── which stream ──


def test_a_stream_that_is_off_or_of_another_view_is_refused() -> None:
    world = World()
    world.fake.view = "KEYS_ONLY"
    with pins.refused(SettingsError, "switch"):
        begin(world.source, world.journal)
    world.fake.switch_off()
    with pins.refused(SettingsError, "switched"):
        begin(world.source, world.journal)
    world.fake.arn = ""
    with pins.refused(SettingsError, "shop"):
        begin(world.source, world.journal)


@pytest.mark.parametrize("happens", ["switch_off", "create_anew"])
def test_a_stream_that_ends_under_a_reader_stops_it(happens: str) -> None:
    world = World()
    world.write("ant")
    with world.reader() as reader:
        reader.turn()
        getattr(world.fake, happens)()
        world.fake.advance(LIST_S)
        with pins.refused(SettingsError):
            reader.turn()


def test_a_reader_needs_a_stream_that_was_begun_with() -> None:
    world = World()
    world.journal.begin("")
    with pins.refused(SettingsError), world.reader():
        pass


NUMBER = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=6)),
        st.tuples(st.just("split"), NUMBER),
        st.tuples(st.just("roll"), NUMBER),
        st.tuples(st.just("turn"), NUMBER),
        # A heartbeat, a lease, an iterator's life.
        st.tuples(st.just("wait"), st.sampled_from([1, 11, 25, 61, 901])),
        st.tuples(st.just("kill"), st.integers(1, 25)),
    ),
    max_size=40,
)


class Readers:
    """Two processes; one that was killed is started again under another name, as processes are."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.started = 0
        self.steps: list[Steps] = []
        self.running: list[StreamReader] = []
        for _ in range(2):
            self._start(len(self.running))

    def _start(self, place: int) -> None:
        self.started += 1
        steps = Steps()
        reader = self.world.reader(f"reader {self.started}", steps)
        reader.__enter__()
        self.steps[place : place + 1], self.running[place : place + 1] = [steps], [reader]

    def turn(self, number: int) -> None:
        place = number % 2
        try:
            self.running[place].turn()
        except StoppedError:
            pass  # its lease ran out: the daemon goes on with the next turn
        except Killed:
            self._start(place)

    def kill(self, after: int) -> None:
        """In so many steps."""
        self.steps[after % 2].left = after


@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_each_change_is_processed_in_order(
    script: list[tuple[str, object]], page_records: int, names_at_once: int
) -> None:
    world = World(page_records=page_records, names_at_once=names_at_once)
    readers = Readers(world)
    acts: dict[str, Callable[[Any], object]] = {
        "write": lambda keys: world.write(*keys),
        "split": world.fake.split,
        "roll": world.fake.roll,
        "turn": readers.turn,
        "wait": world.fake.advance,
        "kill": readers.kill,
    }
    for name, argument in script:
        acts[name](argument)
    world.drain()
    world.require_all_in_order()
