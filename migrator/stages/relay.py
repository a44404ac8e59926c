"""Relay: takes marks, refreshes the root rows that they touch, and puts the marks away when their items are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from migrator.errors import (
    Interrupted,
    MigratorError,
    MissingNameError,
    SettingsError,
    SourceError,
    StoppedError,
)
from migrator.mapping.changes import Captured
from migrator.mapping.image_keys import ImageKeys
from migrator.mapping.reach import Reach, reach_of
from migrator.model import ItemKey
from migrator.ports import Finding
from migrator.ports.live import Mark, Marks, Root, RootFinder
from migrator.results import Worked
from migrator.stages.refresh import Refresh, UnsettledError


@dataclass(frozen=True)
class RelayOptions:
    """`marks`: taken at once. `roots`: of one mark, refreshed at once. A mark that failed comes again after `wait_s`,
    twice as long each time, up to `longest_wait_s`."""

    marks: int = 100
    roots: int = 200
    lease_s: float = 60.0
    wait_s: float = 1.0
    longest_wait_s: float = 300.0


@dataclass(frozen=True)
class _Work:
    """A mark's next roots; `cursor`: where its work goes on after them, None where they are its last."""

    mark: Mark
    told: Mapping[Root, set[ItemKey]]
    cursor: str | None


@dataclass
class Relay:
    """Rules 4 and 5 of docs/protocol.md. Several may work at once, in one process or in many."""

    marks: Marks
    finder: RootFinder
    refresh: Refresh
    captured: Mapping[str, Captured]
    keys: Mapping[str, ImageKeys]
    options: RelayOptions = RelayOptions()

    def once(self) -> Worked:
        """Works one take of marks. Raises what an edge raises when it gave up; the marks come again by themselves."""
        worked = Worked()
        marks = self.marks.take(self.options.marks, self.options.lease_s)
        worked.taken = len(marks)
        if marks:
            self._work(marks, worked)
        return worked

    def reach(self, mark: Mark) -> dict[Root, set[ItemKey]]:
        """All roots that a mark touches, with the item keys that its images tell."""
        told: dict[Root, set[ItemKey]] = {}
        while True:
            work = self._next_roots(
                mark, reach_of(self.captured[mark.table], self.keys, mark.before, mark.after)
            )
            told |= work.told
            if work.cursor is None:
                return told
            mark = replace(mark, cursor=work.cursor)

    def _work(self, marks: Sequence[Mark], worked: Worked) -> None:
        works = [work for mark in marks if (work := self._planned(mark, worked)) is not None]
        try:
            self._refresh(works, worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            for work in works:
                self._alone(work, worked)
            return
        self._put_away(works, worked)

    def _alone(self, work: _Work, worked: Worked) -> None:
        """One mark by itself, so that one that cannot be worked stops nobody."""
        try:
            self._refresh([work], worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            self._put_back(work.mark, str(error), worked)
        else:
            self._put_away([work], worked)

    def _refresh(self, works: Sequence[_Work], worked: Worked) -> None:
        told: dict[Root, set[ItemKey]] = defaultdict(set)
        for work in works:
            for root, keys in work.told.items():
                told[root] |= keys
        if told:
            worked.refreshed.append(self.refresh(told))

    def _put_away(self, works: Sequence[_Work], worked: Worked) -> None:
        """Only now: a mark that went before its items were stored would be missed after a crash (rule 5)."""
        done = [work.mark.id for work in works if work.cursor is None]
        if done:
            self.marks.finish(done)
        for work in works:
            if work.cursor is not None:
                self.marks.advance(work.mark, work.cursor)
        worked.finished += len(done)
        worked.advanced += len(works) - len(done)

    def _put_back(self, mark: Mark, why: str, worked: Worked) -> None:
        wait_s = min(self.options.wait_s * 2 ** min(mark.tries, 30), self.options.longest_wait_s)
        self.marks.put_back([mark.id], wait_s)
        worked.put_back += 1
        worked.findings.append(
            Finding("mark", mark.table or (mark.root or ("",))[0], f"mark {mark.id}: {why}")
        )

    # ── which roots ──

    def _planned(self, mark: Mark, worked: Worked) -> _Work | None:
        """The mark's next roots; None where it cannot be worked, which becomes a finding."""
        if mark.root is not None:
            if mark.root[0] in self.refresh.entities:
                return _Work(mark, {mark.root: set(mark.keys)}, None)
            self._put_back(mark, "its entity is not in the mapping", worked)
            return None
        captured = self.captured.get(mark.table)
        if captured is None:
            self._put_back(
                mark, "no entity of the mapping reads its table; see `migrator capture status`", worked
            )
            return None
        reach = reach_of(captured, self.keys, mark.before, mark.after)
        if reach.blind:
            names = ", ".join(sorted(reach.blind))
            why = f"it was left for another mapping and does not say which {names} it touches"
            worked.findings.append(
                Finding(
                    "mark",
                    names,
                    f"mark {mark.id}: {why}; run verify --repair when capture is installed anew",
                )
            )
        return self._next_roots(mark, reach)

    def _next_roots(self, mark: Mark, reach: Reach) -> _Work:
        """As many roots as are refreshed at once: a parent of many children is worked in pages."""
        number, after = _parsed(mark.cursor)
        told: dict[Root, set[ItemKey]] = {} if mark.cursor else dict(reach.roots)
        for place in range(number, len(reach.steps)):
            lookup, values = reach.steps[place]
            plan = self.refresh.entities[lookup.entity].compiled.plan
            found = self.finder.find_roots(plan, lookup, values, after, self.options.roots)
            for key in found:
                told.setdefault((lookup.entity, key), set())
            if len(found) == self.options.roots:
                return _Work(mark, told, f"{place}:{found[-1]}")
            after = None
            if len(told) >= self.options.roots and place + 1 < len(reach.steps):
                return _Work(mark, told, f"{place + 1}:")
        return _Work(mark, told, None)


def _is_everybodys(error: MigratorError) -> bool:
    """Whether an edge gave up, so that the next mark would fare no better."""
    own = isinstance(error, (UnsettledError, MissingNameError))
    return isinstance(error, (StoppedError, SourceError, SettingsError, Interrupted)) and not own


def _parsed(cursor: str) -> tuple[int, str | None]:
    number, _, after = cursor.partition(":")
    return int(number or 0), after or None
