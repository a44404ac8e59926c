"""A small relational database in memory: transactions, row locks, one unique column, marks and tickets beside the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent

from migrator.mapping.model.edges import WholeRows
from migrator.mapping.model.facts import Captured, EntityPlan, Lookup
from migrator.mapping.model.live import TICKETS_AN_EPOCH, Change, Mark, MarksState, Root
from migrator.mapping.model.table import ItemKey, RowTree, SourceKey, decode_key, encode_key
from migrator.runtime.errors import HiddenRowsError
from migrator.runtime.values import replace
from tests.simulation.scheduler import Scheduler

Row = dict[str, Any]
Tables = dict[str, dict[int, Row]]
RowId = tuple[str, int]
Saved = tuple[Tables, dict[int, "Kept"], int, int]


class RolledBack(Exception):
    """The transaction came to nothing."""


@dataclass
class Kept:
    """A mark as it lies in the database."""

    mark: Mark
    ready_at: float = 0.0
    leased_until: float = 0.0


@dataclass
class Database:
    """`unique`: names are one owner's alone. `images`: the columns that a mark holds, per table.

    `hidden`: rows that a policy hides from our readers, though not from the service.
    """

    schedule: Scheduler
    captured: Mapping[str, Captured]
    unique: bool = True
    tables: Tables = field(default_factory=lambda: {"owner": {}, "pet": {}})
    marks: dict[int, Kept] = field(default_factory=dict)
    epoch: int = 0
    number: int = 0
    next_mark: int = 0
    locks: dict[Any, object] = field(default_factory=dict)
    hidden: frozenset[RowId] = frozenset()
    restores: int = 0
    """Counts restores: all connections are cut off."""
    unread: set[Any] = field(default_factory=set)
    """Actors that have drawn a ticket, and may not have read all that they write with it."""

    # ── policies ──

    def admit(self, plan: EntityPlan) -> None:
        """What PostgreSQL does for a reader that has row security off.

        Raises: HiddenRowsError where a policy would leave out rows of a table that the plan reads.
        """
        if self.hidden and {table for table, _ in self.hidden} & set(_read_by(plan)):
            raise HiddenRowsError("a policy would hide rows")

    # ── tickets ──

    def draw(self) -> int:
        self.schedule.step()
        self.number += 1
        self.unread.add(getcurrent())
        return self.epoch * TICKETS_AN_EPOCH + self.number

    def highest(self) -> int:
        return self.epoch * TICKETS_AN_EPOCH + self.number

    def generation(self) -> tuple[str, int]:
        return "simulated", self.epoch

    def raise_epoch(self, above: int) -> int:
        self.epoch = above // TICKETS_AN_EPOCH + 1
        self.number = 0
        return self.epoch

    # ── marks ──

    def take(self, count: int, lease_s: float) -> list[Mark]:
        self.schedule.step()
        now, ripe = self.schedule.now_s, self.free()
        # Not the oldest first: a fault that shows in one order only must show.
        chosen = self.schedule.random.sample(ripe, min(len(ripe), count))
        for kept in chosen:
            kept.leased_until = now + lease_s
        return [kept.mark for kept in chosen]

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        self.schedule.step()
        marks = [kept.mark for kept in (self.free() if free else self.marks.values())]
        return sorted((mark for mark in marks if mark.id > after), key=lambda mark: mark.id)[:count]

    def free(self) -> list[Kept]:
        now = self.schedule.now_s
        return [kept for kept in self.marks.values() if kept.ready_at <= now and kept.leased_until <= now]

    def from_the_first(self) -> None:
        """Every take looks at all of them."""

    def pending(self) -> Mapping[int, Kept]:
        """All marks of what was committed."""
        return self.marks

    def committed(self, changes: Mapping[RowId, Row | None], marks: Sequence[Mark]) -> None:
        """What a commit does."""
        for (table, key), row in changes.items():
            if row is None:
                self.tables[table].pop(key, None)
            else:
                self.tables[table][key] = row
        for mark in marks:
            self.keep(Kept(mark))

    def finish(self, ids: Sequence[int]) -> int:
        self.has_read()
        self.schedule.step()
        return sum(self.marks.pop(number, None) is not None for number in ids)

    def advance(self, mark: Mark, cursor: str) -> None:
        self.schedule.step()
        kept = self.marks.pop(mark.id, None)
        if kept is not None:
            self.keep(Kept(replace(kept.mark, id=self.new_id(), cursor=cursor), kept.ready_at))

    def release(self, ids: Sequence[int]) -> None:
        self.schedule.step()
        for number in ids:
            if number in self.marks:
                self.marks[number].leased_until = 0.0

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        self.schedule.step()
        for number in ids:
            if number in self.marks:
                kept = self.marks[number]
                kept.mark = replace(kept.mark, tries=kept.mark.tries + 1)
                kept.ready_at, kept.leased_until = self.schedule.now_s + wait_s, 0.0

    def discard_failed(self, tries: int) -> int:
        failed = [number for number, kept in self.marks.items() if kept.mark.tries >= tries]
        self.finish(failed)
        return len(failed)

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        self.schedule.step()
        for root, keys in roots.items():
            self.keep(Kept(Mark(self.new_id(), root=root, keys=tuple(keys))))

    def state(self) -> MarksState:
        return MarksState(waiting=len(self.marks))

    def new_id(self) -> int:
        self.next_mark += 1
        return self.next_mark

    def keep(self, kept: Kept) -> None:
        self.marks[kept.mark.id] = kept

    def pre_mark(self, changes: Sequence[Change], wait_s: float) -> list[Mark]:
        # On a connection of its own: others see them from here on.
        marks = self.shown(changes)
        for mark in marks:
            self.keep(Kept(mark, ready_at=self.schedule.now_s + wait_s))
        self.schedule.step()
        return marks

    def shown(self, changes: Sequence[Change]) -> list[Mark]:
        return [Mark(self.new_id(), change.table, change.before, change.after) for change in changes]

    # ── a state to go back to ──

    def saved(self) -> Saved:
        return copy.deepcopy((self.tables, self.marks, self.epoch, self.number))

    def restore(self, saved: Saved) -> None:
        self.tables, self.marks, self.epoch, self.number = copy.deepcopy(saved)
        self.locks.clear()
        self.restores += 1

    def has_read(self) -> None:
        self.unread.discard(getcurrent())

    def is_between_draw_and_read(self) -> bool:
        """A restore to such a moment is one that no ticket tells of (see docs/protocol.md, "What remains")."""
        self.unread = {unread for unread in self.unread if unread}
        return bool(self.unread)


@dataclass
class Transaction:
    """Rows as its owner sees them: what is committed now, under its own changes (read committed)."""

    database: Database
    changes: dict[RowId, Row | None] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    generation: int = -1

    def __post_init__(self) -> None:
        self.generation = self.database.restores

    def refuse_cut_off(self) -> None:
        if self.generation != self.database.restores:
            raise RolledBack

    def row(self, row_id: RowId) -> Row | None:
        if row_id in self.changes:
            return self.changes[row_id]
        return self.database.tables[row_id[0]].get(row_id[1])

    def rows(self, table: str) -> list[tuple[int, Row]]:
        committed = self.database.tables[table]
        own = {key for name, key in self.changes if name == table}
        if not own:
            return sorted(committed.items())
        rows = ((key, self.row((table, key))) for key in sorted(committed.keys() | own))
        return [(key, row) for key, row in rows if row is not None]

    def write(self, table: str, key: int, row: Row | None) -> None:
        """One INSERT, UPDATE or DELETE with its mark. Raises: RolledBack where the lock or the name is another's."""
        row_id = (table, key)
        self.refuse_cut_off()
        self._lock(row_id)
        if row is not None and table == "owner" and self.database.unique:
            self._lock_name(key, row["name"])
        before = self.row(row_id)
        if before == row:
            return
        self.changes[row_id] = row
        captured = self.database.captured[table]
        self.marks.append(
            Mark(self.database.new_id(), table, _image(captured, before), _image(captured, row))
        )
        if row is None and table == "owner":
            for pet, child in self.rows("pet"):
                if child["owner_id"] == key:
                    self.write("pet", pet, None)

    def commit(self, with_marks: Callable[[Iterable[Mark]], Iterable[Mark]] = lambda marks: marks) -> None:
        self.refuse_cut_off()
        self.database.committed(self.changes, list(with_marks(self.marks)))
        self.release()

    def release(self) -> None:
        for lock in self.held:
            # A restore frees all locks: what a transaction of before held may be another's now.
            if self.database.locks.get(lock) is self:
                del self.database.locks[lock]
        self.held.clear()

    def _lock(self, what: Any) -> None:
        locks = self.database.locks
        for _ in range(20):
            if locks.get(what, self) is self:
                break
            self.database.schedule.step()
        else:
            raise RolledBack
        if what not in locks:
            locks[what] = self
            self.held.append(what)

    def _lock_name(self, key: int, name: str | None) -> None:
        if name is None:
            return
        self._lock(("name", name))
        before = self.database.tables["owner"].get(key)
        if before is not None:
            self._lock(("name", before["name"]))
        if any(row["name"] == name for other, row in self.rows("owner") if other != key):
            raise RolledBack


