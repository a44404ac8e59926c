"""A DynamoDB table in memory: conditional writes that may land late, twice, or not at all, each a step of its own.

A transaction is one request, and so one step; its token is of no use here: all of it may land once more.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.dynamodb.answers import missing_parts, missing_reasons
from migrator.dynamodb.control import with_kept
from migrator.mapping.items.encoder import item_of
from migrator.mapping.model.edges import ControlState, Kept, Receipt
from migrator.mapping.model.live import Outcome, Verdict
from migrator.mapping.model.table import TOMBSTONE, EncodedItem, Item, ItemKey, TableDesign
from migrator.runtime.errors import StoppedError
from migrator.runtime.values import replace
from tests.simulation.scheduler import Scheduler

REQUEST_LIFE_S = 60.0
SavedTable: TypeAlias = tuple[dict[ItemKey, Item], ControlState]
_PARAMS = {"ReturnConsumedCapacity": "INDEXES", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
_REFUSED = {"Error": {"Code": "ConditionalCheckFailedException"}}


@dataclass
class Request:
    """A request that is still under way, of one item or of a transaction's; `conditional`: with rule 3's condition;
    `is_insert`: an INSERT, which takes effect where nothing is."""

    items: Sequence[EncodedItem]
    ends_at: float
    conditional: bool
    is_insert: bool


@dataclass
class Table:
    """`faults`: how often a request is repeated, lost, answered with nothing, or lands when no caller waits for it any more."""

    schedule: Scheduler
    design: TableDesign
    faults: float = 0.1
    items: dict[ItemKey, Item] = field(default_factory=dict)
    late: list[Request] = field(default_factory=list)
    control: ControlState = ControlState()
    table_id: str = "table"
    sends_texts = True
    sending: Callable[[], None] = lambda: None
    """Told before each request."""

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        """`fresh`: inserts, and then the puts of those that were refused."""
        inserted = {item.key for item in items if fresh and self._inserted(item)}
        return [
            outcome
            for item in items
            for outcome in ([Outcome(item, "stored")] if item.key in inserted else self._send([item]))
        ]

    def _inserted(self, item: EncodedItem) -> bool:
        """Whether an INSERT put it where nothing was. One without an answer may be sent again, and finds its own item."""
        try:
            (outcome,) = self._send([item], is_insert=True)
        except StoppedError:
            if self.schedule.chance(0.5):
                raise
            return False
        return outcome.verdict == "stored"

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        return [outcome for group in groups for outcome in self._send(group)]

    def put(self, item: EncodedItem) -> None:
        """Without any condition."""
        self._send([item], conditional=False)

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        removed = 0
        for tombstone in tombstones:
            self.schedule.step()
            if self.items.get(self.design.key_of(tombstone)) == tombstone:
                del self.items[self.design.key_of(tombstone)]
                removed += 1
        return removed

    # ── the control item ──

    def read_control(self) -> ControlState:
        self.schedule.step()
        return self.control

    def raise_control(self, ticket: int) -> int:
        self.schedule.step()
        ticket_there = self.control.ticket
        if ticket_there < ticket:
            self.control = replace(self.control, ticket=ticket, is_there=True)
        if self.schedule.chance(self.faults / 4):
            raise StoppedError("no answer")
        return ticket_there if ticket_there >= ticket else 0

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        self.schedule.step()
        self.control = with_kept(self.control, table_id, job, kept)

    # ── a state to go back to ──

    def saved(self) -> SavedTable:
        return copy.deepcopy((self.items, self.control))

    def restore(self, saved: SavedTable) -> None:
        """Another table under the same name, as it is with DynamoDB."""
        self.items, self.control = copy.deepcopy(saved)
        self.late.clear()
        self.table_id += "'"

    def deliver(self, number: int) -> None:
        """One of the late requests lands; one that has outlived its time does not."""
        late = self.late.pop(number)
        if late.ends_at >= self.schedule.now_s:
            self._land(late)

    def live(self) -> dict[ItemKey, Item]:
        return {key: item for key, item in self.items.items() if item["T"] != TOMBSTONE}

    def _send(
        self, items: Sequence[EncodedItem], *, conditional: bool = True, is_insert: bool = False
    ) -> list[Outcome]:
        self.sending()
        ends_at = self.schedule.now_s + REQUEST_LIFE_S
        request = Request(items, ends_at, conditional, is_insert)
        self.schedule.step()
        if self.schedule.now_s > ends_at:
            raise StoppedError("the request's signature is too old")
        if not self.schedule.chance(self.faults):
            return self._land(request)
        fate = self.schedule.random.randrange(6)
        if fate == 4:
            # 200, and nothing was written.
            return self._unread(items, "stored", missing_parts("PutItem", _PARAMS, {}))
        if fate == 5:
            # A refusal that does not name the other item: it looks like a foreign one.
            return self._unread(items, "owned_by_other", missing_reasons(_PARAMS, _REFUSED))
        if fate != 1:
            self.late.append(request)
        if fate <= 1:
            raise StoppedError("no answer")
        answer = self._land(request)
        if fate == 2:
            raise StoppedError("no answer")
        return answer

    def lacks(self, parts: Iterator[str]) -> bool:
        """Whether the product finds that something is missing in an answer."""
        return any(parts)

    def _unread(
        self, items: Sequence[EncodedItem], verdict: Verdict, missing: Iterator[str]
    ) -> list[Outcome]:
        """The outcome of an answer with parts missing: no answer, or, for a caller that does not check, its apparent one."""
        if self.lacks(missing):
            raise StoppedError("no answer")
        return [Outcome(item, verdict) for item in items]

    def _land(self, request: Request) -> list[Outcome]:
        """All of the items are written, or none of them."""
        items, conditional = request.items, request.conditional
        if request.is_insert:
            return [self._insert(item) for item in items]
        if len(items) == 1:
            return [self._apply(items[0], conditional=conditional)]
        before = {item.key: self.items.get(item.key) for item in items}
        outcomes = [self._apply(item, conditional=conditional) for item in items]
        if all(outcome.verdict == "stored" for outcome in outcomes):
            return outcomes
        for key, there in before.items():
            if there is None:
                self.items.pop(key, None)
            else:
                self.items[key] = there
        return [
            Outcome(outcome.item, "rolled_back") if outcome.verdict == "stored" else outcome
            for outcome in outcomes
        ]

    def _insert(self, item: EncodedItem) -> Outcome:
        if item.key in self.items:
            return Outcome(item, "owned_by_other")
        self.items[item.key] = item_of(item)
        return Outcome(item, "stored")

    def _apply(self, item: EncodedItem, *, conditional: bool) -> Outcome:
        there = self.items.get(item.key)
        if there is not None and conditional:
            # A service that writes the table itself leaves neither.
            owner, ticket = str(there.get("_src", "")), int(str(there.get("_tk", 0)))
            own, newer = owner == item.source, ticket > item.ticket
            is_tombstone = there["T"] == TOMBSTONE
            if own and newer:
                return Outcome(item, "newer", ticket=ticket)
            if not own and is_tombstone and newer:
                return Outcome(item, "tombstoned_by_other", owner, ticket=ticket)
            if not own and not is_tombstone:
                return Outcome(item, "owned_by_other", owner, ticket=ticket)
        self.items[item.key] = item_of(item)
        return Outcome(item, "stored")


@dataclass
class FastStore:
    """The table as the fast path writes to it."""

    table: Table
    check: Callable[[], None]
    sends_texts: bool = False

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        for item in items:
            self.check()
            self.table.put(item)
        return Receipt(len(items))
