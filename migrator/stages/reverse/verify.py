"""Rows compared in both directions with those that the table's items make: the differences, and their repair."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from threading import Event
from typing import Any

from migrator.mapping.inverse.rows import RowPart, is_same
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.values import NoFormError, decoder
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import Column, EntityPlan, Slot, attributes_of
from migrator.mapping.model.journal import Progress, Tally
from migrator.mapping.model.live import (
    MOST,
    Check,
    Row,
    RowDifference,
    RowDifferenceKind,
    RowId,
    RowsVerified,
    Unkept,
)
from migrator.mapping.model.mapping import Entity
from migrator.mapping.model.table import Item, ItemKey, RowTree, SourceKey, item_key_text
from migrator.mapping.patterns.diff import differences
from migrator.runtime.errors import Interrupted, RowError
from migrator.stages.reverse.stage import (
    ITEM_ALONE,
    ReadRows,
    Reverse,
    RowState,
    WrittenTable,
    items_by_row,
    items_made,
    keys_by_table,
    pages_of,
    parents_first,
    row_key,
)

KEPT = 1000
"""Differences of which the keys are kept; the others are counted."""
_AT_ONCE = 500
_TOGETHER = 20_000
"""Rows in doubt that are repaired parents first."""
TABLE = "(table)"


Doubts = dict[RowId, set[ItemKey]]
"""Rows that may differ, each with keys of items that are known to hold it."""


@dataclass
class RowVerify:
    """Compares the rows of the tables that `stage` writes with the items of `pages`.

    `stop` ends it between two pages, with Interrupted.
    `clock`: monotonic seconds.
    `settle_s`: delay before a difference is checked again, since a row follows its items a moment later.
    """

    stage: Reverse
    source: Rows
    entities: Sequence[CompiledEntity]
    pages: Callable[[], Iterator[Sequence[Item]]]
    stop: Event
    clock: Callable[[], float]
    progress: Progress
    page_rows: int
    settle_s: float
    _rows: Counter[str] = field(default_factory=Counter, init=False)
    _items: int = field(default=0, init=False)
    _seen_at: float = field(default=0.0, init=False)
    _reported: set[RowId] = field(default_factory=set, init=False)
    _differences: list[RowDifference] = field(default_factory=list, init=False)
    _counts: Counter[tuple[str, RowDifferenceKind]] = field(default_factory=Counter, init=False)
    _extra: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    _forms: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)

    @cached_property
    def by_key(self) -> ReadRows:
        return partial(self.stage.spellings.read_rows, self.source)

    @cached_property
    def _made_by_rows(self) -> frozenset[tuple[str, str]]:
        """Types and attributes that rows make."""
        designs = self.stage.inverse.designs
        return frozenset(
            (one.design.type, name) for one in designs for name in attributes_of(one.plan, one.design)
        )

    def run(self) -> RowsVerified:
        """Differences that persist after `settle_s`. Raises: Interrupted, StoppedError, SourceError."""
        doubts: Doubts = {}
        for page in self._doubts():
            for row, keys in page.items():
                doubts.setdefault(row, set()).update(keys)
            self._seen_at = self.clock() if page else self._seen_at
            if len(doubts) >= _AT_ONCE:
                self._confirm(doubts)
                doubts = {}
            if len(self._reported) >= MOST:
                break
        self._confirm(doubts)
        is_cut = len(self._reported) >= MOST
        return RowsVerified(
            *(self._rows, self._items, dict(self._counts), tuple(self._differences)),
            is_cut=is_cut,
            unkept=Unkept(self._extra, self._forms),
        )

    def unkept(self) -> Unkept:
        """Attributes that no row keeps. Reads the table, and the rows that its items name."""
        for items in self.pages():
            self._check()
            self._of_items(items)
        return Unkept(self._extra, self._forms)

    def repair(self, check: Check, *, deletes: bool) -> int:
        """Write each differing row from its items; return how many were checked.

        Deletes wait until `ReverseDaemon` has seen all shards pass. `run` reports the remaining differences.
        `check`: called before each write; raises if this process must stop writing.
        `deletes`: also delete rows without items, which may never have had one.
        """

        def may_write() -> None:
            self._check()
            check()

        mended, doubts = 0, Doubts()
        for page in self._doubts():
            _add(doubts, page if deletes else self._held(page))
            if len(doubts) >= _TOGETHER:
                mended += self._repair(doubts, may_write)
                doubts = {}
        return mended + self._repair(doubts, may_write)

    def _held(self, doubts: Doubts) -> Doubts:
        states = self.stage.known(doubts)
        return {row: keys for row, keys in doubts.items() if states[row].waits != "gone"}

    def _repair(self, doubts: Doubts, check: Check) -> int:
        """Number of repaired rows. A row without its parent is refused, and pages have rows in any order."""
        names = parents_first([table.facts for table in self.stage.tables.values()])
        place = {name: number for number, name in enumerate(names)}
        ordered = sorted(doubts, key=lambda row: (place.get(row[0], -1), row))
        for begin in range(0, len(ordered), _AT_ONCE):
            rows = ordered[begin : begin + _AT_ONCE]
            self.stage.mend({row: doubts[row] for row in rows}, check)
        return len(doubts)

    def _check(self) -> None:
        if self.stop.is_set():
            raise Interrupted("stopped; what was compared by then is not kept, and what was repaired is")

    # ── pages of both sides ──

    def _doubts(self) -> Iterator[Doubts]:
        """The table first: rows with items must be known before a row counts as one without."""
        self.progress.entity_started(TABLE, 0, 0)
        for number, items in enumerate(self.pages()):
            self._check()
            self._items += len(items)
            yield self._of_items(items)
            self.progress.page_done(TABLE, number, Tally(rows=len(items), items=len(items)), 0)
        self.progress.entity_done(TABLE)
        for entity in self.entities:
            self.progress.entity_started(entity.name, 0, self.source.rows_expected(entity.plan))
            for number, trees in enumerate(pages_of(self.source, entity, self.page_rows)):
                self._check()
                self._rows[entity.name] += len(trees)
                yield self._of_rows(entity, trees)
                self.progress.page_done(entity.name, number, Tally(rows=len(trees)), 0)
            self.progress.entity_done(entity.name)

    def _of_rows(self, entity: CompiledEntity, trees: Sequence[RowTree]) -> Doubts:
        """Doubts of a page of rows: those with missing items, or items that contradict any row."""
        doubts: Doubts = {}
        made: dict[ItemKey, Item] = {}
        for tree in trees:
            items = items_made(entity, tree)
            if not items:
                doubts[(entity.plan.table.name, row_key(entity, tree))] = set()
            made |= {self.stage.inverse.table.key_of(item): item for item in items}
        stored = self.stage.stored(sorted(made, key=item_key_text))
        for key, item in made.items():
            _add(doubts, self._differing(key, item, stored.get(key)))
        return doubts

    def _of_items(self, items: Sequence[Item]) -> Doubts:
        """Doubts of a page of the table: missing rows, and rows that do not make the current item."""
        doubts: Doubts = {}
        stored: dict[ItemKey, Item] = {}
        keys: dict[str, set[SourceKey]] = defaultdict(set)
        for item in filter(self.stage.is_ours, items):
            key = self.stage.inverse.table.key_of(item)
            try:
                for table, row in self.stage.row_parts(item):
                    keys[table].add(row)
            except RowError:
                doubts[(ITEM_ALONE, item_key_text(key))] = {key}
            else:
                stored[key] = item
        made = {
            self.stage.inverse.table.key_of(item): item
            for table, rows in keys.items()
            for of_row in items_by_row(self.by_key, self.entities, table, sorted(rows)).values()
            for item in of_row
        }
        for key, item in stored.items():
            differing = self._differing(key, made.get(key), item)
            if not differing and key in made:
                self._count_unkept(made[key], item)
            _add(doubts, differing)
        return doubts

    def _count_unkept(self, made: Item, item: Item) -> None:
        """Count differences of two items of the same row. Attributes only in `made` do not count."""
        table = self.stage.inverse.table
        for one in differences(made, item, frozenset({*table.own_attributes, *table.kept})):
            counted = (table.type_of(item), one.attribute)
            # A row makes no attribute of a NULL, so it keeps one that is NULL.
            is_null = item.get(one.attribute) is None and counted in self._made_by_rows
            if one.kind != "missing" and not (is_null and one.kind == "unexpected"):
                counts = self._extra if one.kind == "unexpected" else self._forms
                counts[counted] += 1

    def _differing(self, key: ItemKey, made: Item | None, stored: Item | None) -> Doubts:
        wanted, there = self._row_parts(made), self._row_parts(stored)
        if there is None:
            return {row: {key} for row in wanted or {}} | {(ITEM_ALONE, item_key_text(key)): {key}}
        rows = (wanted or {}).keys() | there.keys()
        return {row: {key} for row in rows if not _says_same((wanted or {}).get(row), there.get(row))}

    def _row_parts(self, item: Item | None) -> Mapping[RowId, RowPart] | None:
        if item is None or not self.stage.is_ours(item):
            return {}
        try:
            return self.stage.row_parts(item)
        except RowError:
            return None

    # ── a row in doubt ──

    def _confirm(self, doubts: Doubts) -> None:
        if doubts:
            self.stop.wait(max(0.0, self._seen_at + self.settle_s - self.clock()))
            self._check()
        for difference in self._looked_at({row: doubts[row] for row in doubts.keys() - self._reported}):
            self._reported.add((difference.table, difference.key))
            self._counts[difference.table, difference.kind] += 1
            if len(self._differences) < KEPT:
                self._differences.append(difference)

    def _looked_at(self, doubts: Doubts) -> Iterator[RowDifference]:
        states = self.stage.known(doubts)
        rows = sorted(states)
        there = rows_there(self.by_key, self.stage, rows)
        left_out = self._left_out([row for row in rows if states[row].waits == "gone" and row in there])
        for row in rows:
            told = None if row in left_out else _difference(states[row], there.get(row))
            if told is not None:
                yield RowDifference(told[0], row[0], row[1], told[1])

    def _left_out(self, rows: Sequence[RowId]) -> set[RowId]:
        """Rows excluded by the entity's `where`, which no item may have."""
        own = {entity.plan.table.name for entity in self.entities}
        return {
            (table, key)
            for table, keys in keys_by_table(row for row in rows if row[0] in own).items()
            for key in set(keys) - items_by_row(self.by_key, self.entities, table, keys).keys()
        }


