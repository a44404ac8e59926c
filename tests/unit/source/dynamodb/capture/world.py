"""Two tables with streams that a job moves into one: services write them, relays follow, and are killed at any step."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from migrator.dynamodb.tables import DynamoStream
from migrator.mapping.items.items import items_for
from migrator.mapping.items.values import Undecodable
from migrator.mapping.items.wire import decode
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import Captured, Column
from migrator.mapping.model.live import MEND_OF_SOURCE
from migrator.mapping.model.table import Item, ItemKey
from migrator.runtime.errors import StoppedError
from migrator.runtime.retry import Retry
from migrator.runtime.values import replace
from migrator.source.dynamodb.marks import READER_LEASE_S, RecordImages, SourceStream, StreamMarks
from migrator.source.dynamodb.opening import CapturedStream, StreamCapture
from migrator.source.dynamodb.reader import StreamReader
from migrator.stages.live.relay import Relay
from tests.fakes.marks import MemoryKeeper, MemoryTickets
from tests.fakes.stream_journal import FakeStreamJournal
from tests.fakes.streams import FakeStreams
from tests.unit.stages.core.live_world import Shop
from tests.unit.stages.core.stream_world import Dying, Steps

TABLES = ("users", "orders")


def value_of(item: WiredItem, column: Column) -> Any:
    """As a source of documents reads a column: by its declared type."""
    wired = item.get(column.real)
    value = None if wired is None else decode(wired)
    expected = {"integer": int, "text": str, "timestamp": str}[column.kind.name]
    if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
        return Undecodable(None, f"it is declared {column.kind.name}")
    return datetime.fromisoformat(str(value)) if column.kind.name == "timestamp" and value else value


class Documents:
    """`users` and `orders`, whose marks are records of streams. All share one clock, which only `pass_by` moves."""

    def __init__(self, more: str = "", *, again_after_s: float = 0.0, page_records: int = 2) -> None:
        self.shop = Shop(more)
        self.now = 1_800_000_000.0
        self.fakes = {name: FakeStreams(name, key=("id",)) for name in TABLES}
        self.checkpoints = {name: FakeStreamJournal(self.clock) for name in TABLES}
        self.images = RecordImages(self.shop.captured, value_of)
        self.kept = MemoryKeeper(self.images.read, self.clock)
        self.tickets = MemoryTickets()
        self.tickets.uninstall()
        self.again_after_s = again_after_s
        self.page_records = page_records
        self.started = 0
        self.capture = StreamCapture(
            lambda name: CapturedStream(self.source(name), self.checkpoints[name]), self.tickets, self.kept
        )

    @property
    def tables(self) -> list[Captured]:
        return self.capture.captured([entity.plan for entity in self.shop.checked.entities])

    # ── time, and what services do ──

    def clock(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for fake in self.fakes.values():
            fake.advance(seconds)

    def write(self, table: str, key: int, **values: Any) -> None:
        """An upsert; without values a delete."""
        rows = self.shop.rows[table]
        before = next((row for row in rows if row["id"] == key), None)
        rows[:] = [row for row in rows if row is not before]
        if not values:
            self.fakes[table].delete({"id": key})
            return
        blank = {column.name: None for column in self.shop.captured[table].table.columns}
        row = {**(before or blank), "id": key, **values}
        rows.append(row)
        written = {name: value for name, value in row.items() if value is not None}
        expires = written.get("expires_at")
        if isinstance(expires, datetime):
            written["expires_at"] = expires.isoformat()
        self.fakes[table].put(written)

    # ── what a process of a relay is made of ──

    def source(self, table: str) -> DynamoStream:
        fake = self.fakes[table]
        retry = Retry(sleep=self.pass_by, clock=self.clock)
        return DynamoStream(fake, fake, table, retry, MEND_OF_SOURCE)

    def install(self) -> None:
        """What `migrator capture install` does."""
        for step in self.capture.install_steps(self.tables, "shop"):
            self.capture.do(step)

    def marks(self, steps: Steps | None = None) -> StreamMarks:
        steps = steps or Steps()
        self.started += 1
        return StreamMarks(
            Dying(self.kept, steps),
            self.images,
            [self._stream(name, steps, f"reader {self.started}") for name in TABLES],
            self.pass_by,
            self.clock,
        )

    def relay(self, steps: Steps | None = None) -> tuple[Relay, StreamMarks]:
        """A process; `steps`: after which it is killed."""
        marks = self.marks(steps)
        relay = self.shop.relay
        return replace(relay, marks=marks, clock=self.clock), marks

    def _stream(self, name: str, steps: Steps, owner: str) -> SourceStream:
        def reader(work: Any) -> StreamReader:
            return StreamReader(
                Dying(self.source(name), steps),
                Dying(self.checkpoints[name], steps),
                work,
                owner=owner,
                lease_s=READER_LEASE_S,
                page_records=self.page_records,
                clock=self.clock,
            )

        return SourceStream(name, self.checkpoints[name], reader, self.again_after_s)

    def work(self, relay: Relay, turns: int = 50) -> int:
        """Until a turn takes nothing; how many marks were finished."""
        finished = 0
        for _ in range(turns):
            worked = relay.once()
            finished += worked.finished
            if not worked.taken:
                return finished
        raise AssertionError("it never came to an end")

    def drain(self) -> None:
        """A new process works all that there is, when what those before had is free."""
        self.pass_by(READER_LEASE_S + 61)
        relay, marks = self.relay()
        for _ in range(50):
            try:
                relay.marks.from_the_first()
                if not relay.once().taken:
                    break
            except StoppedError:
                continue
        else:
            raise AssertionError("it never came to an end")
        marks.close()

    # ── what comes of it ──

    def expected(self) -> dict[ItemKey, Mapping[str, Any]]:
        """The items of all rows, without what says when they were written."""
        table = self.shop.checked.mapping.table
        items: dict[ItemKey, Mapping[str, Any]] = {}
        for entity in self.shop.checked.entities:
            for row in self.shop.source.read_page(entity.plan, None, None):
                items |= {table.key_of(item): _plain(item) for item in items_for(entity, row)}
        return items

    def live(self) -> dict[ItemKey, Mapping[str, Any]]:
        return {key: _plain(item) for key, item in self.shop.live().items()}


def _plain(item: Item) -> Mapping[str, Any]:
    return {name: value for name, value in item.items() if not name.startswith("_")}
