"""A simulated table whose changes come in a stream of shards, and rows that are written by what its items say."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.live import (
    ALL_OF_IT,
    Check,
    IntendedRow,
    Mark,
    RecordPage,
    RefusedChange,
    Shard,
    StreamPosition,
    StreamRecord,
    StreamState,
)
from migrator.mapping.model.table import Item, ItemKey, TableDesign
from tests.simulation.database import Database, Kept, _image
from tests.simulation.scheduler import Scheduler
from tests.simulation.table import Table

SLOTS = 4
"""Parts of the key space; a shard has one or more of them."""


class Stepping:
    """An edge before and after whose every call others may act, or the actor is gone."""

    def __init__(self, edge: Any, schedule: Scheduler) -> None:
        self._edge = edge
        self._schedule = schedule

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._edge, name)
        if not callable(value):
            return value

        def call(*words: Any) -> Any:
            self._schedule.step()
            result = value(*words)
            self._schedule.step()
            return result

        return call


@dataclass
class SimShard:
    id: str
    parent: str
    slots: frozenset[int]
    records: list[StreamRecord] = field(default_factory=list)
    is_closed: bool = False


@dataclass
class Stream:
    """model.streams.shards.StreamSource. Each change is told once, in its item's order, split or not."""

    schedule: Scheduler
    design: TableDesign
    table: str = "Sim"
    mend: str = ""
    shards: list[SimShard] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.shards = [SimShard("s1", "", frozenset({0, 1})), SimShard("s2", "", frozenset({2, 3}))]

    def tell(self, key: ItemKey, old: Item | None, new: Item | None) -> None:
        if old == new:
            return
        self.number += 1
        slot = zlib.crc32(str(key[0]).encode()) % SLOTS
        shard = next(shard for shard in self.shards if not shard.is_closed and slot in shard.slots)
        keys: Item = {part.name: value for part, value in zip(self.design.key, key, strict=True)}
        created_at = float(int(self.schedule.now_s))
        shard.records.append(StreamRecord(f"{self.number:09}", created_at, keys, old, new))

    def split(self) -> None:
        """One shard goes on in two."""
        wide = [shard for shard in self.shards if not shard.is_closed and len(shard.slots) > 1]
        if not wide:
            return
        parent = self.schedule.random.choice(wide)
        parent.is_closed = True
        for slot in sorted(parent.slots):
            self.shards.append(SimShard(f"{parent.id}.{slot}", parent.id, frozenset({slot})))

    def state(self) -> StreamState:
        shards = tuple(Shard(shard.id, shard.parent) for shard in self.shards)
        return StreamState("arn", True, ALL_OF_IT, shards)

    def iterator(self, stream: str, shard: str, position: StreamPosition) -> str:
        """By how many records are behind it."""
        done = sum(record.sequence <= position.sequence for record in self._shard(shard).records)
        return str(done if position.kind == "AFTER_SEQUENCE_NUMBER" else 0)

    def records(self, stream: str, shard: str, iterator: str, limit: int) -> RecordPage:
        there, begin = self._shard(shard), int(iterator)
        page = there.records[begin : begin + self.schedule.random.randrange(1, 4)]
        end = begin + len(page)
        is_last = there.is_closed and end == len(there.records)
        return RecordPage(page, None if is_last else str(end))

    def _shard(self, name: str) -> SimShard:
        return next(shard for shard in self.shards if shard.id == name)


class RowPart(dict[ItemKey, Item]):
    """Items, each of whose changes is told to a stream."""

    def __init__(self, tell: Callable[[ItemKey, Item | None, Item | None], None]) -> None:
        super().__init__()
        self._tell = tell

    def __setitem__(self, key: ItemKey, item: Item) -> None:
        self._tell(key, self.get(key), item)
        super().__setitem__(key, item)

    def __delitem__(self, key: ItemKey) -> None:
        self._tell(key, self.get(key), None)
        super().__delitem__(key)

    def pop(self, key: ItemKey, *default: Any) -> Any:
        item = self.get(key)
        if item is not None:
            del self[key]
        return item


@dataclass
class StreamedTable(Table):
    stream: Stream = field(init=False)

    def __post_init__(self) -> None:
        self.stream = Stream(self.schedule, self.design)
        self.items = RowPart(self.stream.tell)

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """Consistently: as they are at one moment."""
        self.schedule.step()
        return {key: dict(self.items[key]) for key in keys if key in self.items}

    def own(self, items: Sequence[Item]) -> int:
        """model.edges.ItemOwner; each item is a request of its own."""
        return sum(self._own(item) for item in items)

    def _own(self, item: Item) -> bool:
        self.schedule.step()
        key = self.design.key_of(item)
        there = self.items.get(key)
        if there is None or int(str(there.get("_tk", 0))) > int(str(item["_tk"])):
            return False
        self.items[key] = {**there, **{name: item[name] for name in self.design.own_attributes}}
        return True

    # ── what a service does that writes the table itself ──

    def transact(self, puts: Sequence[Item], deletes: Sequence[ItemKey]) -> None:
        """All of it at one moment."""
        self.schedule.step()
        for item in puts:
            self.items[self.design.key_of(item)] = item
        for key in deletes:
            self.items.pop(key, None)


@dataclass
class SimRowWriter:
    """model.reverse.rows.RowWriter. `absent`: keys of rows that were deleted while an item held them. `captured`: tables
    whose changes leave marks, whoever makes them.

    Between the check and the transaction is nothing: docs/protocol.md says what remains of it ("What remains").
    """

    database: Database
    table: StreamedTable
    captured: set[str]
    absent: list[int] = field(default_factory=list)

    def write(self, changes: Sequence[IntendedRow], check: Check) -> list[RefusedChange]:
        self.database.schedule.step()
        check()
        for change in changes:
            self._make(change)
        return []

    def move_counters(self, tables: Sequence[TableFacts]) -> None:
        """There are none."""

    def _make(self, change: IntendedRow) -> None:
        name, key = change.table.real, int(change.key["id"])
        rows = self.database.tables[name]
        before, after = rows.get(key), None if change.values is None else dict(change.values)
        if after is None:
            rows.pop(key, None)
            held = [item for item in self.table.items.values() if (item["T"], item.get("id")) == ("Pet", key)]
            self.absent += [key] if held and before is not None else []
        else:
            rows[key] = after
        if name in self.captured and before != after:
            columns = self.database.captured[name]
            mark = Mark(self.database.new_id(), name, _image(columns, before), _image(columns, after))
            self.database.keep(Kept(mark))
