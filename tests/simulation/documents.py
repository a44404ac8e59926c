"""A source that is DynamoDB tables: changes are told to streams, tickets and marks are the journal's, readings are torn."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from greenlet import getcurrent

from migrator.mapping.items.wire import decode, encode_item
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import Captured, Column, TableFacts
from migrator.mapping.model.live import Change, KeptMark, Mark, StreamRecord
from migrator.runtime.errors import MigratorError
from migrator.runtime.values import replace
from migrator.source.dynamodb.finding import Values, name_of
from migrator.source.dynamodb.marks import READER_LEASE_S, RecordImages, SourceStream, StreamMarks
from migrator.source.dynamodb.reader import StreamReader
from migrator.source.dynamodb.writing import OldDocuments
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.service import Flush, Rest
from migrator.stages.live.writers import WriterLease, fence_off
from tests.fakes.stream_journal import FakeStreamJournal
from tests.simulation.actors import STRANGE, Cast
from tests.simulation.database import Database, Kept, Reader, RolledBack, Row, RowId, Saved, Transaction
from tests.simulation.streamed import SLOTS, Stepping, Stream
from tests.simulation.world import LIFETIMES

SPLIT_SHARE = 0.1


def value_of(item: WiredItem, column: Column) -> Any:
    wired = item.get(column.real)
    return None if wired is None else decode(wired)


@dataclass
class Records(Stream):
    """The stream of a table of the source."""

    mend: str = ""

    def tell_row(self, key: int, old: Row | None, new: Row | None) -> None:
        self.number += 1
        slot = zlib.crc32(str(key).encode()) % SLOTS
        shard = next(shard for shard in self.shards if not shard.is_closed and slot in shard.slots)
        created_at = float(int(self.schedule.now_s))
        images = (None if row is None else encode_item(row) for row in (old, new))
        shard.records.append(StreamRecord(f"{self.number:09}", created_at, {"id": key}, old, new, *images))


class Waiting(dict[int, Kept]):
    """Marks; there are some as long as a record is not copied."""

    def __init__(self, marks: Mapping[int, Kept], is_behind: Callable[[], bool]) -> None:
        super().__init__(marks)
        self._is_behind = is_behind

    def __bool__(self) -> bool:
        return len(self) > 0 or self._is_behind()


class Keeper:
    """model.live.MarkKeeper: what a database does with marks of SQL, for those that were copied."""

    def __init__(self, database: DocumentDatabase) -> None:
        self._database = database

    def take(self, count: int, lease_s: float) -> list[Mark]:
        return Database.take(self._database, count, lease_s)

    def store(self, marks: Sequence[KeptMark]) -> None:
        database = self._database
        database.schedule.step()
        for mark in marks:
            before, after = (
                None if text is None else database.images.read(mark.table, text)
                for text in (mark.before, mark.after)
            )
            made = Mark(database.new_id(), mark.table, before, after)
            ready_at = database.schedule.now_s + mark.ready_in_s if mark.ready_in_s else 0.0
            Database.keep(database, Kept(made, ready_at))


@dataclass
class DocumentDatabase(Database):
    """Each greenlet is a process with readers of its own; one that is cut off leaves its lease behind."""

    streams: dict[str, Records] = field(default_factory=dict)
    checkpoints: dict[str, FakeStreamJournal] = field(default_factory=dict)
    processes: dict[Any, StreamMarks] = field(default_factory=dict)
    started: int = 0
    versions: list[tuple[float, dict[str, dict[int, Row]]]] = field(default_factory=list)
    """What each table held, and since when."""
    again_after_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        self.images = self.made_images(self.captured)
        # A record holds the whole item.
        self.captured = {
            name: replace(table, columns=tuple(column.name for column in table.table.columns))
            for name, table in self.captured.items()
        }
        for name in self.captured:
            self.streams[name] = Records(self.schedule, None, name)  # type: ignore[arg-type]
            self.checkpoints[name] = FakeStreamJournal(self.schedule.clock)
            self.checkpoints[name].begin("arn")
        self.marks = Waiting({}, self.is_behind)

    def made_images(self, captured: Mapping[str, Captured]) -> RecordImages:
        return RecordImages(captured, value_of)

    def keep(self, kept: Kept) -> None:
        """A change that is committed is told to its table's stream; what is no change of a row is kept."""
        mark = kept.mark
        if not mark.table or mark.cursor:
            super().keep(kept)
            return
        version = {name: dict(rows) for name, rows in self.tables.items()}
        self.versions.append((self.schedule.now_s, version))
        image = mark.before if mark.after is None else mark.after
        assert image is not None
        before, after = (None if one is None else dict(one) for one in (mark.before, mark.after))
        self.streams[mark.table].tell_row(image["id"], before, after)

    def take(self, count: int, lease_s: float) -> list[Mark]:
        process = self.processes.get(getcurrent())
        if process is None:
            self.started += 1
            process = self.processes[getcurrent()] = self.process(f"reader {self.started}")
        return process.take(count, lease_s)

    def process(self, owner: str) -> StreamMarks:
        streams = [
            SourceStream(name, self.checkpoints[name], partial(self._reader, name, owner), self.again_after_s)
            for name in self.streams
        ]
        return StreamMarks(Keeper(self), self.images, streams, clock=self.schedule.clock)  # type: ignore[arg-type]

    def _reader(self, name: str, owner: str, work: Any) -> StreamReader:
        source, journal = (
            Stepping(edge, self.schedule) for edge in (self.streams[name], self.checkpoints[name])
        )
        clock = self.schedule.clock
        return StreamReader(source, journal, work, owner=owner, lease_s=READER_LEASE_S, clock=clock)

    def is_behind(self) -> bool:
        for name, stream in self.streams.items():
            done = self.checkpoints[name].shards
            for shard in stream.shards:
                if shard.records and (
                    shard.id not in done or done[shard.id].sequence < shard.records[-1].sequence
                ):
                    return True
        return False

    # A journal goes back with its checkpoints, and whoever reads streams begins anew.

    def saved(self) -> Saved:
        checkpoints = {name: dict(journal.shards) for name, journal in self.checkpoints.items()}
        self.marks, waiting = dict(self.marks), self.marks
        saved = super().saved()
        self.marks = waiting
        return (*saved, checkpoints)  # type: ignore[return-value]

    def restore(self, saved: Saved) -> None:
        *base, checkpoints = saved
        super().restore(tuple(base))  # type: ignore[arg-type]
        self.marks = Waiting(self.marks, self.is_behind)
        self.processes.clear()
        for name, shards in checkpoints.items():  # type: ignore[attr-defined]
            journal = self.checkpoints[name]
            journal.shards = {one: replace(shard, owner="") for one, shard in shards.items()}
            journal.alive_until.clear()


