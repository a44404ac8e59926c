"""Refresh: writes the items of root rows as they are now, under a ticket, concurrently with other writers."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from migrator.mapping.heart.items import CompiledEntity, keys_for
from migrator.model.edges import Control, ObjectStore
from migrator.model.errors import SettingsError, StoppedError
from migrator.model.facts import EntityPlan
from migrator.model.keys import source_text, split_source
from migrator.model.live import ConditionalStore, KeyRequest, Memory, Outcome, Root, Tickets
from migrator.model.results import Refreshed
from migrator.model.table import TOMBSTONE, Item, ItemKey, RowTree, SourceKey, TableDesign
from migrator.stages.live.send import send, sorted_out
from migrator.stages.projection import project, stamp

# ── One round of a refresh: a ticket, what was read with it, and what came of writing that ──


@dataclass(slots=True)
class Written:
    """What came of one item: whose it is, where it stands, and whether it was put or buried."""

    outcome: Outcome
    root: Root
    key: ItemKey
    is_put: bool


def written_of(outcome: Outcome, table: TableDesign) -> Written:
    item = outcome.item
    root = split_source(str(item[table.source_attribute]))
    return Written(outcome, root, table.key_of(item), item[table.type_attribute] != TOMBSTONE)


class UnwrittenError(StoppedError):
    """The table took other items, and some not. `roots`: whose those are; `items`: their keys, each with why."""

    def __init__(self, unwritten: Sequence[Written]) -> None:
        self.items = {one.key: one.outcome.why for one in unwritten}
        self.roots = frozenset(one.root for one in unwritten)
        whys = "; ".join(sorted(set(self.items.values())))
        super().__init__(f"the table does not take an item of its rows: {whys}")


def refuse_unwritten(written: Sequence[Written]) -> None:
    """Raises: UnwrittenError where an item was not taken."""
    unwritten = [one for one in written if one.outcome.verdict == "unwritten"]
    if unwritten:
        raise UnwrittenError(unwritten)


@dataclass
class Round:
    """`told`: keys that each root had. `states`: the items that it has. `recalled`: keys that were intended for it before.

    `withheld`: keys that were fine, in groups that were not written.
    """

    ticket: int
    told: Mapping[Root, set[ItemKey]]
    states: dict[Root, dict[ItemKey, Item]]
    recalled: dict[Root, frozenset[ItemKey]] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    withheld: set[tuple[Root, ItemKey]] = field(default_factory=set)

    def stale(self) -> Iterator[tuple[Root, ItemKey]]:
        """Keys that a root had and has not, in one order, so that a schedule can be replayed."""
        for root, items in self.states.items():
            had = {*self.told[root], *self.recalled.get(root, ())} - items.keys()
            yield from ((root, key) for key in sorted(had, key=repr))


# ──
# Refresh: makes the items of root rows what the rows say now. The one way to write beside other writers.

Told: TypeAlias = Mapping[Root, Collection[ItemKey]]
"""Roots to be refreshed, each with item keys that it had; those that it no longer has become tombstones."""

ROUNDS = 20
"""Readings after which roots that still change hands are left to a later try."""
TOMBSTONE_DAYS = 7


class RowReader(Protocol):
    """Reads root rows by key; each call begins a snapshot of its own."""

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]: ...


def drawn(tickets: Tickets, memory: Memory, control: Control) -> int:
    """A new ticket that journal and table know of before anything is written with it (rule 8).

    Raises: RestoredError where the source's counter has gone back.
    """
    # Asked first: a ticket that somebody draws after us may be reached before ours. And nothing is drawn by who must
    # not write: each draw would bring a counter that was restored nearer to where nobody notices it.
    known = memory.highest()
    counter = tickets.highest()
    if counter < known:
        raise RestoredError(behind(counter, known))
    ticket = tickets.draw()
    if ticket <= known:
        raise RestoredError(behind(ticket, known))
    memory.reached(ticket)
    # The journal may have gone back with the source; the table has not. No two draw the same number.
    other = control.raise_control(ticket)
    if other == ticket:
        memory.reached(other + 1)
        raise RestoredError(behind(ticket - 1, other))
    refuse_above(other, tickets, memory)
    return ticket


def refuse_above(ticket: int, tickets: Tickets, memory: Memory) -> None:
    """Raises: RestoredError where the table holds a ticket that the source's counter has not reached: it was drawn, so the
    counter has gone back. The journal is told, so that nobody who shares it draws any more."""
    counter = tickets.highest() if ticket else 0
    if counter < ticket:
        memory.reached(ticket)
        raise RestoredError(behind(counter, ticket))


def highest_above(outcomes: Iterable[Outcome], ticket: int) -> int:
    """The highest ticket that refused a write with this one; 0 where none is higher. Strangers' items have none."""
    refused = (one.ticket for one in outcomes if one.verdict in ("newer", "buried"))
    return max((known for known in refused if known > ticket), default=0)


