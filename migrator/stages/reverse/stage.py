"""Rows made from items: a row's items are read again, and their current values written into the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

from msgspec import Struct

from migrator.mapping.check.values import SPELLED
from migrator.mapping.inverse.rows import Inverse, RowPart, is_same, row_of, row_parts_of
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.values import fitting
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import EntityPlan, TableFacts
from migrator.mapping.model.live import (
    Check,
    IntendedRow,
    RefusedChange,
    ReverseJournal,
    Row,
    RowId,
    RowWriter,
    StreamRecord,
    WaitingRow,
    Waits,
)
from migrator.mapping.model.table import (
    Item,
    ItemKey,
    RowTree,
    SourceKey,
    decode_key,
    item_key_of,
    item_key_text,
)
from migrator.runtime.errors import RowError
from migrator.runtime.values import replace

SETTLE_S = 15.0
"""How much later than the moment all shards have to be passed, twice, before a row goes: clocks differ, a stream names a new
shard late, and a page without records may not be the end (see docs/decisions/0029-streams.md)."""
_LOOKS = 2
_READ_AGAIN = 5
_AT_ONCE = 500
_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
ITEM_ALONE = ""
"""In place of a table: an item of an unknown row."""


def waiting_no_more(tables: Collection[str], direct: Collection[str]) -> list[str]:
    return [*tables, *([] if direct else [ITEM_ALONE])]


def keys_by_table(rows: Iterable[RowId]) -> dict[str, list[SourceKey]]:
    """Without items alone."""
    by_table: dict[str, list[SourceKey]] = defaultdict(list)
    for table, key in rows:
        if table != ITEM_ALONE:
            by_table[table].append(key)
    return by_table


ItemsByRow = Callable[[str, Collection[SourceKey]], Mapping[SourceKey, Collection[Item]]]
"""Of a table's current rows in the source: the items that the mapping makes of each."""


ReadRows = Callable[[EntityPlan, Sequence[SourceKey]], list[RowTree]]
"""Row trees by the keys that items have."""
ReadPage = Callable[[EntityPlan, SourceKey | None, SourceKey | None, int | None], list[RowTree]]
"""Row trees with after < key <= upto, ordered by key; None is open."""
StoredItems = Callable[[Sequence[ItemKey]], Mapping[ItemKey, Item]]
"""Consistent read of the stored items among the keys."""


def items_by_row(
    read_rows: ReadRows, entities: Sequence[CompiledEntity], table: str, keys: Collection[SourceKey]
) -> dict[SourceKey, list[Item]]:
    made: dict[SourceKey, list[Item]] = defaultdict(list)
    for entity in entities:
        if entity.plan.table.name == table:
            for tree in read_rows(entity.plan, list(keys)):
                made[row_key(entity, tree)] += items_made(entity, tree)
    return made


def items_made(entity: CompiledEntity, tree: RowTree) -> list[Item]:
    with suppress(RowError):
        return items_for(entity, tree)
    return []


def row_key(entity: CompiledEntity, tree: RowTree) -> SourceKey:
    """Key as in items: of decoded values, since drivers have several forms."""
    with suppress(RowError):
        decoded = entity.decode(tree)
        return item_key_text([fitting(decoded[place]) for place in entity.key_places])
    return entity.source_key(tree)


class WrittenTable(Struct, frozen=True):
    """`key`: the columns by which items name its rows."""

    facts: TableFacts
    key: tuple[str, ...]

    def row_key(self, text: SourceKey) -> Row:
        return {
            name: _typed(self.facts, name, value)
            for name, value in zip(self.key, decode_key(text), strict=True)
        }


_OF_TEXT: Mapping[str, Callable[[str], Any]] = {
    **{"number": Decimal, "float": Decimal, "date": date.fromisoformat},
    **{"time": time.fromisoformat, "timestamp": datetime.fromisoformat},
}


def _typed(table: TableFacts, name: str, value: Any) -> Any:
    column = table.column(name)
    read = None if column is None else _OF_TEXT.get(column.kind.name)
    return read(value) if read and isinstance(value, str) else value


