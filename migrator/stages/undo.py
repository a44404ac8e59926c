"""Undo: the items that a job wrote, counted or deleted again, told by the `_src` that each of them carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from migrator.mapping.keys import split_source
from migrator.model import Item, TableDesign
from migrator.ports import ItemStore
from migrator.ports.live import Writer
from migrator.results import UndoCounts
from migrator.stages.segments import TableWalk


class AnyRevision:
    """ports.revisions.Revisions of an undo: it deletes by `_src` alone, so no mapping makes what it does wrong."""

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
