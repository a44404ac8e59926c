"""Rows that are written into memory, and what the way back remembers, as the real ones do it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any

from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.live import Check, IntendedRow, RefusalKind, RefusedChange, RowId, WaitingRow
from migrator.mapping.model.table import ItemKey

MemoryRow = dict[str, Any]


class FakeRowWriter:
    """model.reverse.rows.RowWriter. `rows`: by the table's real name, as tests.fakes.source.MemorySource has them.

    `written`: called after each transaction. Foreign keys, unique keys, NOT NULL and the decimals of numbers are looked at.
    """

    def __init__(self, facts: SchemaFacts, rows: dict[str, list[MemoryRow]]) -> None:
        self.facts = facts
        self.rows = rows
        self.written: Callable[[], None] = lambda: None
        self.moved: list[str] = []

    def write(self, changes: Sequence[IntendedRow], check: Check) -> list[RefusedChange]:
        if not changes:
            return []
        check()
        before = deepcopy(self.rows)
        for change in changes:
            kind = self._make(change)
            if kind is None:
                continue
            self.rows.clear()
            self.rows.update(before)
            if len(changes) == 1:
                return [RefusedChange(change, kind)]
            return self._swapped([answer for one in changes for answer in self.write([one], check)], check)
        self.written()
        return []

    def _swapped(self, refused: list[RefusedChange], check: Check) -> list[RefusedChange]:
        left = [one for one in refused if one.kind == "unique" and one.change.values is not None]
        while len(left) > 1:
            check()
            before = deepcopy(self.rows)
            for one in left:
                self._free(one.change)
            failed = next((one for one in left if self._make(one.change)), None)
            if failed is None:
                self.written()
                return [one for one in refused if one not in left]
            self.rows.clear()
            self.rows.update(before)
            left.remove(failed)
        return refused

    def _free(self, change: IntendedRow) -> None:
        table = change.table
        names = {
            name for key in table.unique for name in key if (found := table.column(name)) and found.nullable
        }
        for row in self.rows[table.real]:
            if all(row[name] == value for name, value in change.key.items()):
                row.update(dict.fromkeys(names - change.key.keys()))

    def move_counters(self, tables: Sequence[TableFacts]) -> None:
        self.moved += [table.name for table in tables]

    def _make(self, change: IntendedRow) -> RefusalKind | None:
        table = change.table
        rows = self.rows[table.real]
        before = [row for row in rows if all(row[name] == value for name, value in change.key.items())]
        if change.values is None:
            if any(self._has_child(table, row) for row in before):
                return "foreign key"
            self.rows[table.real] = [row for row in rows if row not in before]
            return None
        new = {column.real: change.values.get(column.name) for column in table.columns}
        kind = self._refusal(table, new, [row for row in rows if row not in before])
        if kind is None:
            self.rows[table.real] = [*(row for row in rows if row not in before), new]
        return kind

    def _refusal(self, table: TableFacts, new: MemoryRow, others: list[MemoryRow]) -> RefusalKind | None:
        for column in table.columns:
            value = new[column.real]
            if value is None and not column.nullable:
                return "not null"
            scale = column.kind.scale
            if isinstance(value, Decimal) and scale is not None and round(value, scale) != value:
                return "value"
            if isinstance(value, int) and abs(value) >= 2**63:
                return "value"
        for key in table.unique:
            mine = [new[name] for name in key]
            if None not in mine and any([row[name] for name in key] == mine for row in others):
                return "unique"
        for foreign in table.foreign_keys:
            mine = [new[name] for name in foreign.columns]
            parents = [*self.rows[foreign.table], *([new] if foreign.table == table.name else [])]
            if None not in mine and not any(
                [row[name] for name in foreign.referred] == mine for row in parents
            ):
                return "foreign key"
        return None

    def _has_child(self, table: TableFacts, row: MemoryRow) -> bool:
        return any(
            [child[name] for name in foreign.columns] == [row[name] for name in foreign.referred]
            for other in self.facts.tables.values()
            for foreign in other.foreign_keys
            if foreign.table == table.name
            for child in self.rows[other.real]
            if child != row
        )


class FakeReverseJournal:
    """model.reverse.rows.ReverseJournal of one job and table."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.keys: dict[RowId, set[ItemKey]] = {}
        self.waits: dict[RowId, WaitingRow] = {}
        self.stop_at = 0.0

    def remember(self, keys: Mapping[RowId, Collection[ItemKey]]) -> None:
        for row, items in keys.items():
            if items:
                self.keys.setdefault(row, set()).update(items)

    def keys_of(self, rows: Collection[RowId]) -> dict[RowId, set[ItemKey]]:
        return {row: set(self.keys.get(row, ())) for row in rows}

    def rows_of(self, keys: Collection[ItemKey]) -> set[RowId]:
        return {row for row, items in self.keys.items() if items & set(keys)}

    def wait(self, rows: Collection[WaitingRow]) -> None:
        self.waits |= {one.row: one for one in rows}

    def done(self, rows: Collection[RowId]) -> None:
        for row in rows:
            self.waits.pop(row, None)

    def forget(self, rows: Mapping[RowId, WaitingRow]) -> None:
        for row, seen in rows.items():
            if self.waits.get(row) == seen:
                del self.waits[row]
                self.keys.pop(row, None)

    def withdraw(self, tables: Collection[str]) -> None:
        self.waits = {row: one for row, one in self.waits.items() if row[0] not in tables}

    def waiting(self, limit: int | None = None, tables: Collection[str] | None = None) -> list[WaitingRow]:
        waiting = [one for one in self.waits.values() if tables is None or one.row[0] in tables]
        return sorted(waiting, key=lambda one: one.due_at)[:limit]

    def waiting_of(self, rows: Collection[RowId]) -> dict[RowId, WaitingRow]:
        return {row: self.waits[row] for row in rows if row in self.waits}

    def ask_to_stop(self) -> None:
        self.stop_at = self.clock()

    def stopped_at(self) -> float:
        return self.stop_at

    def now(self) -> float:
        return self.clock()
