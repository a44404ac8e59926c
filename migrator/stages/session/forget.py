"""Forget: removes all that is kept of a deleted row, as soon as writers no longer need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migrator.dynamodb.conditional import ConditionalWrites
from migrator.journal.memory import SqlTraces
from migrator.mapping.items.items import key_text
from migrator.mapping.model.facts import Lookup
from migrator.mapping.model.live import Image, Mark, Root
from migrator.mapping.model.results import Forgotten, RowTraces
from migrator.mapping.model.table import TOMBSTONE, Item, encode_key, source_text
from migrator.runtime.values import replace
from migrator.stages.core.parallel import TableWalk
from migrator.stages.live.refresh import TOMBSTONE_DAYS
from migrator.stages.live.writers import Purge
from migrator.stages.session.job import Live
from migrator.stages.session.session import JobSession

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

    `roots`: the row, once for each entity made from it.
    `check`: raises when the run must stop.
    `live`: capture's edges; None if changes leave no mark.
    """

    session: JobSession
    roots: Sequence[Root]
    check: Callable[[], None]
    live: Live | None

    def __post_init__(self) -> None:
        session, store = self.session, self.session.target.fenced(self.check).store
        entities = {entity.name: entity for entity in session.checked.entities}
        self.entity = entities[self.roots[0][0]]
        self.store, self.tombstone_store, self.design = store, ConditionalWrites(store), session.design
        self.traces = SqlTraces(session.journal.database, session.job.name, session.table_id)
        self.writers, self.lifetimes = session.writers, session.lifetimes
        captured = () if self.live is None else self.live.capture.captured(session.plans)
        self.lookups = {table.name: [one for one in table.lookups if one.is_root] for table in captured}
        # The journal's time.
        self.now_s = self.writers.now_s
        self.wait: Callable[[float], None] = store.retry.wait

    def look(self) -> RowTraces:
        """Find all traces of the row. Scans the table, since only items identify their row."""
        # In this order: a writer with a higher ticket, or one that begins after `seen_s`, has read the row in
        # its state at that time.
        ticket = self.session.memory.highest()
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
        if self.live is not None and traces.hopeless:
            self.live.marks.finish(traces.hopeless)
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
        rows = self.session.source.at_primary().read_rows(replace(self.entity.plan, where=()), [key])
        # A source with keys that ignore case finds another row as well.
        return any(self.entity.source_key(row) == key for row in rows)

    def _own_marks(self) -> Iterator[Mark]:
        if self.live is None:
            return
        after = 0
        while page := self.live.marks.look(after, _MARKS):
            yield from (mark for mark in page if self._is_own(mark))
            after = page[-1].id

    def _is_own(self, mark: Mark) -> bool:
        if mark.root is not None:
            return mark.root in self.roots
        lookups = self.lookups.get(mark.table, ())
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

        stopped, tuning = "stopped; nothing was forgotten yet", self.session.job.tuning
        walk = TableWalk(self.store, tuning.scan_segments, tuning.workers, self.session.stop, stopped)
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
