"""Marks of DynamoDB tables: stream records, copied into the journal and processed from there like any marks."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from migrator.mapping.items.values import Undecodable
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import Captured, Column
from migrator.mapping.model.live import (
    Checkpoint,
    Image,
    KeptMark,
    Mark,
    MarkKeeper,
    MarksState,
    Root,
    StreamJournal,
    StreamRecord,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.dynamodb.reader import StreamReader, Work

READER_LEASE_S = 20.0
"""Lease of a reader on its shards; it reports its position to the journal three times as often."""
UNSEEN_S = 15.0
"""A shard without a report for this long is behind; a shard that is being read reports sooner."""
COPY_S = 1.0
"""Minimum frequency of copying, also while marks are pending: a stream keeps records for 24 hours."""
SETTLE_S = 1.0
"""A record reaches its stream slightly after the change: all shards must be past the moment by this much."""
SURE_S = 15.0
"""Like SETTLE_S, before a permanent deletion because no mark names it; as in reverse (stages/reverse/stage.py)."""
_PAUSE_S = 0.2
_CLOCKS_DIFFER_S = 10.0

# ── A record as a mark, and its images as text ──

ValueOf: TypeAlias = Callable[[WiredItem, Column], Any]
"""From an item and a declared column to its value in a row; an Undecodable for another type."""


class RecordImages(Struct, frozen=True):
    """Makes marks from records, with the columns of keys and links.

    An image has these attributes as DynamoDB JSON and is decoded when taken, so it equals a read of the item.
    """

    captured: Mapping[str, Captured]
    value_of: ValueOf

    def kept(self, table: str, record: StreamRecord) -> KeptMark | None:
        captured = self.captured[table]
        if self._is_unwatched(captured, record):
            return None
        before, after = (self._written(captured, image) for image in (record.old_wired, record.new_wired))
        return KeptMark(table, before, after, record.created_at)

    def read(self, table: str, text: str) -> Image:
        captured = self.captured.get(table)
        if captured is None:
            return {}
        try:
            image = orjson.loads(text)
            item: WiredItem = image["item"]
            columns = (captured.table.column(name) for name in image["columns"])
            return {column.name: self._value(item, column) for column in columns if column is not None}
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            return {}

    def _value(self, item: WiredItem, column: Column) -> Any:
        value = self.value_of(item, column)
        return None if isinstance(value, Undecodable) else value

    def _written(self, captured: Captured, image: WiredItem | None) -> str | None:
        if image is None:
            return None
        columns = _columns(captured, captured.columns)
        attributes = _attributes(columns)
        part = {name: value for name, value in image.items() if name in attributes}
        return orjson.dumps(
            {"columns": [column.name for column in columns], "item": part}, default=_base64
        ).decode()

    def _is_unwatched(self, captured: Captured, record: StreamRecord) -> bool:
        old, new = record.old_wired, record.new_wired
        if captured.watched is None or old is None or new is None:
            return False
        attributes = _attributes(_columns(captured, captured.watched))
        return all(old.get(name) == new.get(name) for name in attributes)


def _columns(captured: Captured, names: Sequence[str]) -> list[Column]:
    return [column for name in names if (column := captured.table.column(name)) is not None]


def _attributes(columns: Sequence[Column]) -> set[str]:
    return {name for column in columns for name in (column.real, column.real.partition(".")[0])}


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise TypeError(type(value).__name__)


# ── The streams, and the marks made of them: `model.live.Marks` ──


class SourceStream(Struct, frozen=True):
    """`again_after_s`: each change is processed again after so long if rows are found by an index of the source,
    which lags its table; 0 for never.
    """

    table: str
    checkpoints: StreamJournal
    reader: Callable[[Work], StreamReader]
    again_after_s: float = 0.0


@dataclass
class StreamMarks:
    """Copies records into the journal, and delegates everything else to its marks. Thread-safe.

    A record is copied before its checkpoint moves on, and may be copied twice. Streams are read only once
    marks are taken: a process that only counts them claims no shard.
    `is_over`: whether no further relay will read the streams.
    """

    kept: MarkKeeper
    images: RecordImages
    streams: Sequence[SourceStream]
    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    is_over: Callable[[], bool] = lambda: False
    _copying: Lock = field(default_factory=Lock)
    _opened: ExitStack = field(default_factory=ExitStack)
    _readers: dict[str, StreamReader] = field(default_factory=dict)
    _copy_at: float = float("-inf")
    _is_short: bool = True
    _drain_asked_at: float = float("-inf")
    _drained_at: float = float("-inf")

    # ── taking ──

    def take(self, count: int, lease_s: float) -> list[Mark]:
        """Raises: LostRecordsError, SettingsError if a stream no longer contains all changes; StoppedError."""
        self._drain_where_asked()
        # First: after a failure here, taken marks would wait for the end of their lease.
        if self._is_short or self.clock() >= self._copy_at:
            self._copy()
        taken = self.kept.take(count, lease_s)
        self._is_short = len(taken) < count
        return taken

    def from_the_first(self) -> None:
        """Make the next take or count first copy everything that is now in the streams."""
        self._drain_asked_at = self.clock()
        self.kept.from_the_first()

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        if not after:
            # An empty answer would be wrong while a record that names the row is still in a stream.
            self._drain(self.clock(), SURE_S)
        return self.kept.look(after, count, free=free)

    def state(self) -> MarksState:
        """The state; a lagging shard counts as a mark of that age, but not if no further relay will read it."""
        self._drain_where_asked()
        state = self.kept.state()
        passed = map(self._passed, self.streams)
        lags_s = [max(0.0, now - at) for now, shards in passed for at in shards.values()]
        behind = [lag_s for lag_s in lags_s if lag_s > UNSEEN_S]
        if behind and self.is_over():
            return state
        oldest_s = max([state.oldest_age_s, *behind])
        return replace(state, waiting=state.waiting + len(behind), oldest_age_s=oldest_s)

    def finish(self, ids: Sequence[int]) -> int:
        return self.kept.finish(ids)

    def advance(self, mark: Mark, cursor: str) -> None:
        self.kept.advance(mark, cursor)

    def release(self, ids: Sequence[int]) -> None:
        self.kept.release(ids)

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        self.kept.put_back(ids, wait_s)

    def discard_failed(self, tries: int) -> int:
        return self.kept.discard_failed(tries)

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        self.kept.add(roots)

    def probe(self) -> None:
        """Raises: SettingsError if reading a stream was not begun."""
        for stream in self.streams:
            _refuse_unbegun(stream)
        self.kept.state()

    def close(self) -> None:
        with self._copying:
            self._readers.clear()
            self._opened.close()

    # ── copying ──

    def _copy(self) -> None:
        """One turn of each reader, unless another thread is copying."""
        if not self._copying.acquire(blocking=False):
            return
        try:
            self._turn()
        finally:
            self._copying.release()

    def _turn(self) -> int:
        records = sum(self._reader(stream).turn() for stream in self.streams)
        self._copy_at = self.clock() + COPY_S
        return records

    def _drain_where_asked(self) -> None:
        if self._drained_at < self._drain_asked_at:
            self._drain(self._drain_asked_at, SETTLE_S)

    def _drain(self, asked_at: float, settle_s: float) -> None:
        """Copy until every shard has passed this moment, those of other readers included.

        Their progress reaches the journal within seconds; a dead reader's shards are claimed when its lease
        ends.
        """
        with self._copying:
            if settle_s == SETTLE_S and self._drained_at >= asked_at:
                return  # another thread has done it meanwhile
            begun_at = self.clock()
            reads = (stream.checkpoints.read(stream.checkpoints.stream()) for stream in self.streams)
            moments = [read.now + settle_s for read in reads]
            while not self._is_drained(moments, was_empty=not self._turn()):
                self.wait(_PAUSE_S)
            self._drained_at = begun_at

    def _is_drained(self, moments: Sequence[float], *, was_empty: bool) -> bool:
        """Whether all shards passed; on a stream that never ends, the service's clock may be ahead by the
        constant.
        """
        ahead_s = 0.0 if was_empty else _CLOCKS_DIFFER_S
        return all(
            passed_at >= moment + ahead_s
            for stream, moment in zip(self.streams, moments, strict=True)
            for passed_at in self._passed(stream)[1].values()
        )

    def _passed(self, stream: SourceStream) -> tuple[float, dict[str, float]]:
        known = stream.checkpoints.read(stream.checkpoints.stream())
        reader = self._readers.get(stream.table)
        own = {} if reader is None else reader.passed()
        unfinished: list[Checkpoint] = [shard for shard in known.shards if not shard.is_finished]
        return known.now, {
            shard.shard: max(shard.passed_at, own.get(shard.shard, 0.0)) for shard in unfinished
        }

    def _reader(self, stream: SourceStream) -> StreamReader:
        reader = self._readers.get(stream.table)
        if reader is None:
            _refuse_unbegun(stream)
            reader = self._opened.enter_context(stream.reader(partial(self._keep, stream)))
            self._readers[stream.table] = reader
        return reader

    def _keep(self, stream: SourceStream, records: Sequence[StreamRecord], check: Callable[[], None]) -> None:
        made = (self.images.kept(stream.table, record) for record in records)
        marks = [mark for mark in made if mark is not None]
        if stream.again_after_s:
            marks += [replace(mark, ready_in_s=stream.again_after_s) for mark in marks]
        check()
        if marks:
            self.kept.store(marks)


def _refuse_unbegun(stream: SourceStream) -> None:
    if not stream.checkpoints.stream():
        what = f"the stream of table {stream.table} is not read yet, so its changes are not recorded"
        raise SettingsError(f"{what}; run `migrator capture install` with this job")