def behind(ticket: int, known: int) -> str:
    """Why nothing is written: what the source's counter says, and what was written with."""
    what = f"the source's ticket counter stands at {ticket}, and items were written with {known}"
    why = "the source was restored to an older state, or capture was uninstalled and installed anew"
    return f"{what}: {why}; run `migrator capture epoch JOB --raise`, then `migrator verify JOB --repair`"


class RestoredError(SettingsError):
    """The source's counter has gone back; nobody writes until its epoch was raised."""


class UnsettledError(StoppedError):
    """Rows changed hands faster than they could be followed; the same work succeeds later."""


@dataclass(frozen=True)
class LiveEntity:
    """`remembered`: its keys cannot be worked out from one row, so they are remembered (rule 7). `together`: item types
    that are written in one transaction (see mapping/check/keys.py)."""

    compiled: CompiledEntity
    remembered: bool
    together: frozenset[str] = frozenset()


@dataclass
class Refresh:
    """Rules 2, 3, 4 and 7 of docs/protocol.md. `check` raises when its worker must write no more."""

    rows: RowReader
    store: ConditionalStore
    tickets: Tickets
    memory: Memory
    control: Control
    entities: Mapping[str, LiveEntity]
    table: TableDesign
    revision: str
    check: Callable[[], None]
    clock: Callable[[], float] = time.time
    objects: ObjectStore | None = None

    def __call__(self, told: Told) -> Refreshed:
        """Refreshes the roots, and those that have a key which one of them wants.

        Raises: UnsettledError, UnwrittenError, or what an edge raises when it gave up; any part may be written then, and
        the same roots are to be refreshed again.
        """
        work = _Refreshing(self)
        left: dict[Root, set[ItemKey]] = {root: set(keys) for root, keys in told.items()}
        for _ in range(ROUNDS):
            if not left:
                return work.result
            left = work.round(left)
        if left:
            raise UnsettledError(f"{len(left)} row(s) changed faster than they could be followed")
        return work.result

    @property
    def together(self) -> Mapping[str, frozenset[str]]:
        """Per entity, the item types that are written in one transaction."""
        return {name: one.together for name, one in self.entities.items() if one.together}

    def bury(self, root: Root, key: ItemKey, ticket: int) -> Item:
        """A tombstone: key, source, ticket and TTL; no index key."""
        item: Item = {one.name: value for one, value in zip(self.table.key, key, strict=True)}
        item[self.table.type_attribute] = TOMBSTONE
        item[self.table.source_attribute] = source_text(*root)
        item[self.table.ticket_attribute] = ticket
        item[self.table.revision_attribute] = self.revision
        if self.table.ttl is not None:
            item[self.table.ttl] = int(self.clock()) + TOMBSTONE_DAYS * 86_400
        return item


