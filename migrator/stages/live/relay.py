"""Relay: takes marks, refreshes their root rows, and deletes marks whose items are stored."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import Struct

from migrator.mapping.check.keys import written_together
from migrator.mapping.items.changes import needs_memory
from migrator.mapping.items.items import CompiledEntity, ImageKeys, Reach, reach_of
from migrator.mapping.model.edges import RootFinder, Rows
from migrator.mapping.model.facts import Captured, EntityPlan, Lookup
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import LONGEST_WAIT_S, Mark, Marks, OpenFindings, Root
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Worked
from migrator.mapping.model.table import Item, ItemKey, TableDesign, encode_key, split_source
from migrator.runtime.errors import (
    ItemRefusedError,
    MigratorError,
    MissingNameError,
    RowError,
    TwinRowsError,
    UnfitValueError,
)
from migrator.runtime.values import replace
from migrator.stages.live.refresh import Refresh, UnsettledError
from migrator.stages.live.send import LiveEntity, UnwrittenError

# ── Index of pending marks by the rows that they touch ──


# A mark that is in the index was committed before it came there, and every reading of a relay's take begins later. So
# once all rows and lookups of the mark were read by any takes since, rule 4 is met, and its items are stored (rule 5).
# A mark that is committed after the look is not in the index. Dropping a mark from the index is always safe: it stays in
# the source, and a later take processes it.

PAGE = 2_000
MOST = 50_000
TRIAL = 5_000
"""Marks that are read before the first take shows whether that spares others."""
SPARED_MIN = 0.2
"""The least share of the acknowledged marks that needed no take of their own: reading a mark ahead costs about a
third of a take of it.
"""

Step: TypeAlias = tuple[Lookup, tuple[Any, ...]]
StepKey: TypeAlias = tuple[int, str]
Part: TypeAlias = Root | StepKey


@dataclass(slots=True)
class _PendingMark:
    mark: Mark
    seen_at: float
    left: dict[Part, set[ItemKey]]


@dataclass
class Ahead:
    """Pending marks that a relay knows beyond its take.

    `reach`: of a mark; None if only a take can process it.
    `generation`: of the marks' ids, which a restored source and another installation assign again.
    `most`: marks in the index at a time.
    """

    marks: Marks
    reach: Callable[[Mark], Reach | None]
    generation: Callable[[], object]
    most: int = MOST
    clock: Callable[[], float] = time.monotonic
    _pending: dict[int, _PendingMark] = field(default_factory=dict)
    _by_part: dict[Part, set[int]] = field(default_factory=lambda: defaultdict(set))
    _generation: object = None
    _upto: int = 0
    _taken: int = 0
    _spared: int = 0

    def look(self, first: int) -> None:
        self._renew()
        for number in [number for number in self._pending if number < first]:
            self._drop(number)
        self._upto = max(self._upto, first)
        done = self._taken + self._spared
        if done >= FEWEST_MARKS and self._spared < SPARED_MIN * done:
            return  # a backlog of different rows
        most = self.most if done >= FEWEST_MARKS else min(TRIAL, self.most)
        while (room := most - len(self._pending)) > 0:
            page = self.marks.look(self._upto, min(PAGE, room), free=True)
            for mark in page:
                self._add(mark)
            if len(page) < min(PAGE, room):
                return
            self._upto = page[-1].id

    def add(self, marks: Sequence[Mark]) -> None:
        if marks:
            self._renew()
        for mark in marks:
            self._add(mark)

    def leave_out(self, numbers: Iterable[int]) -> None:
        for number in self._pending.keys() & numbers:
            self._drop(number)

    def clear(self) -> None:
        self._pending.clear()
        self._by_part.clear()
        self._upto = self._taken = self._spared = 0

    def keys(self, roots: Iterable[Root]) -> dict[Root, set[ItemKey]]:
        return {
            root: {key for number in numbers for key in self._pending[number].left[root]}
            for root in roots
            if (numbers := self._by_part.get(root))
        }

    def done(self, parts: Iterable[Part], taken: Collection[int]) -> list[Mark]:
        """Return the marks whose parts are all read and stored. `taken`: ids of marks that the take finishes."""
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
        if self._upto:
            self._taken += len(taken)
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
            self._pending[mark.id] = _PendingMark(bare, self.clock(), left)
            for part in left:
                self._by_part[part].add(mark.id)

    def _drop(self, number: int) -> None:
        for part in self._pending.pop(number).left:
            numbers = self._by_part[part]
            numbers.discard(number)
            if not numbers:
                del self._by_part[part]


def step_key(step: Step) -> StepKey:
    """Equal for equal steps: each lookup is one object, and values need not be hashable."""
    return id(step[0]), repr(step[1])


# ──
# Relay: takes marks, refreshes the root rows that they touch, and puts the marks away when their items are
# stored.

VALUES_A_SELECT = 100
STEPS_OF_MANY = 5
"""Steps that are looked up together may reach as many roots as this number of separate ones."""
FEWEST_MARKS = 25
TAKE_S = 2.0
"""A take that lasts longer is followed by half as many marks, one that lasts a quarter of it by twice as many."""
_REVISION_DIGITS = 12


class RelayOptions(Struct, frozen=True):
    """Limits of a relay's takes.

    `marks`: per take; fewer if the table is slow.
    `roots`: of one mark; `roots_at_once`: of many marks, refreshed together.
    `ahead`: pending marks known beyond the take, from its `ahead_after`-th full take in a row on: a short
      backlog costs less without.
    `wait_s`: before a failed mark is retried; doubles each time, up to `longest_wait_s`.
    """

    marks: int = 1000
    roots: int = 200
    roots_at_once: int = 2000
    lease_s: float = 60.0
    wait_s: float = 1.0
    longest_wait_s: float = LONGEST_WAIT_S
    ahead: int = MOST
    ahead_after: int = 8


class _Work(Struct, frozen=True):
    """A mark's next roots.

    `mark`: None for roots that several marks reach by `steps`.
    `cursor`: where its work continues; None if these roots are its last.
    `waits`: a mark with the same many roots, which ends together with this one.
    """

    mark: Mark | None
    root_keys: Mapping[Root, set[ItemKey]]
    cursor: str | None
    steps: Collection[StepKey] = ()
    waits: Mark | None = None


@dataclass
class Relay:
    """Rules 4 and 5 of docs/protocol.md. Any number may work at once, in any number of processes."""

    marks: Marks
    finder: RootFinder
    refresh: Refresh
    open_findings: OpenFindings
    captured: Mapping[str, Captured]
    keys: Mapping[str, ImageKeys]
    options: RelayOptions = RelayOptions()
    whole_table: Callable[[Captured], Iterator[Mapping[Root, Sequence[ItemKey]]]] | None = None
    """The roots that any row of a table may concern, for marks of whole tables."""
    clock: Callable[[], float] = time.monotonic
    _size: int = 4 * FEWEST_MARKS
    """How many marks are taken next."""
    _full_takes: int = 0
    _ahead: Ahead = field(init=False)

    def __post_init__(self) -> None:
        self._ahead = Ahead(self.marks, self._ahead_reach, self._generation, self.options.ahead, self.clock)

    def once(self) -> Worked:
        """Process one take of marks. Raises: the error of an edge that gave up; the marks come again later."""
        worked, started = Worked(), self.clock()
        size = min(self._size, self.options.marks)
        marks = self.marks.take(size, self.options.lease_s)
        worked.taken = len(marks)
        self._full_takes = self._full_takes + 1 if len(marks) == size else 0
        if self._full_takes > self.options.ahead_after:
            # A backlog costs its rows, not its marks: before any row is read, for these marks are acknowledged with it.
            self._ahead.look(min(mark.id for mark in marks))
        elif not self._full_takes:
            self._ahead.clear()
        if marks:
            rows = [mark for mark in marks if not mark.is_of_whole_table]
            for mark in marks:
                if mark.is_of_whole_table:
                    self._spread(mark, worked)
            reached = [(mark, reach) for mark in rows if (reach := self._reached(mark, worked)) is not None]
            # Apart: a mark that fails again has all that are with it read and written several times. Nor is it finished
            # with a mark of this take that concerns the same row.
            self._ahead.leave_out({mark.id for mark in marks if mark.tries})
            for is_retried in (False, True):
                if works := [(mark, reach) for mark, reach in reached if (mark.tries > 0) is is_retried]:
                    self._work(works, worked)
            took_s = self.clock() - started
            worked.changes = [(name, age_s + took_s) for name, age_s in worked.changes]
            self._size = self._next_size(took_s, is_full=len(marks) == size)
        if worked.findings:
            self.open_findings.settle({}, worked.findings)
        return worked

    def _spread(self, mark: Mark, worked: Worked) -> None:
        """Leave a mark for each root that the table may concern; repeated after a crash."""
        captured = self.captured.get(mark.table)
        if captured is None or self.whole_table is None:
            self._put_back(
                mark, "no entity of the mapping reads its table; see `migrator capture status`", worked
            )
            return
        for roots in self.whole_table(captured):
            self.refresh.check()
            self.marks.add(roots)
        self.refresh.check()
        self.marks.finish([mark.id])
        worked.finished += 1
        worked.changes.append((mark.table, mark.age_s))

    def _generation(self) -> tuple[str, int]:
        return self.refresh.tickets.generation()

    def _next_size(self, took_s: float, *, is_full: bool) -> int:
        """All marks of a take wait for its last one, and return to other relays if their lease ends first."""
        longest_s = min(TAKE_S, self.options.lease_s / 4)
        if took_s > longest_s:
            return max(self._size // 2, FEWEST_MARKS)
        return min(self._size * 2, self.options.marks) if is_full and took_s * 4 < longest_s else self._size

    def reach(self, mark: Mark) -> dict[Root, set[ItemKey]]:
        root_keys: dict[Root, set[ItemKey]] = {}
        while True:
            work = self._next_roots(
                mark, reach_of(self.captured[mark.table], self.keys, mark.before, mark.after)
            )
            root_keys |= work.root_keys
            if work.cursor is None:
                return root_keys
            mark = replace(mark, cursor=work.cursor)

    def unreadable(self) -> Iterator[int]:
        """Ids of pending marks left for another mapping, whose rows this one cannot see."""
        after = 0
        while marks := self.marks.look(after, PAGE):
            yield from (mark.id for mark in marks if isinstance(self._reach(mark), str))
            after = marks[-1].id

    def _work(self, reaches: Sequence[tuple[Mark, Reach]], worked: Worked) -> None:
        """Process the marks; after a failure in parts, so that a stuck mark blocks no other."""
        try:
            works: Sequence[_Work] = self._together(reaches)
            self._refresh(works, worked)
            works = self._walked(works, {mark.id: reach for mark, reach in reaches}, worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            self._work_in_parts(reaches, worked, error)
        else:
            self._put_away(works, worked)

    def _walked(
        self, works: Sequence[_Work], reaches: Mapping[int, Reach], worked: Worked
    ) -> Sequence[_Work]:
        """Add all pages of a mark that others wait for, within their leases, so that its roots are read last."""
        if not any(work.waits for work in works):
            return works
        ends_at = self.clock() + self.options.lease_s / 4
        walked: list[_Work] = []
        for work in works:
            mark = work.mark
            if mark is not None and work.cursor is not None and not self._is_under_way(mark):
                while work.cursor is not None and self.clock() < ends_at:
                    walked.append(_Work(None, work.root_keys, None))
                    work = self._next_roots(replace(mark, cursor=work.cursor), reaches[mark.id])
                    self._refresh([work], worked)
                steps = [] if work.cursor else [step_key(step) for step in reaches[mark.id].steps]
                work = replace(work, mark=mark, steps=steps)
            walked.append(work)
        return walked

    def _work_in_parts(
        self, reaches: Sequence[tuple[Mark, Reach]], worked: Worked, error: MigratorError
    ) -> None:
        """Retry separately the marks that may reach a root with refused items, else each half."""
        others = []
        for mark, reach in reaches:
            if isinstance(error, UnwrittenError) and (reach.steps or error.roots & reach.roots.keys()):
                self._alone(mark, reach, worked, error)
            else:
                others.append((mark, reach))
        if len(reaches) == 1 and others:
            self._put_back(reaches[0][0], str(error), worked)
            return
        half = len(others) // 2 if len(others) == len(reaches) else len(others)
        for part in (others[:half], others[half:]):
            if part:
                self._work(part, worked)

    def _alone(self, mark: Mark, reach: Reach, worked: Worked, before: UnwrittenError) -> None:
        try:
            work = self._next_roots(mark, reach)
            if before.roots & work.root_keys.keys():
                # Not retried: alone, it looks the same as a table that refuses all writes.
                raise before
            self._refresh([work], worked)
        except MigratorError as error:
            if _is_everybodys(error):
                raise
            self._put_back(mark, str(error), worked)
        else:
            self._put_away([work], worked)

    def _refresh(self, works: Sequence[_Work], worked: Worked) -> None:
        root_keys: dict[Root, set[ItemKey]] = defaultdict(set)
        # By the first mark of each: a row that was deleted before it was inserted has items.
        is_new: dict[Root, bool] = {}
        for work in works:
            for root, keys in work.root_keys.items():
                root_keys[root] |= keys
                if work.mark is not None:
                    is_new.setdefault(root, work.mark.before is None and work.mark.after is not None)
        for root, keys in self._ahead.keys(root_keys).items():
            root_keys[root] |= keys
        if root_keys:
            refreshed = self.refresh(root_keys, [root for root, new in is_new.items() if new])
            # Before the marks are deleted: after that nothing leads to these rows.
            self.open_findings.settle(refreshed.tickets, refreshed.findings)
            worked.refreshed.append(refreshed)

    def _put_away(self, works: Sequence[_Work], worked: Worked) -> None:
        """Acknowledge marks only after their items are stored: otherwise a crash would lose them (rule 5).

        Only as a writer: the mark waits for items of the current mapping (rule 9).
        """
        self.refresh.check()
        roots: Iterator[Part] = (root for work in works for root in work.root_keys)
        steps: Iterator[Part] = (step for work in works for step in work.steps)
        done = {work.mark.id: work.mark for work in works if work.mark is not None and work.cursor is None}
        done |= {mark.id: mark for mark in self._ahead.done([*roots, *steps], done.keys())}
        if done:
            # Several relays may know of a mark; the one that finds it has finished it.
            worked.finished += self.marks.finish(list(done))
            worked.changes += [(mark.table or (mark.root or ("",))[0], mark.age_s) for mark in done.values()]
        if waiting := [work.waits.id for work in works if work.waits and work.waits.id not in done]:
            self.marks.release(waiting)
        for work in works:
            if work.mark is not None and work.cursor is not None:
                self.marks.advance(work.mark, work.cursor)
                worked.advanced += 1

    def _put_back(self, mark: Mark, why: str, worked: Worked) -> None:
        wait_s = min(self.options.wait_s * 2 ** min(mark.tries, 30), self.options.longest_wait_s)
        self.marks.put_back([mark.id], wait_s)
        worked.put_back += 1
        worked.findings.append(
            Finding("mark", mark.table or (mark.root or ("",))[0], f"mark {mark.id}: {why}")
        )

    # ── which roots ──

    def _reached(self, mark: Mark, worked: Worked) -> Reach | None:
        reach = self._reach(mark)
        if isinstance(reach, str):
            self._put_back(mark, reach, worked)
            return None
        return reach

    def _ahead_reach(self, mark: Mark) -> Reach | None:
        """None also for a mark of a whole table, and for one refreshed in pages, whose cursor knows the next."""
        reach = None if mark.cursor or mark.is_of_whole_table else self._reach(mark)
        return reach if isinstance(reach, Reach) else None

    def _reach(self, mark: Mark) -> Reach | str:
        if mark.fault:
            return f"{mark.fault}; run `migrator verify --repair`, and relay with --discard-marks"
        if mark.root is not None:
            if mark.root[0] in self.refresh.entities:
                return Reach({mark.root: set(mark.keys)})
            return "its entity is not in the mapping"
        captured = self.captured.get(mark.table)
        if captured is None:
            return "no entity of the mapping reads its table; see `migrator capture status`"
        reach = reach_of(captured, self.keys, mark.before, mark.after)
        if reach.blind:
            names = ", ".join(sorted(reach.blind))
            # Not worked in part: once the mark is deleted, nothing names the rows that were left out.
            why = f"it was left for another mapping and does not show which rows of {names} it touches"
            advice = (
                "run `migrator capture install`, `migrator verify --repair`, and relay with --discard-marks"
            )
            return f"{why}; {advice}"
        return reach

    def _together(self, reaches: Sequence[tuple[Mark, Reach]]) -> list[_Work]:
        works: list[_Work] = []
        left: list[int] = []
        for start in range(0, len(reaches), VALUES_A_SELECT):
            part = reaches[start : start + VALUES_A_SELECT]
            room = self.options.roots_at_once - sum(len(work.root_keys) for work in works)
            if room > 0:
                works += self._next_of(part, room, left)
            else:
                left += [mark.id for mark, _ in part]
        if left:
            self.marks.release(left)
        return works

    def _next_of(self, reaches: Sequence[tuple[Mark, Reach]], room: int, left: list[int]) -> Iterator[_Work]:
        """Next roots of each mark; marks of few roots share their lookups. Those past `room` go to `left`."""
        fresh = [(mark, reach) for mark, reach in reaches if not self._is_under_way(mark)]
        steps = {step_key(step): step for _, reach in fresh for step in reach.steps}
        by_lookup: dict[int, list[Step]] = defaultdict(list)
        for step in steps.values():
            by_lookup[id(step[0])].append(step)
        # In one order, so that a schedule can be replayed.
        roots: dict[Root, None] = {}
        wide = {step_key(step) for group in by_lookup.values() for step in self._find(group, roots)}
        if steps:
            yield _Work(None, {root: set() for root in roots}, None, steps.keys() - wide)
        root_count = len(roots)
        self._ahead.add(
            [mark for mark, reach in fresh if any(step_key(step) in wide for step in reach.steps)]
        )
        begun: set[StepKey] = set()
        for mark, reach in reaches:
            walks = {step_key(step) for step in reach.steps} & wide
            if not self._is_under_way(mark) and not walks:
                yield _Work(mark, reach.roots, None)
            elif not self._is_under_way(mark) and walks <= begun:
                yield _Work(None, reach.roots, None, waits=mark)
            elif root_count >= room:
                left.append(mark.id)
            else:
                work = self._next_roots(mark, reach)
                root_count += len(work.root_keys)
                begun |= set() if self._is_under_way(mark) else walks
                yield work

    def _is_under_way(self, mark: Mark) -> bool:
        """Whether some of the mark's roots are done. Another mapping's cursor does not count: its lookups differ."""
        return bool(mark.cursor) and mark.cursor.partition(":")[0] == self._revision

    @property
    def _revision(self) -> str:
        return self.refresh.revision[:_REVISION_DIGITS]

    def _find(self, group: Sequence[Step], roots: dict[Root, None]) -> Iterator[Step]:
        """Add the roots that steps of one lookup reach; yield the steps that reach too many."""
        lookup = group[0][0]
        plan = self.refresh.entities[lookup.entity].compiled.plan
        for start in range(0, len(group), VALUES_A_SELECT):
            part = group[start : start + VALUES_A_SELECT]
            limit = self.options.roots * min(len(part), STEPS_OF_MANY)
            keys = self.finder.find_roots(plan, lookup, [values for _, values in part], None, limit)
            if len(keys) < limit:
                roots |= dict.fromkeys((lookup.entity, key) for key in keys)
            elif len(part) == 1:
                yield part[0]
            else:
                half = len(part) // 2
                yield from self._find(part[:half], roots)
                yield from self._find(part[half:], roots)

    def _next_roots(self, mark: Mark, reach: Reach) -> _Work:
        under_way, own = self._is_under_way(mark), self._revision
        number, after = _parsed(mark.cursor) if under_way else (0, None)
        root_keys: dict[Root, set[ItemKey]] = {} if under_way else dict(reach.roots)
        for step_number in range(number, len(reach.steps)):
            lookup, values = reach.steps[step_number]
            plan = self.refresh.entities[lookup.entity].compiled.plan
            keys = self.finder.find_roots(plan, lookup, [values], after, self.options.roots)
            for key in keys:
                root_keys.setdefault((lookup.entity, key), set())
            if len(keys) == self.options.roots:
                return _Work(mark, root_keys, f"{own}:{step_number}:{keys[-1]}")
            after = None
            if len(root_keys) >= self.options.roots and step_number + 1 < len(reach.steps):
                return _Work(mark, root_keys, f"{own}:{step_number + 1}:")
        return _Work(mark, root_keys, None)


def _is_everybodys(error: MigratorError) -> bool:
    of_its_rows = (ItemRefusedError, RowError, TwinRowsError)
    return not isinstance(
        error, (*of_its_rows, UnsettledError, UnwrittenError, MissingNameError, UnfitValueError)
    )


def _parsed(cursor: str) -> tuple[int, str | None]:
    number, _, after = cursor.partition(":")[2].partition(":")
    return int(number), after or None


# ── The entities of a mapping as a concurrent writer needs them ──


def live_entities(
    mapping: MappingModel, entities: Sequence[CompiledEntity], rows: RootFinder
) -> dict[str, LiveEntity]:
    """Entities by name, with the item types that atomic patterns read.

    Such entities have their keys remembered: a mark has only one change's keys, and items of a change with a
    pending mark would show up next to the row's newer ones.
    """
    together = written_together(mapping)
    return {
        entity.name: LiveEntity(
            entity,
            entity.plan.entity.written in together or needs_memory(entity.plan),
            types,
            rows.raw_places(entity.plan),
        )
        for entity in entities
        for types in [together.get(entity.plan.entity.written, frozenset())]
    }


def remembered(entities: Mapping[str, LiveEntity]) -> frozenset[str]:
    return frozenset(name for name, entity in entities.items() if entity.remembered)


PAGE_ROWS = 500


class WholeTable(Struct, frozen=True):
    """Roots that any row of a table may concern, page by page, with their item keys.

    `pages`: a scan of the target, since after a TRUNCATE only items name the former rows.
    """

    plans: Mapping[str, EntityPlan]
    source: Rows
    design: TableDesign
    pages: Callable[[], Iterator[Sequence[Item]]]

    def __call__(self, captured: Captured) -> Iterator[Mapping[Root, Sequence[ItemKey]]]:
        entities = {lookup.entity for lookup in captured.lookups}
        for page in self.pages():
            if roots := self._of_items(page, entities):
                yield roots
        # A row of the truncated table itself that exists by now has a mark of its own.
        for entity in sorted({lookup.entity for lookup in captured.lookups if not lookup.is_root}):
            yield from self._of_rows(entity)

    def _of_items(self, page: Sequence[Item], entities: set[str]) -> dict[Root, list[ItemKey]]:
        roots: dict[Root, list[ItemKey]] = defaultdict(list)
        for item in page:
            root = _root(item.get(self.design.source_attribute))
            key = self.design.key_of(item)
            if root is not None and root[0] in entities and key is not None:
                roots[root].append(key)
        return roots

    def _of_rows(self, entity: str) -> Iterator[dict[Root, list[ItemKey]]]:
        plan, after = self.plans[entity], None
        places = [_place(plan, column.real) for column in plan.key]
        while trees := self.source.read_page(plan, after, None, PAGE_ROWS):
            keys = [encode_key([tree[place] for place in places]) for tree in trees]
            yield {(entity, key): [] for key in keys}
            after = keys[-1]


def _place(plan: EntityPlan, real: str) -> int:
    return next(
        place for place, slot in enumerate(plan.slots) if slot.alias == "" and slot.column.real == real
    )


def _root(text: object) -> Root | None:
    try:
        return split_source(text) if isinstance(text, str) else None
    except ValueError:
        return None