class Spellings(Struct, frozen=True):
    """Keys that the source spells differently than reverse: SQLite keeps any text of a time, UUID or decimal.

    Only reverse writes these tables, so one reading finds all such rows.
    """

    keys: Mapping[RowId, SourceKey] = {}

    @classmethod
    def read(cls, source: Rows, entities: Sequence[CompiledEntity], page_rows: int) -> Spellings:
        return cls(
            {
                (entity.plan.table.name, key): spelled
                for entity in entities
                if entity.plan.loosely_typed
                and any(column.kind.name in {*SPELLED, "number"} for column in entity.plan.key)
                for trees in pages_of(source, entity, page_rows)
                for tree in trees
                if (spelled := entity.source_key(tree)) != (key := row_key(entity, tree))
            }
        )

    def read_rows(self, source: Rows, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        return source.read_rows(plan, [self.keys.get((plan.table.name, key), key) for key in keys])

    def written(self, table: WrittenTable, values: Row, tables: Mapping[str, WrittenTable]) -> Row:
        """The values, with the row's key and referenced keys as the source has them."""
        places = [(table.facts.name, table.key)]
        for foreign in table.facts.foreign_keys if self.keys else ():
            columns = dict(zip(foreign.referred, foreign.columns, strict=True))
            parent = tables.get(foreign.table)
            if parent is not None and columns.keys() == {*parent.key}:
                places.insert(0, (foreign.table, tuple(columns[name] for name in parent.key)))
        written = dict(values)
        for name, columns_of in places:
            key = [values.get(column) for column in columns_of]
            if None not in key and (spelled := self.keys.get((name, item_key_text(key)))):
                written |= zip(columns_of, decode_key(spelled), strict=True)
        return written


def pages_of(source: Rows, entity: CompiledEntity, page_rows: int) -> Iterator[list[RowTree]]:
    after = None
    while trees := source.read_page(entity.plan, after, None, page_rows):
        yield trees
        if len(trees) < page_rows:
            return
        after = entity.source_key(trees[-1])


def parents_first(tables: Collection[TableFacts]) -> list[str]:
    """Tables, each after those its foreign keys refer to; within a circle by name."""
    left = {table.name: {key.table for key in table.foreign_keys} - {table.name} for table in tables}
    ordered: list[str] = []
    while left:
        free = sorted(name for name, parents in left.items() if not parents & left.keys())
        ordered += free or [min(left)]
        left = {name: parents for name, parents in left.items() if name not in ordered}
    return ordered


@dataclass(frozen=True)
class RowState:
    """The intended row by its items: `values`, or none with the reason. `is_there`: the row makes these items."""

    values: Row | None = None
    waits: Waits | None = None
    why: str = ""
    is_there: bool = field(default=False, compare=False)


class _Looks(Struct, frozen=True):
    """Progress of the waiting rows.

    `of`: by missing row, how often all shards had passed that time.
    `passed_at`: time up to which all shards are processed.
    `end`: rows that match their items stop waiting. Only one process may do this: another might be about to
      write older values, and be killed after that.
    """

    of: Mapping[RowId, int] = {}
    passed_at: float = float("-inf")
    end: bool = True


SETTLED = RowState()
"""State of an item alone that was deleted, or now identifies its row."""


@dataclass
class Reverse:
    """Makes rows from the table's writes. `tables`: by written name."""

    inverse: Inverse
    tables: Mapping[str, WrittenTable]
    stored: StoredItems
    rows: RowWriter
    journal: ReverseJournal
    items_by_row: ItemsByRow
    settle_s: float = SETTLE_S
    spellings: Spellings = Spellings()
    worked: int = field(default=0, init=False)

    @cached_property
    def types(self) -> frozenset[str]:
        return frozenset(design.design.type for design in self.inverse.designs)

    @cached_property
    def _place(self) -> dict[str, int]:
        ordered = parents_first([table.facts for table in self.tables.values()])
        return {name: place for place, name in enumerate(ordered)}

    def work(self, records: Sequence[StreamRecord], check: Check) -> None:
        """Process a page of a shard. Row keys are recorded before the first write: a crash repeats it."""
        touched = self._touched(records)
        self._remember(touched)
        self._settle(touched, check, _Looks(end=False))
        self.worked += len(records)

    def again(self, passed_at: float, check: Check) -> int:
        """Check the waiting rows, as the only process; return how many were checked.

        `passed_at`: time up to which all shards are processed. Rows of other tables wait for a process that
          makes them.
        """
        now = self.journal.now()
        waiting = self.journal.waiting(_AT_ONCE, (ITEM_ALONE, *self.tables))
        due = [one for one in waiting if _is_due(one, now, passed_at)]
        if any(map(_wants_another, due)):
            # Rows that swap values of a unique index, or refer to each other, are only written or deleted
            # together.
            due += [one for one in waiting if _wants_another(one) and one not in due]
        looks = {one.row: one.looks + 1 for one in due if one.waits == "gone"}
        self._settle({one.row: () for one in due}, check, _Looks(looks, passed_at))
        return len(due)

    def mend(self, rows: Mapping[RowId, Collection[ItemKey]], check: Check) -> None:
        """Repair rows that differ from their items. `rows`: with known item keys."""
        self._remember(rows)
        self._settle(rows, check, _Looks())

    def known(self, rows: Mapping[RowId, Collection[ItemKey]]) -> dict[RowId, RowState]:
        self._remember(rows)
        return self.states(rows)

    def _remember(self, rows: Mapping[RowId, Collection[ItemKey]]) -> None:
        self.journal.remember({row: keys for row, keys in rows.items() if row[0] != ITEM_ALONE})

    # ── which rows ──

    def _touched(self, records: Sequence[StreamRecord]) -> dict[RowId, set[ItemKey]]:
        touched: dict[RowId, set[ItemKey]] = defaultdict(set)
        keys: set[ItemKey] = set()
        for record in records:
            key = self.inverse.table.key_of(record.keys)
            for image in (record.old, record.new):
                if image is not None and self.is_ours(image):
                    keys.add(key)
                    for row in self._named(image, key):
                        touched[row].add(key)
        for row in self._rows_of(keys):
            touched.setdefault(row, set())
        alone = {row: of for row, of in touched.items() if row[0] == ITEM_ALONE}
        told = {key for row, of in touched.items() if row not in alone for key in of}
        # A fault of an item is reported for its row, if the row is known.
        known = [row for row, of in alone.items() if of <= told or self._rows_of(of)]
        return {row: of for row, of in touched.items() if row not in known}

    def _rows_of(self, keys: Collection[ItemKey]) -> set[RowId]:
        return {row for row in self.journal.rows_of(keys) if row[0] != ITEM_ALONE}

    def is_ours(self, item: Item) -> bool:
        return self.inverse.table.type_of(item) in self.types

    def _named(self, item: Item, key: ItemKey) -> set[RowId]:
        try:
            return set(self.row_parts(item))
        except RowError:
            return {(ITEM_ALONE, item_key_text(key))}

    def row_parts(self, item: Item) -> dict[RowId, RowPart]:
        """Parts of rows to write in one item. Raises: RowError for an item that no row makes."""
        return {
            (table, item_key_text(values)): one
            for (table, values), one in row_parts_of(self.inverse, item).items()
            if table in self.tables
        }

    # ── their intended state ──

    def _settle(self, rows: Mapping[RowId, Collection[ItemKey]], check: Check, looks: _Looks) -> None:
        """Write the rows from their items, then read the items again, as another process may have written
        older values.

        The last one to write reads the current ones. A deleted row's keys go after that read, which needs them.
        `rows`: with known item keys.
        """
        written, deleted = dict[RowId, RowState](), dict[RowId, WaitingRow]()
        for _ in range(_READ_AGAIN):
            states = self.states(rows)
            changed = {row: state for row, state in states.items() if written.get(row) != state}
            if not changed:
                self.journal.forget({row: one for row, one in deleted.items() if states[row].waits == "gone"})
                return
            check()
            deleted |= self._apply(changed, rows, check, looks)
            written |= changed
        self._look_again(changed)

    def _look_again(self, rows: Collection[RowId]) -> None:
        waiting, now = self.journal.waiting_of(rows), self.journal.now()
        self.journal.wait([WaitingRow(row, "changing", now) for row in rows if row not in waiting])

    def states(self, rows: Collection[RowId]) -> dict[RowId, RowState]:
        made = self._made(rows)
        keys = self._keys(rows, made)
        items = self.stored(sorted({key for of in keys.values() for key in of}, key=item_key_text))
        told = {key: self._row_parts_or_error(item) for key, item in items.items() if self.is_ours(item)}
        there: dict[RowId, list[RowPart]] = defaultdict(list)
        for of_item in map(self._row_parts_or_error, (item for of in made.values() for item in of)):
            for row, one in {} if isinstance(of_item, RowError) else of_item.items():
                there[row].append(one)
        return {
            row: self._state(row, [told[key] for key in keys[row] if key in told], there.get(row, ()))
            for row in rows
        }

    def _row_parts_or_error(self, item: Item) -> dict[RowId, RowPart] | RowError:
        try:
            return self.row_parts(item)
        except RowError as error:
            return error

    def _made(self, rows: Collection[RowId]) -> dict[RowId, Collection[Item]]:
        return {
            (table, key): items
            for table, of_table in keys_by_table(rows).items()
            for key, items in self.items_by_row(table, of_table).items()
            if key in of_table
        }

    def _keys(
        self, rows: Collection[RowId], made: Mapping[RowId, Collection[Item]]
    ) -> dict[RowId, set[ItemKey]]:
        keys = self.journal.keys_of([row for row in rows if row[0] != ITEM_ALONE])
        of_rows = {row: {self.inverse.table.key_of(item) for item in items} for row, items in made.items()}
        new = {row: unknown for row, of in of_rows.items() if (unknown := of - keys[row])}
        if new:
            self.journal.remember(new)
        for row, unknown in new.items():
            keys[row] |= unknown
        alone = {row: {item_key_of(row[1], self.inverse.table)} for row in rows if row[0] == ITEM_ALONE}
        return keys | alone

    def _state(
        self, row: RowId, items: Sequence[Mapping[RowId, RowPart] | RowError], made: Sequence[RowPart]
    ) -> RowState:
        holding: list[RowPart] = []
        for told in items:
            if isinstance(told, RowError):
                return RowState(waits="misfit", why=str(told))
            if row in told:
                holding.append(told[row])
        if row[0] == ITEM_ALONE:
            return SETTLED
        if not holding:
            return RowState(waits="gone")
        try:
            values = row_of(self.inverse, row[0], holding)
        except RowError as error:
            return RowState(waits="claims", why=str(error))
        return RowState(values, is_there=self._says(row[0], made, values))

    def _says(self, table: str, made: Sequence[RowPart], values: Row) -> bool:
        """Whether the row's own items agree. A part of a value that no item keeps, such as the bounds of an
        array, stays in a row that is not written."""
        try:
            own = row_of(self.inverse, table, made)
        except RowError:
            return False
        return all(is_same(own[name], value) for name, value in values.items())

    # ── their writes ──

    def _apply(
        self,
        states: Mapping[RowId, RowState],
        rows: Mapping[RowId, Collection[ItemKey]],
        check: Check,
        looks: _Looks,
    ) -> dict[RowId, WaitingRow]:
        before = self.journal.waiting_of(states)
        now = self.journal.now()
        waiting = self._put(states, before, now, check, looks)
        deleted, left = self._delete(states, before, now, check, looks)
        waiting += left
        for row, state in states.items():
            if state.waits in ("misfit", "claims"):
                waiting.append(_again(row, before, now, WaitingRow(row, state.waits, now, state.why)))
        self.journal.wait(waiting)
        # Once more: another process may have forgotten them right before, and their items are looked up
        # again.
        self._remember({one.row: rows[one.row] for one in waiting})
        self.journal.done([row for row, state in states.items() if state == SETTLED and row in before])
        return deleted

    def _put(
        self,
        states: Mapping[RowId, RowState],
        before: Mapping[RowId, WaitingRow],
        now: float,
        check: Check,
        looks: _Looks,
    ) -> list[WaitingRow]:
        changes = {row: self._change(row, state.values) for row, state in states.items() if state.values}
        others = [row for row in changes if not states[row].is_there]
        refused = self._written(sorted(others, key=self._order), changes, check)
        waiting = [
            _again(row, before, now, WaitingRow(row, "refused", now, kind)) for row, kind in refused.items()
        ]
        settled = [row for row in changes if row in before and row not in refused]
        if looks.end:
            self.journal.done(settled)
            return waiting
        return waiting + [WaitingRow(row, "changing", now) for row in settled]

    def _delete(
        self,
        states: Mapping[RowId, RowState],
        before: Mapping[RowId, WaitingRow],
        now: float,
        check: Check,
        looks: _Looks,
    ) -> tuple[dict[RowId, WaitingRow], list[WaitingRow]]:
        gone = [row for row, state in states.items() if state.waits == "gone"]
        sure = [row for row in gone if looks.of.get(row, 0) >= _LOOKS]
        changes = {row: self._change(row, None) for row in sure}
        refused = self._written(sorted(sure, key=self._order, reverse=True), changes, check)
        settled_at = max(now, looks.passed_at) + self.settle_s
        waiting = [
            WaitingRow(row, "gone", settled_at, looks=looks.of.get(row, 0)) for row in gone if row not in sure
        ]
        for row, kind in refused.items():
            one = _again(row, before, now, WaitingRow(row, "gone", now, kind))
            waiting.append(replace(one, looks=_LOOKS - 1))
        return {row: before[row] for row in sure if row in before and row not in refused}, waiting

    def _written(
        self, ordered: Sequence[RowId], changes: Mapping[RowId, IntendedRow], check: Check
    ) -> dict[RowId, str]:
        """Refused rows with reasons. Those refused by a foreign key are retried while others succeed."""
        refused: dict[RowId, str] = {}
        left = list(ordered)
        while left:
            row_of = {id(changes[row]): row for row in left}
            answers: list[RefusedChange] = self.rows.write([changes[row] for row in left], check)
            kinds = {row_of[id(answer.change)]: answer.kind for answer in answers}
            refused = {row: kind for row, kind in refused.items() if row not in left} | kinds
            again = [row for row in left if kinds.get(row) == "foreign key"]
            left = again if len(again) < len(left) else []
        return refused

    def _change(self, row: RowId, values: Row | None) -> IntendedRow:
        table = self.tables[row[0]]
        given = table.row_key(row[1]) if values is None else values
        written = self.spellings.written(table, given, self.tables)
        key = {name: written[name] for name in table.key}
        return IntendedRow(table.facts, key, None if values is None else written)

    def _order(self, row: RowId) -> tuple[int, RowId]:
        return self._place[row[0]], row


def _is_due(one: WaitingRow, now: float, passed_at: float) -> bool:
    """A pause longer than any comes from a host whose clock was ahead."""
    if one.waits == "gone":
        return one.due_at <= passed_at
    return not now < one.due_at <= now + _LONGEST_PAUSE_S


def _wants_another(one: WaitingRow) -> bool:
    return one.waits in ("refused", "gone") and one.why in ("unique", "foreign key")


def _again(row: RowId, before: Mapping[RowId, WaitingRow], now: float, one: WaitingRow) -> WaitingRow:
    known = before.get(row)
    tries = known.tries + 1 if known and known.waits == one.waits else 1
    return replace(one, tries=tries, due_at=now + min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (tries - 1)))