@dataclass
class _Refreshing:
    """One call of a refresh, round by round."""

    stage: Refresh
    result: Refreshed = field(default_factory=Refreshed)
    contested: set[tuple[Root, ItemKey]] = field(default_factory=set)
    """Key requests that the memory knew before the round began, so that its reading is later than they are."""
    apart: set[tuple[Root, ItemKey]] = field(default_factory=set)
    """Keys that stay out of their root's transaction, which they would keep from ever coming about."""

    def round(self, told: Mapping[Root, set[ItemKey]]) -> dict[Root, set[ItemKey]]:
        """One ticket, one reading, one writing; the roots that have to be read again."""
        stage = self.stage
        ticket = drawn(stage.tickets, stage.memory, stage.control)
        one = self._read(ticket, told)
        again: dict[Root, set[ItemKey]] = defaultdict(set)
        for root in self._remember(one):
            again[root] |= told[root]
        self._write(one)
        for written in one.written:
            self._follow(one, written, again)
        self._ask_contesters(one, again)
        self._settle(one, again)
        return {root: keys | told.get(root, set()) for root, keys in again.items()}

    # ── reading ──

    def _read(self, ticket: int, told: Mapping[Root, set[ItemKey]]) -> Round:
        """The items of each root as its row is now; none where there is no row, or `items_for` refuses it."""
        by_entity: dict[str, list[SourceKey]] = defaultdict(list)
        for name, key in told:
            by_entity[name].append(key)
        found: dict[Root, dict[ItemKey, Item]] = {root: {} for root in told}
        had = {root: set(keys) for root, keys in told.items()}
        self.result.read_again(told.keys(), ticket)
        for name, keys in by_entity.items():
            entity = self.stage.entities[name].compiled
            rows = self.stage.rows.read_rows(entity.plan, keys)
            projected = project(entity, rows, self.stage.clock())
            self.result.refused += projected.refused
            if projected.objects and self.stage.objects is not None:
                self.stage.objects.put(projected.objects)
            refused = {finding.source_key for finding in projected.refused}
            for row in rows:
                root = (name, entity.source_key(row))
                # A source whose keys ignore case finds another row as well: it is none of those that were asked for.
                if root in had:
                    had[root] |= keys_for(entity, row, refused=root[1] in refused)
            for item in projected.items:
                root = split_source(str(item[self.stage.table.source_attribute]))
                if root in found:
                    found[root][self.stage.table.key_of(item)] = item
        self.result.roots += len(told)
        return Round(ticket, had, found)

    def _remember(self, one: Round) -> list[Root]:
        """Adds the keys that were intended before; the roots of which somebody knows more, who are not written."""
        mine = {root: list(items) for root, items in one.states.items() if self._is_remembered(root)}
        behind = []
        for root, before in self.stage.memory.remember(one.ticket, mine).items() if mine else ():
            if before.ticket > one.ticket:
                behind.append(root)
                del one.states[root]
            else:
                one.recalled[root] = before.keys
        return behind

    def _is_remembered(self, root: Root) -> bool:
        return self.stage.entities[root[0]].remembered

    # ── writing ──

    def _write(self, one: Round) -> None:
        stage = self.stage
        dead = [stage.bury(root, key, one.ticket) for root, key in one.stale()]
        live = [item for items in one.states.values() for item in items.values()]
        stamp(live, stage.table, one.ticket)
        sending = sorted_out([*dead, *live], stage.table, stage.together, self.apart)
        outcomes = send(stage.store, sending, stage.table, stage.check)
        self.result.apart |= dict.fromkeys(sending.findings())
        one.written += [written_of(outcome, stage.table) for outcome in outcomes]
        refuse_unwritten(one.written)
        refuse_above(highest_above(outcomes, one.ticket), stage.tickets, stage.memory)
        one.withheld |= {(put.root, put.key) for put in one.written if put.outcome.verdict == "withheld"}

    # ── what came of it ──

    def _follow(self, one: Round, written: Written, again: dict[Root, set[ItemKey]]) -> None:
        outcome, root = written.outcome, written.root
        self._count(outcome, written.is_put)
        if outcome.verdict in ("buried", "withheld"):
            again[root] |= set()
        elif outcome.verdict == "taken":
            self._ask(one, (root, written.key), outcome.owner, again, is_put=written.is_put)

    def _ask(
        self,
        one: Round,
        wish: tuple[Root, ItemKey],
        owner_text: str,
        again: dict[Root, set[ItemKey]],
        *,
        is_put: bool,
    ) -> None:
        """The root that has the key is read again, then the one that wants it; unless that was done just now."""
        root, key = wish
        owner = self._root_of(owner_text)
        self._part(one, wish, owner, is_put=is_put)
        # Asked in a reading that began after the key request was written: a later change of the owner finds it.
        answered = owner in one.told and (not is_put or wish in self.contested)
        if owner is None or (answered and key in one.states.get(owner, {})):
            self.apart.add(wish)
            if is_put:
                self.stage.memory.request_keys([KeyRequest(key, root)])
                self.result.collisions.add(KeyRequest(key, root))
            return
        if is_put and wish not in self.contested:
            self.stage.memory.request_keys([KeyRequest(key, root)])
            self.contested.add(wish)
        again[root] |= {key}
        again[owner] |= {key}

    def _part(self, one: Round, wish: tuple[Root, ItemKey], owner: Root | None, *, is_put: bool) -> None:
        """Keeps keys out of transactions that would wait for each other, or for a key that is another's, for ever."""
        key = wish[1]
        if not is_put:
            # Nothing of this root stands there, so that no reader sees its tombstone come later.
            self.apart.add(wish)
        elif owner is not None and (owner, key) in one.withheld and key not in one.states.get(owner, {}):
            # The owner would give it up, and its own transaction waits for a key, perhaps for one of this root's.
            self.apart.add((owner, key))

    def _ask_contesters(self, one: Round, again: dict[Root, set[ItemKey]]) -> None:
        """Rows that asked for a key which was given up are read again; requests that are fulfilled or gone are forgotten."""
        keys = {written.key for written in one.written}
        wishes = self.stage.memory.contests(sorted(keys, key=repr)) if keys else ()
        stored = (
            {(w.root, w.key, w.is_put) for w in one.written if w.outcome.verdict == "stored"}
            if wishes
            else ()
        )
        conceded = []
        for wish in wishes:
            asked = one.states.get(wish.root)
            if asked is not None and (wish.key not in asked or (wish.root, wish.key, True) in stored):
                conceded.append(wish)
            elif any(key == wish.key and not put and root != wish.root for root, key, put in stored):
                again[wish.root] |= {wish.key}
        if conceded:
            self.stage.memory.withdraw(conceded)
            self.result.collisions -= set(conceded)

    def _settle(self, one: Round, again: Mapping[Root, set[ItemKey]]) -> None:
        """What was tombstoned need not be remembered any longer."""
        done = {root: list(one.states[root]) for root in one.recalled if root not in again}
        if done:
            self.stage.memory.settle(one.ticket, done)

    def _root_of(self, text: str) -> Root | None:
        """The root that a `_src` names; None where it is none of this mapping."""
        try:
            root = split_source(text)
        except ValueError:
            return None
        return root if root[0] in self.stage.entities else None

    def _count(self, outcome: Outcome, is_put: bool) -> None:
        result = self.result
        if outcome.verdict == "stored":
            result.stored, result.buried = result.stored + is_put, result.buried + (not is_put)
        elif outcome.verdict == "newer":
            result.newer += 1
