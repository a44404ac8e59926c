"""Undo and strip: delete the items that a job wrote, or our attributes and control items, from the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from threading import Event, Lock

from migrator.model.edges import ItemStore, Stripping
from migrator.model.journal import Journal, Run, SegmentState
from migrator.model.keys import split_source
from migrator.model.live import Writer
from migrator.model.results import UndoCounts
from migrator.model.table import Item, TableDesign
from migrator.stages.parallel import TableWalk

# ──
# Undo: the items that a job wrote, counted or deleted again, told by the `_src` that each of them carries.


class AnyRevision:
    """model.instances.Revisions of an undo: it deletes by `_src` alone, so no mapping makes what it does wrong."""

    def enter(self, writer: Writer) -> None:
        return

    def leave(self, writer: Writer) -> None:
        return

    def is_old(self) -> bool:
        return False

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        return []


@dataclass
class Undo:
    """Looks at every item of the table, a segment at a time; those whose `_src` names one of `entities` are ours.

    Tombstones stay until they expire: without them, what is still on its way could come after the delete.
    `check` is called before each delete and raises when the run must stop.
    """

    store: ItemStore
    table: TableDesign
    entities: frozenset[str]
    check: Callable[[], None]
    segments: int = 4
    workers: int = 4
    stop: Event = field(default_factory=Event)
    gone: int = 0
    """How many items were deleted by now."""
    _lock: Lock = field(default_factory=Lock)

    def count(self) -> UndoCounts:
        """What a delete would take away: `types` per (entity, item type); `gone` is 0."""
        return self._all(self._count_segment)

    def delete(self) -> UndoCounts:
        """Deletes what is ours. An item whose `_src` changes before its delete stays, so `gone` can be fewer.

        Raises: StoppedError when the table gave up, Interrupted after `stop`; the same call again deletes the rest.
        """
        return self._all(self._delete_segment)

    @property
    def _walk(self) -> TableWalk:
        stopped = "stopped; the same command goes on"
        return TableWalk(self.store, self.segments, self.workers, self.stop, stopped)

    def _all(self, segment: Callable[[int], UndoCounts]) -> UndoCounts:
        found = UndoCounts()
        for one in self._walk.each(segment):
            found = found + one
        return found

    def _count_segment(self, number: int) -> UndoCounts:
        return self._segment(number, lambda items: 0)

    def _delete_segment(self, number: int) -> UndoCounts:
        return self._segment(number, self._delete)

    def _segment(self, number: int, work: Callable[[list[Item]], int]) -> UndoCounts:
        found = UndoCounts()
        for page in self._walk.pages(number):
            items = [item for item in page.items if not self.table.is_hidden(item)]
            ours = [item for item in items if self._entity(item) in self.entities]
            types = Counter((self._entity(item), self.table.type_of(item)) for item in ours)
            found = found + UndoCounts(types, work(ours), len(items) - len(ours))
        return found

    def _delete(self, items: list[Item]) -> int:
        self.check()
        gone = self.store.delete_own(items)
        with self._lock:
            self.gone += gone
        return gone

    def _entity(self, item: Item) -> str:
        """The entity that wrote the item; '' for an item of somebody else's."""
        try:
            return split_source(str(item.get(self.table.source_attribute, "")))[0]
        except ValueError:
            return ""


# ──
# Strip: our own attributes and items taken out of the table, once nothing of ours works on it any more.


@dataclass(frozen=True)
class StripCounts:
    """`items` of ours that carry our attributes, of which `stripped` are rid of them; `own`: tombstones and the control
    item, of which `removed` are gone; `others`: items that are left alone."""

    items: int = 0
    stripped: int = 0
    own: int = 0
    removed: int = 0
    others: int = 0

    def __add__(self, other: StripCounts) -> StripCounts:
        return StripCounts(
            self.items + other.items,
            self.stripped + other.stripped,
            self.own + other.own,
            self.removed + other.removed,
            self.others + other.others,
        )


@dataclass
class Strip:
    """Looks at every item, a segment at a time. `check` raises when the run must stop."""

    store: ItemStore
    stripping: Stripping
    table: TableDesign
    entities: frozenset[str]
    check: Callable[[], None]
    segments: int = 4
    workers: int = 4
    stop: Event = field(default_factory=Event)

    def count(self) -> StripCounts:
        return self._all(self._count_segment)

    def run(self, journal: Journal, run: Run) -> StripCounts:
        """Strips what is not stripped yet. What changes meanwhile is somebody else's, and stays.

        Raises: StoppedError when the table gave up, Interrupted after `stop`; the same run goes on later.
        """
        return self._all(lambda number: self._strip_segment(journal, run, number))

    @property
    def _walk(self) -> TableWalk:
        stopped = "stopped; what is stripped stays so, and the same command goes on from there"
        return TableWalk(self.store, self.segments, self.workers, self.stop, stopped)

    def _all(self, segment: Callable[[int], StripCounts]) -> StripCounts:
        found = StripCounts()
        for one in self._walk.each(segment):
            found = found + one
        return found

    def _count_segment(self, number: int) -> StripCounts:
        found = StripCounts()
        for page in self._walk.pages(number):
            ours, own, others = self._sorted(page.items)
            found = found + StripCounts(items=len(ours), own=len(own), others=others)
        return found

    def _strip_segment(self, journal: Journal, run: Run, number: int) -> StripCounts:
        state = journal.segment(run, number)
        found = StripCounts(**state.tally)
        if state.done:
            return found
        for page in self._walk.pages(number, state.start):
            self.check()
            ours, own, others = self._sorted(page.items)
            stripped, removed = self.stripping.strip(ours), self.stripping.remove(own)
            found = found + StripCounts(len(ours), stripped, len(own), removed, others)
            # After the writes: a crash between them looks at a page again, where nothing is left to strip.
            done = SegmentState(page.next_start, page.next_start is None, asdict(found))
            journal.save_segment(run, number, done, [])
        return found

    def _sorted(self, items: list[Item]) -> tuple[list[Item], list[Item], int]:
        """Items of ours, items that are our own, and how many are others'."""
        own = [item for item in items if self.table.is_hidden(item)]
        ours = [item for item in items if not self.table.is_hidden(item) and self._is_ours(item)]
        return ours, own, len(items) - len(own) - len(ours)

    def _is_ours(self, item: Item) -> bool:
        try:
            return split_source(str(item.get(self.table.source_attribute, "")))[0] in self.entities
        except ValueError:
            return False
