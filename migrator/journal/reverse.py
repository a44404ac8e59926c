"""The journal of reverse: item keys of rows, rows to be re-checked, and checkpoints of the stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, Table, delete, select, update

from migrator.journal.database import (
    OfJob,
    OfJobTable,
    bring_back,
    chunks,
    insert_or_ignore,
    insert_or_replace,
    reading,
    repeatable,
    seconds,
)
from migrator.journal.records import KeptRecords
from migrator.journal.schema import reverse_key, reverse_row
from migrator.journal.schema import stream_shard as shards
from migrator.mapping.items.wire import read_key, write_key
from migrator.mapping.model.live import (
    FORGOTTEN_S,
    Checkpoint,
    Checkpoints,
    RowId,
    Shard,
    Unkept,
    WaitingRow,
    allotted,
)
from migrator.mapping.model.table import ItemKey, item_key_text
from migrator.runtime.values import asdict, replace


class _Counted(Struct, frozen=True):
    """Attributes that no row stores, as (item type, attribute, number): never a value."""

    at: float
    extra: tuple[tuple[str, str, int], ...]
    forms: tuple[tuple[str, str, int], ...]


_UNKEPT = KeptRecords[_Counted]("reverse_unkept", _Counted)
_STOPS = KeptRecords[float]("reverse_stop", float)
"""When all processes of reverse were last requested to stop."""


class SqlUnkept(OfJob):
    """The last count of item content that no row stores. Needs no mapping."""

    @repeatable
    def save(self, connection: Connection, unkept: Unkept) -> None:
        extra, forms = (
            tuple((*name, number) for name, number in of.items()) for of in (unkept.extra, unkept.forms)
        )
        _UNKEPT.put(connection, self.job, _Counted(seconds(connection), extra, forms))

    @reading
    def last(self, connection: Connection) -> tuple[Unkept, float]:
        counted, now = _UNKEPT.get(connection, self.job), seconds(connection)
        if counted is None:
            return Unkept(), 0.0
        counts = (
            {(kind, name): number for kind, name, number in of} for of in (counted.extra, counted.forms)
        )
        return Unkept(*counts), max(0.0, now - counted.at)


class SqlReverseJournal(OfJobTable):
    @repeatable
    def remember(self, connection: Connection, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        rows = [
            {
                **self._of(row),
                "item_digest": self._digest(item_key_text(key)),
                "item_key": json.dumps(write_key(key)),
            }
            for row, items in keys.items()
            for key in items
        ]
        # In one order, which prevents deadlocks.
        rows.sort(key=lambda row: (row["row_digest"], row["item_digest"]))
        for chunk in chunks(rows):
            connection.execute(insert_or_ignore(connection, reverse_key), chunk)

    @reading
    def keys_of(self, connection: Connection, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]:
        found: dict[RowId, set[ItemKey]] = {row: set() for row in rows}
        for row in self._among(connection, reverse_key, "row_digest", map(self._row_digest, rows)):
            key = read_key(json.loads(row.item_key))
            if key is not None:
                found[(row.source_table, row.source_key)].add(key)
        return found

    @reading
    def rows_of(self, connection: Connection, keys: Collection[ItemKey]) -> set[RowId]:
        digests = (self._digest(item_key_text(key)) for key in keys)
        rows = self._among(connection, reverse_key, "item_digest", digests)
        return {(row.source_table, row.source_key) for row in rows}

    @repeatable
    def wait(self, connection: Connection, rows: Collection[WaitingRow]) -> None:
        written = [
            {
                **self._of(one.row),
                **{"waits": one.waits, "due_at": one.due_at, "why": one.why},
                **{"looks": one.looks, "tries": one.tries},
            }
            for one in rows
        ]
        written.sort(key=lambda row: row["row_digest"])
        for row in written:
            connection.execute(insert_or_replace(connection, reverse_row), row)

    @repeatable
    def done(self, connection: Connection, rows: Collection[RowId]) -> None:
        self._delete(connection, reverse_row, rows)

    @repeatable
    def forget(self, connection: Connection, rows: Mapping[RowId, WaitingRow]) -> None:
        digests = map(self._row_digest, rows)
        found = self._among(connection, reverse_row, "row_digest", digests, lock=True)
        gone = [one.row for one in map(_waiting, found) if rows[one.row] == one]
        for table in (reverse_row, reverse_key):
            self._delete(connection, table, gone)

    @repeatable
    def withdraw(self, connection: Connection, tables: Collection[str]) -> None:
        of_tables = (reverse_row.c.job == self.job, reverse_row.c.source_table.in_(list(tables)))
        connection.execute(delete(reverse_row).where(*of_tables))

    @reading
    def waiting(
        self, connection: Connection, limit: int | None = None, tables: Collection[str] | None = None
    ) -> list[WaitingRow]:
        ordered = select(reverse_row).where(reverse_row.c.job == self.job).order_by(reverse_row.c.due_at)
        if tables is not None:
            ordered = ordered.where(reverse_row.c.source_table.in_(list(tables)))
        return [_waiting(row) for row in connection.execute(ordered.limit(limit))]

    @reading
    def waiting_of(self, connection: Connection, rows: Collection[RowId]) -> dict[RowId, WaitingRow]:
        found = self._among(connection, reverse_row, "row_digest", map(self._row_digest, rows))
        return {one.row: one for one in map(_waiting, found)}

    @repeatable
    def ask_to_stop(self, connection: Connection) -> None:
        _STOPS.put(connection, self.job, seconds(connection))

    def stopped_at(self) -> float:
        return _STOPS.read(self.database, self.job) or 0.0

    @reading
    def now(self, connection: Connection) -> float:
        return seconds(connection)

    def _delete(self, connection: Connection, table: Table, rows: Collection[RowId]) -> None:
        for chunk in chunks(sorted(map(self._row_digest, rows))):
            connection.execute(delete(table).where(table.c.job == self.job, table.c.row_digest.in_(chunk)))

    def _among(
        self,
        connection: Connection,
        table: Table,
        column: str,
        digests: Iterable[bytes],
        *,
        lock: bool = False,
    ) -> list[Row[Any]]:
        found: list[Row[Any]] = []
        for chunk in chunks(sorted(set(digests))):
            rows = select(table).where(table.c.job == self.job, table.c[column].in_(chunk))
            ordered = rows.order_by(table.c[column]).with_for_update() if lock else rows
            found += connection.execute(ordered)
        return found

    def _of(self, row: RowId) -> dict[str, Any]:
        table, key = row
        return {
            **{"job": self.job, "row_digest": self._row_digest(row)},
            **{"source_table": table, "source_key": key},
        }

    def _row_digest(self, row: RowId) -> bytes:
        return self._digest(*row)

    def _digest(self, *texts: str) -> bytes:
        """A digest that includes the table: a job that writes to another table later has other rows."""
        return hashlib.sha256("\0".join((self.table, *texts)).encode("utf-8", "surrogatepass")).digest()[:16]


def _waiting(row: Row[Any]) -> WaitingRow:
    place = (row.source_table, row.source_key)
    return WaitingRow(place, row.waits, row.due_at, row.why, row.looks, row.tries)


# ── Checkpoints of shards ──


class _Stream(Struct, frozen=True):
    """The stream that reading began with, and the last listing of its shards."""

    arn: str
    listed_at: float


class _StreamReader(Struct, frozen=True):
    """A process or thread that reads the stream; each is entitled to an equal part of its shards."""

    arn: str
    alive_at: float
    lease_s: float


STREAMS = KeptRecords[_Stream]("stream", _Stream)
READERS = KeptRecords[_StreamReader]("stream_reader", _StreamReader)


class SqlStreamJournal(OfJobTable):
    def stream(self) -> str:
        before = STREAMS.read(self.database, self.job, self.table)
        return "" if before is None else before.arn

    @repeatable
    def begin(self, connection: Connection, stream: str) -> None:
        before = self._alone(connection)
        forgotten = {stream} if before is None else {stream, before.arn}
        readers = READERS.all(connection, self.job)
        gone = [owner for owner, reader in readers.items() if reader.arn in forgotten]
        READERS.delete(connection, self.job, *gone)
        of_streams = (shards.c.job == self.job, shards.c.arn.in_(sorted(forgotten)))
        connection.execute(delete(shards).where(*of_streams))
        STREAMS.put(connection, self.job, _Stream(stream, seconds(connection)), self.table)

    @repeatable
    def list_shards(self, connection: Connection, stream: str, named: Sequence[Shard], age_s: float) -> None:
        row, now = self._alone(connection), seconds(connection)
        if row is None or row.arn != stream:
            return  # another process has begun with another stream meanwhile
        of_stream = (shards.c.job == self.job, shards.c.arn == stream)
        known = set(connection.execute(select(shards.c.shard).where(*of_stream)).scalars())
        new = [self._row(stream, shard, row.listed_at) for shard in named if shard.id not in known]
        if new:
            connection.execute(insert_or_ignore(connection, shards), new)
        listed = replace(row, listed_at=max(row.listed_at, now - age_s))
        STREAMS.put(connection, self.job, listed, self.table)
        old = (shards.c.is_finished == 1, shards.c.passed_at < now - FORGOTTEN_S)
        connection.execute(
            delete(shards).where(*of_stream, *old, shards.c.shard.not_in([shard.id for shard in named]))
        )

    @repeatable
    def claim(self, connection: Connection, stream: str, owner: str, lease_s: float) -> Checkpoints:
        # One reader at a time: two would find the same free shards.
        row = self._alone(connection)
        now = self._enter(connection, stream, owner, lease_s)
        if row is None or row.arn != stream:
            return Checkpoints(now, ())
        READERS.bring_back(connection, self.job)
        bring_back(connection, shards.c.leased_until, now + lease_s, shards.c.job == self.job)
        readers = READERS.all(connection, self.job).values()
        number = sum(reader.arn == stream and reader.alive_at + reader.lease_s > now for reader in readers)
        held = allotted(self._shards(connection, stream), owner, number, now)
        own, names = self._own(stream, owner), [shard.shard for shard in held]
        connection.execute(update(shards).where(*own, shards.c.shard.not_in(names)).values(owner=""))
        of_stream = (shards.c.job == self.job, shards.c.arn == stream)
        lease = {"owner": owner, "leased_until": now + lease_s}
        connection.execute(update(shards).where(*of_stream, shards.c.shard.in_(names)).values(**lease))
        return Checkpoints(
            now, tuple(shard for shard in self._shards(connection, stream) if shard.owner == owner)
        )

    @repeatable
    def renew(
        self, connection: Connection, stream: str, owner: str, lease_s: float, passed_at: Mapping[str, float]
    ) -> set[str]:
        # An expired one may be claimed at this moment.
        self._alone(connection)
        now, own = self._enter(connection, stream, owner, lease_s), self._own(stream, owner)
        connection.execute(update(shards).where(*own).values(leased_until=now + lease_s))
        for shard, passed in passed_at.items():
            is_later = (shards.c.shard == shard, shards.c.passed_at < passed)
            connection.execute(update(shards).where(*own, *is_later).values(passed_at=passed))
        return set(connection.execute(select(shards.c.shard).where(*own)).scalars())

    @repeatable
    def save(self, connection: Connection, stream: str, owner: str, done: Checkpoint) -> bool:
        finished = int(done.is_finished)
        values = {"sequence": done.sequence, "passed_at": done.passed_at, "is_finished": finished}
        saved = update(shards).where(*self._own(stream, owner), shards.c.shard == done.shard)
        return connection.execute(saved.values(**values)).rowcount > 0

    @repeatable
    def leave(self, connection: Connection, stream: str, owner: str) -> None:
        READERS.delete(connection, self.job, owner)
        connection.execute(update(shards).where(*self._own(stream, owner)).values(owner=""))

    @reading
    def read(self, connection: Connection, stream: str) -> Checkpoints:
        return Checkpoints(seconds(connection), tuple(self._shards(connection, stream)))

    def _alone(self, connection: Connection) -> _Stream | None:
        return STREAMS.lock(connection, self.job, self.table)

    def _enter(self, connection: Connection, stream: str, owner: str, lease_s: float) -> float:
        now = seconds(connection)
        READERS.put(connection, self.job, _StreamReader(stream, now, lease_s), owner)
        READERS.forget(connection, self.job, now - FORGOTTEN_S)
        return now

    def _own(self, stream: str, owner: str) -> tuple[Any, ...]:
        return (shards.c.job == self.job, shards.c.arn == stream, shards.c.owner == owner)

    def _row(self, stream: str, shard: Shard, passed_at: float) -> dict[str, Any]:
        checkpoint = asdict(Checkpoint(shard.id, shard.parent, "", passed_at))
        return {"job": self.job, "arn": stream, **checkpoint, "is_finished": 0}

    def _shards(self, connection: Connection, stream: str) -> list[Checkpoint]:
        columns = (
            *(shards.c.shard, shards.c.parent, shards.c.sequence, shards.c.passed_at),
            *(shards.c.is_finished, shards.c.owner, shards.c.leased_until),
        )
        query = select(*columns).where(shards.c.job == self.job, shards.c.arn == stream)
        rows = connection.execute(query.order_by(shards.c.shard))
        return [
            Checkpoint(*row[:4], is_finished=bool(row[4]), owner=row[5], leased_until=row[6]) for row in rows
        ]
