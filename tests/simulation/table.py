"""A DynamoDB table in memory: conditional writes that may land late, twice, or not at all, each a step of its own."""

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
    """A request that is still under way; `conditional`: with rule 3's condition."""

    item: Item
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
        return [self._send(item) for item in items]

    def put(self, item: Item) -> None:
        """Without any condition."""
        self._send(item, conditional=False)

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
            self._apply(late.item, conditional=late.conditional)

    def live(self) -> dict[ItemKey, Item]:
        return {key: item for key, item in self.items.items() if item["T"] != TOMBSTONE}

    def _send(self, item: Item, *, conditional: bool = True) -> Outcome:
        ends_at = self.schedule.now_s + REQUEST_LIFE_S
        sent = dict(item)
        self.schedule.step()
        if self.schedule.now_s > ends_at:
            raise StoppedError("the request's signature is too old")
        if not self.schedule.chance(self.faults):
            return self._apply(sent, conditional=conditional)
        late = Late(sent, ends_at, conditional)
        fate = self.schedule.random.randrange(4)
        if fate != 1:
            self.late.append(late)
        if fate <= 1:
            raise StoppedError("no answer")
        answer = self._apply(sent, conditional=conditional)
        if fate == 2:
            raise StoppedError("no answer")
        return answer

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
