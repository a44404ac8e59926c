"""Index of pending marks by the rows that they touch, so that one reading of a row acknowledges all its marks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from migrator.mapping.items.reach import Reach
from migrator.mapping.model.facts import Lookup
from migrator.mapping.model.live import Mark, Marks, Root
from migrator.mapping.model.table import ItemKey

# A mark that is in the index was committed before it came there, and every reading of a relay's take begins later. So
# once all rows and lookups of the mark were read by any takes since, rule 4 is met, and its items are stored (rule 5).
# A mark that is committed after the look is not in the index. Dropping a mark from the index is always safe: it stays in
# the source, and a later take processes it.

PAGE = 2_000
MOST = 50_000
TRIAL = 10_000
"""Marks that are read before it is judged whether that spares takes."""
SPARED_MIN = 0.1
"""The share of them, at least, that was acknowledged without a take of its own."""

Step: TypeAlias = tuple[Lookup, tuple[Any, ...]]
StepKey: TypeAlias = tuple[int, str]
Part: TypeAlias = Root | StepKey


@dataclass(slots=True)
class _Pending:
    """`left`: parts that were not read yet, with the item keys that the mark knows of a root."""

    mark: Mark
    seen_at: float
    left: dict[Part, set[ItemKey]]


@dataclass
class Ahead:
    """`reach`: of a mark; None if only a take can process the mark. `generation`: of the marks' ids, which a restored
    source and another installation assign again. `most`: marks in the index at a time."""

    marks: Marks
    reach: Callable[[Mark], Reach | None]
    generation: Callable[[], object]
    most: int = MOST
    clock: Callable[[], float] = time.monotonic
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _by_part: dict[Part, set[int]] = field(default_factory=lambda: defaultdict(set))
    _generation: object = None
    _upto: int = 0
    _read: int = 0
    _spared: int = 0

    def look(self, first: int) -> None:
        """Reads on from where the last call ended; `first`: the lowest id of the take."""
        self._renew()
        for number in [number for number in self._pending if number < first]:
            self._drop(number)
        self._upto = max(self._upto, first)
        if self._read > TRIAL and self._spared < SPARED_MIN * self._read:
            return  # a backlog of different rows
        while (room := self.most - len(self._pending)) > 0:
            page = self.marks.look(self._upto, min(PAGE, room), free=True)
            self._read += len(page)
            for mark in page:
                self._add(mark)
            if len(page) < min(PAGE, room):
                return
            self._upto = page[-1].id

    def add(self, marks: Iterable[Mark]) -> None:
        """Marks of the take itself, before any row is read for one of them."""
        self._renew()
        for mark in marks:
            self._add(mark)

    def clear(self) -> None:
        self._pending.clear()
        self._by_part.clear()
        self._upto = self._read = self._spared = 0

    def keys(self, roots: Iterable[Root]) -> dict[Root, set[ItemKey]]:
        """Item keys that pending marks know of these roots."""
        return {
            root: {key for number in numbers for key in self._pending[number].left[root]}
            for root in roots
            if (numbers := self._by_part.get(root))
        }

    def done(self, parts: Iterable[Part], taken: Collection[int]) -> list[Mark]:
        """The marks that have no part left, now that these parts were read and their items are stored. `taken`: ids of
        marks that a take finishes anyway."""
        finished: list[Mark] = []
        if self._pending and self.generation() != self._generation:
            self.clear()
        for part in parts:
            for number in self._by_part.pop(part, ()):
                pending = self._pending[number]
                del pending.left[part]
                if not pending.left:
                    del self._pending[number]
                    waited_s = self.clock() - pending.seen_at
                    finished.append(replace(pending.mark, age_s=pending.mark.age_s + waited_s))
        self._spared += sum(mark.id not in taken for mark in finished)
        return finished

    def _renew(self) -> None:
        if (generation := self.generation()) != self._generation:
            self.clear()
            self._generation = generation

    def _add(self, mark: Mark) -> None:
        if mark.id in self._pending or (reach := self.reach(mark)) is None:
            return
        left: dict[Part, set[ItemKey]] = dict(reach.roots.items())
        left |= {step_key(step): set() for step in reach.steps}
        if left:
            # Without its images, which the parts replace.
            bare = Mark(mark.id, mark.table, root=mark.root, age_s=mark.age_s)
            self._pending[mark.id] = _Pending(bare, self.clock(), left)
            for part in left:
                self._by_part[part].add(mark.id)

    def _drop(self, number: int) -> None:
        for part in self._pending.pop(number).left:
            numbers = self._by_part[part]
            numbers.discard(number)
            if not numbers:
                del self._by_part[part]


def step_key(step: Step) -> StepKey:
    """A key that is equal for equal steps: each lookup is one object, and values need not be hashable."""
    return id(step[0]), repr(step[1])
