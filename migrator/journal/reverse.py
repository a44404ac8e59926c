"""What the way back remembers: item keys of rows, and rows that are looked at again, as SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Table, delete, select

from migrator.journal.database import Database, insert_or_ignore, insert_or_replace, repeatable, seconds
from migrator.journal.schema import reverse_key, reverse_row, reverse_stop
from migrator.mapping.items.wire import read_key, write_key
from migrator.mapping.model.rows import RowId, WaitingRow
from migrator.mapping.model.table import ItemKey, item_key_text

_CHUNK = 400
Piece = TypeVar("Piece")


class SqlReverseJournal:
    """model.reverse.rows.ReverseJournal of one job and the DynamoDB table of this name."""

    def __init__(self, database: Database, job: str, table: str) -> None:
        self.database = database
        self.job = job
        self.table = table

    @repeatable
    def remember(self, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        rows = [
            {
                **self._of(row),
                "item_digest": self._digest(item_key_text(key)),
                "item_key": json.dumps(write_key(key)),
            }
            for row, items in keys.items()
            for key in items
        ]
        # In one order, so that no deadlock comes of it.
        rows.sort(key=lambda row: (row["row_digest"], row["item_digest"]))
        with self.database.begin() as connection:
            for chunk in _chunks(rows):
                connection.execute(insert_or_ignore(connection, reverse_key), chunk)

    @repeatable
    def keys_of(self, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]:
        found: dict[RowId, set[ItemKey]] = {row: set() for row in rows}
        with self.database.begin(reads=True) as connection:
            for row in self._among(connection, reverse_key, "row_digest", map(self._row_digest, rows)):
                key = read_key(json.loads(row.item_key))
                if key is not None:
                    found[(row.source_table, row.source_key)].add(key)
        return found

    @repeatable
    def rows_of(self, keys: Collection[ItemKey]) -> set[RowId]:
        digests = (self._digest(item_key_text(key)) for key in keys)
        with self.database.begin(reads=True) as connection:
            rows = self._among(connection, reverse_key, "item_digest", digests)
            return {(row.source_table, row.source_key) for row in rows}

    @repeatable
    def wait(self, rows: Collection[WaitingRow]) -> None:
        written = [
            {
                **self._of(one.row),
                **{"waits": one.waits, "due_at": one.due_at, "why": one.why},
                **{"looks": one.looks, "tries": one.tries},
            }
            for one in rows
        ]
        written.sort(key=lambda row: row["row_digest"])
        with self.database.begin() as connection:
            for row in written:
                connection.execute(insert_or_replace(connection, reverse_row), row)

    @repeatable
    def done(self, rows: Collection[RowId]) -> None:
        with self.database.begin() as connection:
            self._delete(connection, reverse_row, rows)

    @repeatable
    def forget(self, rows: Mapping[RowId, WaitingRow]) -> None:
        digests = map(self._row_digest, rows)
        with self.database.begin() as connection:
            found = self._among(connection, reverse_row, "row_digest", digests, lock=True)
            gone = [one.row for one in map(_waiting, found) if rows[one.row] == one]
            for table in (reverse_row, reverse_key):
                self._delete(connection, table, gone)

    @repeatable
    def withdraw(self, tables: Collection[str]) -> None:
        of_tables = (reverse_row.c.job == self.job, reverse_row.c.source_table.in_(list(tables)))
        with self.database.begin() as connection:
            connection.execute(delete(reverse_row).where(*of_tables))

    @repeatable
    def waiting(self, limit: int | None = None, tables: Collection[str] | None = None) -> list[WaitingRow]:
        ordered = select(reverse_row).where(reverse_row.c.job == self.job).order_by(reverse_row.c.due_at)
        if tables is not None:
            ordered = ordered.where(reverse_row.c.source_table.in_(list(tables)))
        with self.database.begin(reads=True) as connection:
            return [_waiting(row) for row in connection.execute(ordered.limit(limit))]

    @repeatable
    def waiting_of(self, rows: Collection[RowId]) -> dict[RowId, WaitingRow]:
        with self.database.begin(reads=True) as connection:
            found = self._among(connection, reverse_row, "row_digest", map(self._row_digest, rows))
            return {one.row: one for one in map(_waiting, found)}

    @repeatable
    def ask_to_stop(self) -> None:
        with self.database.begin() as connection:
            row = {"job": self.job, "at": seconds(connection)}
            connection.execute(insert_or_replace(connection, reverse_stop), row)

    @repeatable
    def stopped_at(self) -> float:
        asked = select(reverse_stop.c.at).where(reverse_stop.c.job == self.job)
        with self.database.begin(reads=True) as connection:
            return float(connection.execute(asked).scalar() or 0.0)

    @repeatable
    def now(self) -> float:
        with self.database.begin(reads=True) as connection:
            return seconds(connection)

    def _delete(self, connection: Connection, table: Table, rows: Collection[RowId]) -> None:
        for chunk in _chunks(sorted(map(self._row_digest, rows))):
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
        for chunk in _chunks(sorted(set(digests))):
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
        """The table has a part in it: rows of a job that writes another table later are others."""
        return hashlib.sha256("\0".join((self.table, *texts)).encode("utf-8", "surrogatepass")).digest()[:16]


def _waiting(row: Row[Any]) -> WaitingRow:
    place = (row.source_table, row.source_key)
    return WaitingRow(place, row.waits, row.due_at, row.why, row.looks, row.tries)


def _chunks(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), _CHUNK):
        yield pieces[start : start + _CHUNK]
