"""Marks and tickets in memory; they pass the contract tests of the real ones."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.mapping.model.live import (
    TICKETS_AN_EPOCH,
    Change,
    Image,
    Installation,
    KeptMark,
    Mark,
    MarksState,
    Root,
)
from migrator.mapping.model.table import ItemKey
from migrator.runtime.values import replace


@dataclass
class _Kept:
    mark: Mark
    changed_at: float
    ready_at: float = 0.0
    leased_until: float = 0.0


class MemoryMarks:
    """`clock`: seconds, of the source. `leave` is what a trigger would do once its transaction commits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: list[_Kept] = []
        self._last = 0

    def leave(self, table: str, before: Image | None, after: Image | None, ready_in_s: float = 0.0) -> None:
        self._add(Mark(0, table, before, after), ready_in_s)

    def keep(self, mark: Mark) -> None:
        """A mark as it is, but for its id."""
        self._add(mark, 0.0)

    def take(self, count: int, lease_s: float) -> list[Mark]:
        free = self._free()[:count]
        for kept in free:
            kept.leased_until = self._clock() + lease_s
        return [kept.mark for kept in free]

    def from_the_first(self) -> None:
        """Every take looks at all of them."""

    def finish(self, ids: Sequence[int]) -> int:
        before = len(self._kept)
        self._kept = [kept for kept in self._kept if kept.mark.id not in ids]
        return before - len(self._kept)

    def advance(self, mark: Mark, cursor: str) -> None:
        for kept in self._of([mark.id]):
            self._last += 1
            kept.mark, kept.leased_until = replace(kept.mark, id=self._last, cursor=cursor), 0.0
            self._kept.remove(kept)
            self._kept.append(kept)

    def release(self, ids: Sequence[int]) -> None:
        for kept in self._of(ids):
            kept.leased_until = 0.0

    def put_back(self, ids: Sequence[int], wait_s: float) -> None:
        for kept in self._of(ids):
            kept.mark = replace(kept.mark, tries=kept.mark.tries + 1)
            kept.ready_at, kept.leased_until = self._clock() + wait_s, 0.0

    def discard_failed(self, tries: int) -> int:
        before = len(self._kept)
        self._kept = [kept for kept in self._kept if kept.mark.tries < tries]
        return before - len(self._kept)

    def add(self, roots: Mapping[Root, Sequence[ItemKey]]) -> None:
        for root, keys in roots.items():
            self._add(Mark(0, root=root, keys=tuple(keys)), 0.0)

    def pre_mark(self, changes: Sequence[Change], wait_s: float) -> list[Mark]:
        for mark in (marks := self.shown(changes)):
            self._add(mark, wait_s)
        return marks

    def shown(self, changes: Sequence[Change]) -> list[Mark]:
        return [Mark(0, change.table, change.before, change.after) for change in changes]

    def look(self, after: int, count: int, *, free: bool = False) -> list[Mark]:
        looked = self._free() if free else self._kept
        marks = sorted((kept.mark for kept in looked), key=lambda mark: mark.id)
        return [mark for mark in marks if mark.id > after][:count]

    def state(self) -> MarksState:
        now = self._clock()
        ripe = [kept for kept in self._kept if kept.ready_at <= now]
        oldest_age_s = max((now - kept.changed_at for kept in ripe), default=0.0)
        failed = sum(kept.mark.tries > 0 for kept in self._kept)
        return MarksState(len(ripe), oldest_age_s, failed, len(self._kept) - len(ripe))

    def _add(self, mark: Mark, ready_in_s: float) -> None:
        self._last += 1
        now = self._clock()
        self._kept.append(_Kept(replace(mark, id=self._last), now, now + ready_in_s if ready_in_s else 0.0))

    def _free(self) -> list[_Kept]:
        now = self._clock()
        return [kept for kept in self._kept if kept.ready_at <= now and kept.leased_until <= now]

    def _of(self, ids: Sequence[int]) -> list[_Kept]:
        return [kept for kept in self._kept if kept.mark.id in ids]


class MemoryKeeper(MemoryMarks):
    """A journal's: `read_image` makes values of an image's text."""

    def __init__(
        self, read_image: Callable[[str, str], Image], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._read_image = read_image

    def store(self, marks: Sequence[KeptMark]) -> None:
        for mark in marks:
            before, after = (self._image(mark.table, text) for text in (mark.before, mark.after))
            self.leave(mark.table, before, after, mark.ready_in_s)
            self._kept[-1].changed_at = min(self._clock(), mark.changed_at) + mark.ready_in_s

    def discard(self) -> None:
        self._kept = []

    def _image(self, table: str, text: str | None) -> Image | None:
        return None if text is None else self._read_image(table, text)


class MemoryTickets:
    """Installed from the beginning."""

    def __init__(self, job: str = "shop") -> None:
        self._epoch, self._number = 1, 0
        self._job = job
        self._installation = uuid.uuid4().hex

    def installed(self) -> Installation | None:
        if not self._installation:
            return None
        return Installation(self._installation, self._job, 1, self._epoch, self.highest())

    def install(self) -> None:
        self._installation = uuid.uuid4().hex

    def uninstall(self) -> None:
        self._installation = ""

    def draw(self) -> int:
        self._number += 1
        return self.highest()

    def highest(self) -> int:
        return self._epoch * TICKETS_AN_EPOCH + self._number

    def generation(self) -> tuple[str, int]:
        return self._installation, self._epoch

    def raise_epoch(self, above: int) -> int:
        self._epoch, self._number = max(self._epoch, above // TICKETS_AN_EPOCH) + 1, 0
        return self._epoch