class TornReader(Reader):
    """Each document is read at a moment of its own."""

    def _row(self, view: Transaction, row_id: RowId) -> Row | None:
        self.database.schedule.step()
        return super()._row(view, row_id)

    def _rows(self, view: Transaction, table: str) -> list[tuple[int, Row]]:
        self.database.schedule.step()
        return super()._rows(view, table)


INDEX_LAG_S = 5.0


class IndexReader(TornReader):
    """Rows of a collection are asked by an index, which shows them as they were some seconds ago."""

    def _rows(self, view: Transaction, table: str) -> list[tuple[int, Row]]:
        self.database.schedule.step()
        assert isinstance(self.database, DocumentDatabase)
        shown_s = self.database.schedule.now_s - INDEX_LAG_S
        older = [version for since_s, version in self.database.versions if since_s <= shown_s]
        return sorted(older[-1][table].items()) if older else super()._rows(view, table)


@dataclass
class Documents:
    """The part of a Finder that a service's writes ask for: each document at a moment of its own."""

    database: Database

    def by_keys(self, table: TableFacts, keys: Sequence[WiredItem]) -> dict[Values, WiredItem]:
        found: dict[Values, WiredItem] = {}
        for key in keys:
            self.database.schedule.step()
            row = self.database.tables[table.name].get(int(key["id"]["N"]))
            if row is not None:
                found[name_of(key)] = encode_item(row)
        return found


@dataclass
class Turns:
    """The part of SharedLeases that a flush asks for."""

    lease: WriterLease

    @contextmanager
    def turn(self) -> Iterator[None]:
        self.lease.beat(begins=True)
        yield


class DocumentCast(Cast):
    """Services write the old tables, whose shards split; there are no policies. A strict one makes the items of each call
    before the next, by the product's own listener."""

    reader: Callable[[Database], Reader] = TornReader

    def service(self, *, strict: bool) -> None:
        if not strict:
            super().service(strict=False)
            return
        if not self.belongs():
            return
        fence_off(self.world.writers, LIFETIMES, self.wait)
        lease = self.present("relay")
        for _ in range(3):
            self.followed(lease)
        self.world.writers.leave(lease.writer)

    def followed(self, lease: WriterLease) -> None:
        work = Transaction(self.database)
        try:
            self.schedule.step()
            self.change(work)
            self.follow(work, lease)
        except STRANGE as error:
            self.noticed.append(error)
        except (RolledBack, MigratorError):
            return
        finally:
            work.release()

    def follow(self, work: Transaction, lease: WriterLease) -> None:
        database = self.database
        assert isinstance(database, DocumentDatabase)
        documents = OldDocuments(database.images, Documents(database))  # type: ignore[arg-type]
        keys: dict[str, list[WiredItem]] = {}
        for table, key in work.changes:
            keys.setdefault(table, []).append(encode_item({"id": key}))
        before = documents.read(keys)
        self.commit(work)
        relay = self.world.relay(self.refresh_of(lease))
        left = Rest(self.schedule.clock)
        flush = Flush(documents.shown, lambda: relay, Turns(lease), left)  # type: ignore[arg-type]
        flush.or_raise([Change(table, one) for table, of in before.items() for one in of.values()])

    def policy(self) -> None:
        return

    def commit(self, work: Transaction) -> None:
        super().commit(work)
        database = self.database
        assert isinstance(database, DocumentDatabase)
        for stream in database.streams.values():
            if self.schedule.chance(SPLIT_SHARE):
                stream.split()

    def refresh_of(self, writer_lease: WriterLease) -> Refresh:
        refresh = super().refresh_of(writer_lease)
        refresh.rows = type(self).reader(self.database)
        return refresh
