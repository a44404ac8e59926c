"""Undo, strip and forget: remove a job's items, our own attributes, or all traces of a deleted row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from msgspec import Struct

from migrator.journal.memory import SqlTraces
from migrator.journal.runs import SqlJournal
from migrator.mapping.items.items import CompiledEntity, key_text
from migrator.mapping.model.edges import ItemStore, RowReader, Stripping
from migrator.mapping.model.facts import Captured, Lookup
from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.journal import Run
from migrator.mapping.model.live import ConditionalStore, Image, Mark, Marks, Root, Writer, Writers
from migrator.mapping.model.results import Forgotten, RowTraces, UndoCounts
from migrator.mapping.model.table import TOMBSTONE, Item, TableDesign, encode_key, source_text
from migrator.runtime.values import replace
from migrator.stages.core.parallel import TableWalk
from migrator.stages.live.refresh import TOMBSTONE_DAYS
from migrator.stages.live.writers import Purge

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


class StripCounts(Struct, frozen=True):
    """`items`: those with our attributes; `stripped` of them lost these.
    `own`: tombstones and the control item; `removed` of them were deleted.
    `others`: untouched items.
    """

    items: int = 0
    stripped: int = 0
    own: int = 0
    removed: int = 0
    others: int = 0


@dataclass
class Strip(OwnItems):
    stripping: Stripping = field(kw_only=True)

    def count(self) -> StripCounts:
        return StripCounts(**self._walk.total(self._counted))

    def run(self, journal: SqlJournal, run: Run) -> StripCounts:
        """Strip the remaining items. An item that changes meanwhile belongs to another writer, and stays.

        Raises: StoppedError, Interrupted; the same run continues later.
        """
        return StripCounts(**self._walk.resumed(journal, run, self._strip))

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


# ── Forget: remove all that is kept of a deleted row, as soon as writers no longer need it ──

HOPELESS_TRIES = 3
"""A mark that failed less often may have met a failure that passes."""
_MARKS = 1000
_LOOKS, _LOOK_S = 20, 0.5
OF_ANY_ROW = frozenset({"findings", "samples"})
"""Traces that a row which is still there does not need."""
OF_LATE_WRITERS = frozenset({"remembered keys"})
"""Traces that a writer needs which began before the row was deleted, or which has yet to write its tombstones."""


@dataclass
class Forget:
    """Removes all traces of a deleted row.

    `roots`: the row, once for each entity made from it; `entity`: that of the first root.
    `marks`: None without capture.
    `now_s`: the journal's time.
    `check`: raises when the run must stop.
    """

    roots: Sequence[Root]
    entity: CompiledEntity
    source: RowReader
    store: ItemStore
    tombstone_store: ConditionalStore
    design: TableDesign
    traces: SqlTraces
    writers: Writers
    now_s: Callable[[], float]
    highest: Callable[[], int]
    lifetimes: Lifetimes
    wait: Callable[[float], None]
    check: Callable[[], None]
    marks: Marks | None
    captured: Mapping[str, Captured]
    segments: int = 4
    workers: int = 4
    stop: Event = field(default_factory=Event)

    def look(self) -> RowTraces:
        """Find all traces of the row. Scans the table, since only items identify their row."""
        # In this order: a writer with a higher ticket, or one that begins after `seen_s`, has read the row in
        # its state at that time.
        ticket = self.highest()
        is_there = self._is_there()
        marks = list(self._own_marks())
        seen_s = self.now_s()
        items = list(self._own_items())
        tombstones = tuple(item for item in items if item.get(self.design.type_attribute) == TOMBSTONE)
        return RowTraces(
            is_there=is_there,
            waiting=sum(mark.tries < HOPELESS_TRIES for mark in marks),
            hopeless=tuple(mark.id for mark in marks if mark.tries >= HOPELESS_TRIES),
            items=len(items) - len(tombstones),
            tombstones=tombstones,
            kept=self.traces.count(self.roots, self._keys_of(tombstones)),
            page_bounds=self.traces.page_bounds(self.roots),
            seen_s=seen_s,
            ticket=ticket,
        )

    def forget(self, traces: RowTraces) -> Forgotten:
        """Delete the traces found by `look` that no late writer needs; a later call deletes the rest."""
        self.check()
        if self.marks is not None and traces.hopeless:
            self.marks.finish(traces.hopeless)
        is_late = not traces.is_there and self._has_late_writer(traces.seen_s)
        is_back = not traces.is_there and self._is_back()
        kinds = sorted(_free(traces, is_late=is_late, is_back=is_back))
        kept = self.traces.forget(self.roots, kinds, self._keys_of(traces.tombstones), ticket=traces.ticket)
        gone = {"marks": len(traces.hopeless), **kept}
        now_s = self.now_s()
        purge = Purge(self.tombstone_store, self.writers, self.design, self.lifetimes, self.check)
        gone["tombstones"] = sum(purge.run([list(traces.tombstones)], now_s))
        young = len(traces.tombstones) - gone["tombstones"]
        ripe_in_s = self._ripe_in_s(traces.tombstones, now_s) if young else 0.0
        return Forgotten(gone, young, ripe_in_s, is_late or is_back)

    # ── what there is ──

    def _is_there(self) -> bool:
        """Return whether the source has the row, even if the entity's `where` excludes it."""
        key = self.roots[0][1]
        rows = self.source.read_rows(replace(self.entity.plan, where=()), [key])
        # A source with keys that ignore case finds another row as well.
        return any(self.entity.source_key(row) == key for row in rows)

    def _own_marks(self) -> Iterator[Mark]:
        after, page = 0, [Mark(0)] if self.marks is not None else []
        while self.marks is not None and page:
            page = self.marks.look(after, _MARKS)
            yield from (mark for mark in page if self._is_own(mark))
            after = page[-1].id if page else after

    def _is_own(self, mark: Mark) -> bool:
        if mark.root is not None:
            return mark.root in self.roots
        captured = self.captured.get(mark.table)
        lookups = () if captured is None else [lookup for lookup in captured.lookups if lookup.is_root]
        images = [image for image in (mark.before, mark.after) if image is not None]
        return any(
            (lookup.entity, _key(image, lookup)) in self.roots for lookup in lookups for image in images
        )

    def _own_items(self) -> Iterator[Item]:
        texts = {source_text(*root) for root in self.roots}

        def segment(number: int) -> list[Item]:
            own: list[Item] = []
            for page in walk.pages(number):
                own += [item for item in page.items if item.get(self.design.source_attribute) in texts]
            return own

        stopped = "stopped; nothing was forgotten yet"
        walk = TableWalk(self.store, self.segments, self.workers, self.stop, stopped)
        for items in walk.each(segment):
            yield from items

    def _keys_of(self, items: Sequence[Item]) -> set[str]:
        return {key_text(self.design, item) for item in items}

    # ── writers that may be late ──

    def _has_late_writer(self, seen_s: float) -> bool:
        """Return whether a writer may still use reads from before `seen_s`. Relays soon continue with newer work."""
        for _ in range(_LOOKS):
            if all(writer.since > seen_s for writer in self.writers.living(self.lifetimes.late_s)):
                return False
            self.wait(_LOOK_S)
        return True

    def _is_back(self) -> bool:
        """Return whether the key has a row again: a writer with a ticket from before `look` may have read it."""
        return self._is_there() or any(mark.tries < HOPELESS_TRIES for mark in self._own_marks())

    def _ripe_in_s(self, tombstones: Sequence[Item], now_s: float) -> float:
        made = [
            value
            for tombstone in tombstones
            if isinstance(value := tombstone.get(self.design.ttl or ""), int)
        ]
        newest_s = max(made, default=0) - TOMBSTONE_DAYS * 86_400 + 1
        return max(0.0, newest_s + self.lifetimes.ripe_s - now_s)


def _free(traces: RowTraces, *, is_late: bool, is_back: bool) -> frozenset[str]:
    if traces.is_there or is_back:
        return OF_ANY_ROW
    needed = OF_LATE_WRITERS if is_late or traces.items else frozenset[str]()
    return frozenset(traces.kept) - needed


def _key(image: Image, lookup: Lookup) -> str:
    """The row's key in an image; '' if the image was left for another mapping and lacks it."""
    try:
        return encode_key(lookup.begin(image))
    except (KeyError, TypeError):
        return ""
