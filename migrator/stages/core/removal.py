"""Undo and strip: remove a job's items, or our own attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import ItemStore, Stripping
from migrator.mapping.model.journal import Run
from migrator.mapping.model.live import Root, Writer
from migrator.mapping.model.results import UndoCounts
from migrator.mapping.model.table import Item, TableDesign
from migrator.stages.core.parallel import TableWalk

# ── Undo: counts or deletes the items that a job wrote, recognised by their `_src` ──


class AnyRevision:
    """Revisions of an undo, which deletes by `_src` alone and so is right under any mapping."""

    def enter(self, writer: Writer) -> None:
        return

    def leave(self, writer: Writer) -> None:
        return

    def is_old(self) -> bool:
        return False

    def old(self, writers: Sequence[Writer]) -> list[Writer]:
        return []


@dataclass
class OwnItems:
    """The table's items, read by segment. Those with `_src` of one of `entities` belong to the job.

    `check`: called before each page is changed; raises when the run must stop.
    """

    store: ItemStore
    table: TableDesign
    entities: frozenset[str]
    check: Callable[[], None]
    segments: int = 4
    workers: int = 4
    stop: Event = field(default_factory=Event)

    def walk(self, stopped: str) -> TableWalk:
        return TableWalk(self.store, self.segments, self.workers, self.stop, stopped)

    def root(self, item: Item) -> Root | None:
        """Return the row of the job's item or tombstone; None for any other item."""
        root = self.table.root_of(item)
        return root if root is not None and root[0] in self.entities else None


@dataclass
class Undo(OwnItems):
    """Tombstones stay until they expire, so that late writes cannot follow the delete."""

    gone: int = 0
    """How many items were deleted by now."""
    _lock: Lock = field(default_factory=Lock)

    def count(self) -> UndoCounts:
        """Count the items that a delete would remove; `gone` is 0."""
        return self._all(lambda items: 0)

    def delete(self) -> UndoCounts:
        """Delete the job's items. An item whose `_src` changes first stays and is not in `gone`.

        Raises: StoppedError, Interrupted; the same call again deletes the rest.
        """
        return self._all(self._delete)

    def _all(self, work: Callable[[list[Item]], int]) -> UndoCounts:
        walk = self.walk("stopped; the same command resumes")
        counted = walk.total(lambda page: self._page(page, work))
        gone, others = counted.pop(_GONE, 0), counted.pop(_OTHERS, 0)
        return UndoCounts(counted, gone, others)

    def _page(self, page: list[Item], work: Callable[[list[Item]], int]) -> Counter[tuple[str, str]]:
        items = [item for item in page if not self.table.is_hidden(item)]
        roots = [(item, root) for item in items if (root := self.root(item)) is not None]
        ours = [item for item, _ in roots]
        types = Counter((entity, self.table.type_of(item)) for item, (entity, _) in roots)
        return types + Counter({_GONE: work(ours), _OTHERS: len(items) - len(ours)})

    def _delete(self, items: list[Item]) -> int:
        self.check()
        gone = self.store.delete_own(items)
        with self._lock:
            self.gone += gone
        return gone


_GONE, _OTHERS = ("", "gone"), ("", "others")
"""Counted in addition to entities and types of items; no entity is ''."""


# ── Strip: removes our own attributes and items from the table, once no process of migrator uses it ──


STRIP_COUNTS = ("items", "stripped", "own", "removed", "others")
"""`items`: those with our attributes; `stripped` of them lost these.
`own`: tombstones and the control item; `removed` of them were deleted.
`others`: untouched items.
"""


@dataclass
class Strip(OwnItems):
    stripping: Stripping = field(kw_only=True)

    def count(self) -> Counter[str]:
        return self._walk.total(self._counted)

    def run(self, journal: SqlJournal, run: Run) -> Counter[str]:
        """Strip the remaining items. An item that changes meanwhile belongs to another writer, and stays.

        Raises: StoppedError, Interrupted; the same run continues later.
        """
        return self._walk.resumed(journal, run, self._strip)

    @property
    def _walk(self) -> TableWalk:
        return self.walk("stopped; what is stripped stays so, and the same command resumes")

    def _counted(self, items: list[Item]) -> Counter[str]:
        ours, own, others = self._sorted(items)
        return Counter(items=len(ours), own=len(own), others=others)

    def _strip(self, items: list[Item]) -> Counter[str]:
        self.check()
        ours, own, _ = self._sorted(items)
        return self._counted(items) + Counter(
            stripped=self.stripping.strip(ours), removed=self.stripping.remove(own)
        )

    def _sorted(self, items: list[Item]) -> tuple[list[Item], list[Item], int]:
        own = [item for item in items if self.table.is_hidden(item)]
        ours = [item for item in items if not self.table.is_hidden(item) and self.root(item) is not None]
        return ours, own, len(items) - len(own) - len(ours)
