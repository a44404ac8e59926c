"""Relay: takes marks, refreshes the root rows that they concern, and deletes marks whose items are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from migrator.mapping.check.keys import written_together
from migrator.mapping.heart.changes import needs_memory
from migrator.mapping.heart.items import CompiledEntity
from migrator.mapping.live.reach import ImageKeys, Reach, reach_of
from migrator.model.capture import Captured, Lookup
from migrator.model.entities import Mapping as MappingModel
from migrator.model.errors import (
    ItemRefusedError,
    MigratorError,
    MissingNameError,
    RowError,
    TwinRowsError,
    UnfitValueError,
)
from migrator.model.journal import Finding
from migrator.model.live import Mark, Marks, OpenFindings, Root, RootFinder
from migrator.model.results import Worked
from migrator.model.table import ItemKey
from migrator.stages.live.refresh import LiveEntity, Refresh, UnsettledError, UnwrittenError

# ──
# Relay: takes marks, refreshes the root rows that they touch, and puts the marks away when their items are
# stored.

_Step: TypeAlias = tuple[Lookup, tuple[Any, ...]]

VALUES_A_SELECT = 100
_REVISION_DIGITS = 12


@dataclass(frozen=True)
class RelayOptions:
    """`marks`: taken at once. `roots`: of one mark, `roots_at_once`: of marks of many, refreshed at once.

    A mark that failed comes again after `wait_s`, twice as long each time, up to `longest_wait_s`.
    """

    marks: int = 100
    roots: int = 200
    roots_at_once: int = 500
    lease_s: float = 60.0
    wait_s: float = 1.0
    longest_wait_s: float = 300.0


@dataclass(frozen=True)
class _Work:
    """A mark's next roots; `cursor`: where its work goes on after them, None where they are its last.

    `mark` None: roots that several marks reach.
    """

    mark: Mark | None
    told: Mapping[Root, set[ItemKey]]
    cursor: str | None


@dataclass
class Relay:
    """Rules 4 and 5 of docs/protocol.md. Several may work at once, in one process or in many."""

    marks: Marks
    finder: RootFinder
    refresh: Refresh
    open_findings: OpenFindings
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
        if worked.findings:
            self.open_findings.settle({}, worked.findings)
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
        reaches = [(mark, one) for mark in marks if (one := self._reached(mark, worked)) is not None]
        try:
            works = self._together(reaches)
            self._refresh(works, worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            for mark, reach in reaches:
                self._alone(mark, reach, worked, error)
            return
        self._put_away(works, worked)

    def _alone(self, mark: Mark, reach: Reach, worked: Worked, before: MigratorError) -> None:
        """One mark by itself, so that one that cannot be worked stops nobody. `before`: why not all at once."""
        try:
            work = self._next_roots(mark, reach)
            if isinstance(before, UnwrittenError) and before.roots & work.told.keys():
                # Not tried again: by itself it cannot be told from a table that takes nothing.
                raise before
            self._refresh([work], worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            self._put_back(mark, str(error), worked)
        else:
            self._put_away([work], worked)

    def _refresh(self, works: Sequence[_Work], worked: Worked) -> None:
        told: dict[Root, set[ItemKey]] = defaultdict(set)
        for work in works:
            for root, keys in work.told.items():
                told[root] |= keys
        if told:
            refreshed = self.refresh(told)
            # Before the marks are put away: nothing leads to these rows any more then.
            self.open_findings.settle(refreshed.tickets, refreshed.findings)
            worked.refreshed.append(refreshed)

    def _put_away(self, works: Sequence[_Work], worked: Worked) -> None:
        """Only now: a mark that went before its items were stored would be missed after a crash (rule 5)."""
        done = [work.mark.id for work in works if work.mark is not None and work.cursor is None]
        if done:
            self.marks.finish(done)
        for work in works:
            if work.mark is not None and work.cursor is not None:
                self.marks.advance(work.mark, work.cursor)
                worked.advanced += 1
        worked.finished += len(done)

    def _put_back(self, mark: Mark, why: str, worked: Worked) -> None:
        wait_s = min(self.options.wait_s * 2 ** min(mark.tries, 30), self.options.longest_wait_s)
        self.marks.put_back([mark.id], wait_s)
        worked.put_back += 1
        worked.findings.append(
            Finding("mark", mark.table or (mark.root or ("",))[0], f"mark {mark.id}: {why}")
        )

    # ── which roots ──

    def _reached(self, mark: Mark, worked: Worked) -> Reach | None:
        """What the mark says that it touches; None where it cannot be worked, which becomes a finding."""
        if mark.fault:
            advice = "run `migrator verify --repair`, and relay with --discard-failed"
            self._put_back(mark, f"{mark.fault}; {advice}", worked)
            return None
        if mark.root is not None:
            if mark.root[0] in self.refresh.entities:
                return Reach({mark.root: set(mark.keys)})
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
            # Not worked in part: whoever finished it would have forgotten rows that nobody can name any more.
            why = f"it was left for another mapping and does not say which rows of {names} it touches"
            advice = (
                "run `migrator capture install`, `migrator verify --repair`, and relay with --discard-failed"
            )
            self._put_back(mark, f"{why}; {advice}", worked)
            return None
        return reach

    def _together(self, reaches: Sequence[tuple[Mark, Reach]]) -> list[_Work]:
        """The next roots of each mark. Those of all that reach few are looked for together, a lookup at a time."""
        fresh = [(mark, reach) for mark, reach in reaches if not self._is_under_way(mark)]
        steps = {_place(step): step for _, reach in fresh for step in reach.steps}
        by_lookup: dict[int, list[_Step]] = defaultdict(list)
        for step in steps.values():
            by_lookup[id(step[0])].append(step)
        found: set[Root] = set()
        wide = {_place(step) for group in by_lookup.values() for step in self._find(group, found)}
        works = [_Work(None, {root: set() for root in found}, None)] if found else []
        roots = len(found)
        for mark, reach in reaches:
            if not self._is_under_way(mark) and not any(_place(step) in wide for step in reach.steps):
                works.append(_Work(mark, reach.roots, None))
            elif roots >= self.options.roots_at_once:
                self.marks.release([mark.id])
            else:
                works.append(self._next_roots(mark, reach))
                roots += len(works[-1].told)
        return works

    def _is_under_way(self, mark: Mark) -> bool:
        """Whether a part of its roots is done. A cursor of another mapping counts other lookups: its work begins anew."""
        return mark.cursor.partition(":")[0] == self._revision

    @property
    def _revision(self) -> str:
        return self.refresh.revision[:_REVISION_DIGITS]

    def _find(self, group: Sequence[_Step], found: set[Root]) -> Iterator[_Step]:
        """Adds the roots that steps of one lookup reach; the steps that reach too many by themselves."""
        lookup = group[0][0]
        plan = self.refresh.entities[lookup.entity].compiled.plan
        for start in range(0, len(group), VALUES_A_SELECT):
            part = group[start : start + VALUES_A_SELECT]
            limit = self.options.roots
            keys = self.finder.find_roots(plan, lookup, [values for _, values in part], None, limit)
            if len(keys) < limit:
                found |= {(lookup.entity, key) for key in keys}
            elif len(part) == 1:
                yield part[0]
            else:
                half = len(part) // 2
                yield from self._find(part[:half], found)
                yield from self._find(part[half:], found)

    def _next_roots(self, mark: Mark, reach: Reach) -> _Work:
        """As many roots as are refreshed at once: a parent of many children is worked in pages."""
        under_way, own = self._is_under_way(mark), self._revision
        number, after = _parsed(mark.cursor) if under_way else (0, None)
        told: dict[Root, set[ItemKey]] = {} if under_way else dict(reach.roots)
        for place in range(number, len(reach.steps)):
            lookup, values = reach.steps[place]
            plan = self.refresh.entities[lookup.entity].compiled.plan
            found = self.finder.find_roots(plan, lookup, [values], after, self.options.roots)
            for key in found:
                told.setdefault((lookup.entity, key), set())
            if len(found) == self.options.roots:
                return _Work(mark, told, f"{own}:{place}:{found[-1]}")
            after = None
            if len(told) >= self.options.roots and place + 1 < len(reach.steps):
                return _Work(mark, told, f"{own}:{place + 1}:")
        return _Work(mark, told, None)


def _place(step: _Step) -> tuple[int, str]:
    """What tells steps apart: lookups are as many objects as there are, and values need not be hashable."""
    return id(step[0]), repr(step[1])


def _is_everybodys(error: MigratorError) -> bool:
    """Whether an edge gave up, so that the next mark would fare no better."""
    of_its_rows = (ItemRefusedError, RowError, TwinRowsError)
    return not isinstance(
        error, (*of_its_rows, UnsettledError, UnwrittenError, MissingNameError, UnfitValueError)
    )


def _parsed(cursor: str) -> tuple[int, str | None]:
    number, _, after = cursor.partition(":")[2].partition(":")
    return int(number), after or None


# ── The entities of a mapping as a writer beside others needs them ──


def live_entities(mapping: MappingModel, entities: Sequence[CompiledEntity]) -> dict[str, LiveEntity]:
    """Each entity by its name, with the item types that atomic patterns read.

    Where there are such, its keys are remembered too: a mark tells the keys of one change alone, and items of a change
    whose mark still waits would be seen beside the row's newer ones.
    """
    together = written_together(mapping)
    return {
        one.name: LiveEntity(one, one.plan.entity.written in together or needs_memory(one.plan), types)
        for one in entities
        for types in [together.get(one.plan.entity.written, frozenset())]
    }