def _read_by(plan: EntityPlan) -> Iterator[str]:
    yield plan.table.real
    yield from (join.table.real for join in plan.joins)
    yield from (collection.table.real for collection in plan.collections)


def _image(captured: Captured, row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in captured.columns}


@dataclass
class Reader(WholeRows):
    """The reading side of the source; `transaction`: the one whose uncommitted changes it sees. `sees_all`: no policy
    hides rows from it."""

    database: Database
    transaction: Transaction | None = None
    sees_all: bool = False

    def __post_init__(self) -> None:
        self._seen = self.transaction or Transaction(self.database)

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        view = self._begun(plan)
        wanted = sorted({decode_key(key)[0] for key in keys})
        return [tree for key in wanted if (tree := self._tree(view, plan, key)) is not None]

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        view = self._begun(plan)
        low = 0 if after is None else decode_key(after)[0]
        high = 10**9 if upto is None else decode_key(upto)[0]
        keys = [key for key, _ in self._rows(view, plan.table.real) if low < key <= high]
        return [tree for key in keys if (tree := self._tree(view, plan, key)) is not None]

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        view = self._begun(plan)
        low = 0 if after is None else decode_key(after)[0]
        keys = [
            encode_key([key])
            for key, row in self._rows(view, plan.table.real)
            if key > low
            and tuple(row[name] for name in lookup.columns) in {tuple(value_tuple) for value_tuple in values}
        ]
        return keys[:limit]

    def _begun(self, plan: EntityPlan) -> Transaction:
        self.database.schedule.step()
        self.database.admit(plan)
        return self._view()

    def _view(self) -> Transaction:
        if self.transaction is not None:
            self.transaction.refuse_cut_off()
        return self._seen

    def _row(self, view: Transaction, row_id: RowId) -> Row | None:
        return None if row_id in self._hidden else view.row(row_id)

    def _rows(self, view: Transaction, table: str) -> list[tuple[int, Row]]:
        hidden = self._hidden
        return [row for row in view.rows(table) if not hidden or (table, row[0]) not in hidden]

    @property
    def _hidden(self) -> frozenset[RowId]:
        return frozenset() if self.sees_all else self.database.hidden

    def _tree(self, view: Transaction, plan: EntityPlan, key: int) -> RowTree | None:
        root = self._row(view, (plan.table.real, key))
        if root is None:
            return None
        aliases: dict[str, Row] = {"": root}
        for join in plan.joins:
            theirs, _ = join.on[0]
            row_id = (join.table.real, aliases[join.parent].get(theirs) or 0)
            aliases[join.alias] = self._row(view, row_id) or {}
        slots = tuple(aliases[slot.alias].get(slot.column.real) for slot in plan.slots)
        counts = tuple(
            sum(row[collection.link[0][0]] == key for _, row in self._rows(view, collection.table.real))
            for collection in plan.collections
        )
        return (*slots, *counts)