def _add(doubts: Doubts, more: Doubts) -> None:
    for row, keys in more.items():
        doubts.setdefault(row, set()).update(keys)


def _says_same(one: RowPart | None, other: RowPart | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.row.keys() == other.row.keys() and not _different_columns(one.row, other.row)


def _different_columns(values: Row, others: Row) -> list[str]:
    return sorted(name for name in values if not is_same(values[name], others[name]))


def _difference(state: RowState, row: Row | None) -> tuple[RowDifferenceKind, str] | None:
    if state.waits == "gone":
        return None if row is None else ("no item", "")
    if state.waits in ("misfit", "claims"):
        return ("misfit" if state.waits == "misfit" else "claims"), state.why
    if state.values is None:
        return None
    if row is None:
        return "no row", ""
    columns = _different_columns(state.values, row)
    return ("different", ", ".join(columns)) if columns else None


# ── rows as they are ──


def rows_there(read_rows: ReadRows, stage: Reverse, rows: Collection[RowId]) -> dict[RowId, Row]:
    """The rows with the columns in items, each value in the decoded form of the core."""
    there: dict[RowId, Row] = {}
    for table, keys in keys_by_table(rows).items():
        written = stage.tables[table]
        plan = _plan(written, stage.inverse.recovered[table])
        for tree in read_rows(plan, keys):
            raw = {slot.path: value for slot, value in zip(plan.slots, tree, strict=True)}
            row = {slot.path: _decoded(slot.column, raw[slot.path]) for slot in plan.slots}
            values = [raw[name] if row[name] is _REFUSED else row[name] for name in written.key]
            there[(table, item_key_text(values))] = row
    return there


def _plan(table: WrittenTable, names: Collection[str]) -> EntityPlan:
    facts = table.facts
    columns = [column for column in facts.columns if column.name in {*names, *table.key}]
    key = tuple(column for name in table.key if (column := facts.column(name)) is not None)
    slots = tuple(Slot(column.name, "", column) for column in columns)
    return EntityPlan(Entity(facts.name, facts.name, ()), facts, key, slots)


def _decoded(column: Column, raw: Any) -> Any:
    try:
        return decoder(column.kind)(raw)
    except NoFormError as error:
        return error.text
    except RowError:
        return _REFUSED


_REFUSED = object()
