"""A table with a stream, its readers, and what they worked; readers are killed at any of their calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.dynamodb.tables import DynamoStream
from migrator.mapping.model.live import StreamRecord
from migrator.runtime.retry import Retry
from migrator.source.dynamodb.reader import LEASE_S, Check, StreamReader, begin
from tests.fakes.stream_journal import FakeStreamJournal
from tests.fakes.streams import FakeStreams


class Killed(BaseException):
    """The process is gone: nothing of it is done any more."""


@dataclass
class Steps:
    """Each call of a reader to the outside is two steps: it is killed before the call takes effect, or right after."""

    left: float = float("inf")
    taken: int = 0

    def step(self) -> None:
        self.taken += 1
        self.left -= 1
        if self.left <= 0:
            raise Killed

    def watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **named: Any) -> Any:
            self.step()
            result = method(*words, **named)
            self.step()
            return result

        return call


class Dying:
    """An edge whose every call may be the last one."""

    def __init__(self, edge: Any, steps: Steps) -> None:
        self._edge = edge
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._edge, name)
        return self._steps.watched(value) if callable(value) else value


@dataclass
class World:
    """`worked`: (shard, key, number) of each record that was worked, in order; an item's changes are numbered from 1."""

    names_at_once: int = 100
    page_records: int = 2
    worked: list[tuple[str, str, int]] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.fake = FakeStreams(names_at_once=self.names_at_once)
        self.journal = FakeStreamJournal(self.fake.clock)
        self.source = DynamoStream(
            self.fake, self.fake, "Shop", Retry(sleep=self.fake.sleep, clock=self.fake.clock)
        )
        begin(self.source, self.journal)

    def write(self, *keys: str) -> None:
        for key in keys:
            self.written[key] += 1
            self.fake.put({"PK": key, "SK": "A", "n": self.written[key]})

    def reader(self, owner: str = "one", steps: Steps | None = None, work: Any = None) -> StreamReader:
        steps = steps or Steps()
        reader = StreamReader(
            Dying(self.source, steps),
            Dying(self.journal, steps),
            work or self.work,
            owner=owner,
            page_records=self.page_records,
            clock=self.fake.clock,
        )
        reader.work = steps.watched(reader.work)
        return reader

    def work(self, records: Sequence[StreamRecord], check: Check) -> None:
        for record in records:
            check()
            assert record.new is not None
            key, number = record.keys["PK"], record.new["n"]
            assert isinstance(key, str)
            assert isinstance(number, int)
            self.worked.append((self.shard_of(record), key, number))

    def shard_of(self, record: StreamRecord) -> str:
        for shard in self.fake.shards:
            if any(one["dynamodb"]["SequenceNumber"] == record.sequence for one in shard.records):
                return shard.id
        raise AssertionError("a record of no shard")

    def drain(self, owner: str = "last", turns: int = 300) -> None:
        """Another process works all that is left, when the leases of those before have run out."""
        self.fake.advance(LEASE_S + 1)
        with self.reader(owner) as reader:
            for _ in range(turns):
                if not reader.turn() and not self.is_behind():
                    return
        raise AssertionError("it never came to an end")

    def is_behind(self) -> bool:
        checkpoints = {shard.shard: shard for shard in self.journal.read(self.fake.arn).shards}
        for shard in self.fake.shards:
            done = checkpoints.get(shard.id)
            last = shard.records[-1]["dynamodb"]["SequenceNumber"] if shard.records else ""
            if done is None or done.sequence < last or (shard.closed_at is not None and not done.is_finished):
                return True
        return False

    def require_all_in_order(self) -> None:
        """Each change of each item was worked, and none before the one before it."""
        reached: dict[str, int] = defaultdict(int)
        for _, key, number in self.worked:
            assert number <= reached[key] + 1, f"change {number} of {key} before change {reached[key] + 1}"
            reached[key] = max(reached[key], number)
        assert reached == self.written
