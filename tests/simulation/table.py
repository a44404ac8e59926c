"""A DynamoDB table in memory: conditional writes that may land late, twice, or not at all, each a step of its own.

A transaction is one request, and so one step; its token is of no use here: all of it may land once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from migrator.errors import StoppedError
from migrator.model import TOMBSTONE, Item, ItemKey, TableDesign
from migrator.ports import Receipt
from migrator.ports.live import Outcome
from tests.simulation.scheduler import Scheduler

REQUEST_LIFE_S = 60.0


@dataclass
class Late:
    """A request that is still under way, of one item or of a transaction's; `conditional`: with rule 3's condition."""

    items: list[Item]
    ends_at: float
    conditional: bool


@dataclass
class Table:
    """`faults`: how often a request is repeated, lost, or lands when nobody waits for it any more."""

    schedule: Scheduler
    design: TableDesign
    faults: float = 0.1
    items: dict[ItemKey, Item] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        return [outcome for item in items for outcome in self._send([item])]

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        return [outcome for group in groups for outcome in self._send(group)]

    def put(self, item: Item) -> None:
        """Without any condition."""
        self._send([item], conditional=False)

    def remove_dead(self, tombstones: Sequence[Item]) -> int:
        removed = 0
        for tombstone in tombstones:
            self.schedule.step()
            if self.items.get(self.design.key_of(tombstone)) == tombstone:
                del self.items[self.design.key_of(tombstone)]
                removed += 1
        return removed

    def read_control(self) -> int:
        self.schedule.step()
        return max((int(str(item["_tk"])) for item in self.items.values()), default=0)

    def deliver(self, number: int) -> None:
        """One of the late requests lands; one that has outlived its time does not."""
        late = self.late.pop(number)
        if late.ends_at >= self.schedule.now_s:
            self._land(late.items, conditional=late.conditional)

    def live(self) -> dict[ItemKey, Item]:
        return {key: item for key, item in self.items.items() if item["T"] != TOMBSTONE}

    def _send(self, items: Sequence[Item], *, conditional: bool = True) -> list[Outcome]:
        ends_at = self.schedule.now_s + REQUEST_LIFE_S
        sent = [dict(item) for item in items]
        self.schedule.step()
        if self.schedule.now_s > ends_at:
            raise StoppedError("the request's signature is too old")
        if not self.schedule.chance(self.faults):
            return self._land(sent, conditional=conditional)
        late = Late(sent, ends_at, conditional)
        fate = self.schedule.random.randrange(4)
        if fate != 1:
            self.late.append(late)
        if fate <= 1:
            raise StoppedError("no answer")
        answer = self._land(sent, conditional=conditional)
        if fate == 2:
            raise StoppedError("no answer")
        return answer

    def _land(self, items: Sequence[Item], *, conditional: bool) -> list[Outcome]:
        """All of the items are written, or none of them."""
        if len(items) == 1:
            return [self._apply(items[0], conditional=conditional)]
        before = {key: self.items.get(key) for key in map(self.design.key_of, items)}
        outcomes = [self._apply(item, conditional=conditional) for item in items]
        if all(one.verdict == "stored" for one in outcomes):
            return outcomes
        for key, there in before.items():
            if there is None:
                self.items.pop(key, None)
            else:
                self.items[key] = there
        return [Outcome(one.item, "withheld") if one.verdict == "stored" else one for one in outcomes]

    def _apply(self, item: Item, *, conditional: bool) -> Outcome:
        key = self.design.key_of(item)
        there = self.items.get(key)
        if there is not None and conditional:
            own, newer = there["_src"] == item["_src"], there["_tk"] > item["_tk"]  # type: ignore[operator]
            dead = there["T"] == TOMBSTONE
            if own and newer:
                return Outcome(item, "newer")
            if not own and dead and newer:
                return Outcome(item, "buried", str(there["_src"]))
            if not own and not dead:
                return Outcome(item, "taken", str(there["_src"]))
        self.items[key] = dict(item)
        return Outcome(item, "stored")


@dataclass
class FastStore:
    """The table as the fast path writes to it."""

    table: Table
    check: Callable[[], None]

    def put(self, items: Sequence[Item]) -> Receipt:
        for item in items:
            self.check()
            self.table.put(item)
        return Receipt(len(items))
