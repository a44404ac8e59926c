"""Forget: all that is kept of a deleted row, counted, and removed as soon as no writer needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

from migrator.mapping.heart.items import CompiledEntity
from migrator.model.capture import Captured
from migrator.model.edges import ItemStore
from migrator.model.journal import Traces
from migrator.model.keys import encode_key, source_text
from migrator.model.live import ConditionalStore, Image, Mark, Marks, Root, Writers
from migrator.model.results import Forgotten, RowTraces
from migrator.model.table import TOMBSTONE, Item, TableDesign
from migrator.stages.live.refresh import TOMBSTONE_DAYS, RowReader
from migrator.stages.live.writers import Lifetimes, Purge
from migrator.stages.parallel import TableWalk
from migrator.stages.projection import key_text

HOPELESS_TRIES = 3
"""A mark that failed less often may have met a failure that passes."""
_MARKS = 1000
_LOOKS, _LOOK_S = 20, 0.5
OF_ANY_ROW = frozenset({"findings", "samples"})
"""Traces that a row which is still there does not need."""
OF_LATE_WRITERS = frozenset({"remembered keys"})
"""Traces that who began to write before the row was gone must find, and who is yet to bury its items."""


@dataclass
class Forget:
    """`roots`: the row, once for each entity that is made of it; `entity`: the first one's. `marks` None: none is captured.

    `now_s`: the journal's time; `highest`: the highest ticket that it knows. `check` raises when the run must stop.
    """

    roots: Sequence[Root]
    entity: CompiledEntity
    source: RowReader
    store: ItemStore
    dead: ConditionalStore
    design: TableDesign
    traces: Traces
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
        """All that there is of the row. Reads the whole table, since only its items say which row they are of."""
        # In this order: who draws a higher ticket, or begins to write after `seen_s`, has read the row as it is by then.
        ticket = self.highest()
        is_there = self._is_there()
        marks = list(self._own_marks())
        seen_s = self.now_s()
        items = list(self._own_items())
        dead = tuple(item for item in items if item.get(self.design.type_attribute) == TOMBSTONE)
        return RowTraces(
            is_there=is_there,
            waiting=sum(mark.tries < HOPELESS_TRIES for mark in marks),
            hopeless=tuple(mark.id for mark in marks if mark.tries >= HOPELESS_TRIES),
            items=len(items) - len(dead),
            tombstones=dead,
            kept=self.traces.count(self.roots, self._keys_of(dead)),
            page_bounds=self.traces.page_bounds(self.roots),
            seen_s=seen_s,
            ticket=ticket,
        )

    def forget(self, found: RowTraces) -> Forgotten:
        """Takes away what `look` found, as far as nobody can be late for it; the rest goes another time."""
        self.check()
        if self.marks is not None and found.hopeless:
            self.marks.finish(found.hopeless)
        is_late = not found.is_there and self._is_anybody_late(found.seen_s)
        is_back = not found.is_there and self._is_back()
        kinds = sorted(_free(found, is_late=is_late, is_back=is_back))
        kept = self.traces.forget(self.roots, kinds, self._keys_of(found.tombstones), ticket=found.ticket)
        gone = {"marks": len(found.hopeless), **kept}
        now_s = self.now_s()
        purge = Purge(self.dead, self.writers, self.design, self.lifetimes, self.check)
        gone["tombstones"] = sum(purge.run([list(found.tombstones)], now_s))
        young = len(found.tombstones) - gone["tombstones"]
        ripe_in_s = self._ripe_in_s(found.tombstones, now_s) if young else 0.0
        return Forgotten(gone, young, ripe_in_s, is_late or is_back)

    # ── what there is ──

    def _is_there(self) -> bool:
        """Whether the source has the row, also where the entity's `where` leaves it out."""
        key = self.roots[0][1]
        rows = self.source.read_rows(replace(self.entity.plan, where=()), [key])
        # A source whose keys ignore case finds another row as well.
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
        lookups = () if captured is None else [one for one in captured.lookups if one.is_root]
        images = [image for image in (mark.before, mark.after) if image is not None]
        return any(
            (lookup.entity, _key(image, lookup.values)) in self.roots
            for lookup in lookups
            for image in images
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
        """The items' keys as findings hold them."""
        return {key_text(self.design, item) for item in items}

    # ── writers that may be late ──

    def _is_anybody_late(self, seen_s: float) -> bool:
        """Whether a writer is still at work on what it read before; a relay goes on to newer work in a moment."""
        for _ in range(_LOOKS):
            if all(one.since > seen_s for one in self.writers.living(self.lifetimes.late_s)):
                return False
            self.wait(_LOOK_S)
        return True

    def _is_back(self) -> bool:
        """Whether there is a row of that key again: a writer that drew its ticket before `look` may have read it."""
        return self._is_there() or any(mark.tries < HOPELESS_TRIES for mark in self._own_marks())

    def _ripe_in_s(self, tombstones: Sequence[Item], now_s: float) -> float:
        made = [value for one in tombstones if isinstance(value := one.get(self.design.ttl or ""), int)]
        newest_s = max(made, default=0) - TOMBSTONE_DAYS * 86_400 + 1
        return max(0.0, newest_s + self.lifetimes.ripe_s - now_s)


def _free(found: RowTraces, *, is_late: bool, is_back: bool) -> frozenset[str]:
    """Kinds of traces in the journal that nobody needs."""
    if found.is_there or is_back:
        return OF_ANY_ROW
    needed = OF_LATE_WRITERS if is_late or found.items else frozenset[str]()
    return frozenset(found.kept) - needed


def _key(image: Image, names: Sequence[str]) -> str:
    """The row's key out of an image; '' where it was left for another mapping and does not say it."""
    try:
        return encode_key([image[name] for name in names])
    except (KeyError, TypeError):
        return ""
