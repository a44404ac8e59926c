"""An item store in memory; it passes the contract of the real one."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from migrator.mapping.heart.sizes import item_bytes, write_units
from migrator.model.edges import ControlState, Kept, QueryPage, Receipt, ScanPage
from migrator.model.errors import TargetError
from migrator.model.keys import encode_key
from migrator.model.live import Outcome
from migrator.model.table import (
    BATCH_GET_KEYS,
    READ_UNIT_BYTES,
    TOMBSTONE,
    TRANSACTION_ACTIONS,
    Index,
    Item,
    ItemKey,
    TableDesign,
)
from migrator.target.control import control_item, control_key, state_of, with_kept
from tests.fakes.conditions import holds

_PAGE = 7


class FakeStore:
    """model.edges.ItemStore, model.live.ConditionalStore and OwnStore without a server.

    `check` stands before each write, and raises where nothing more must be written. A test may look at `items` and
    change them, and see the `queries` asked.
    """

    def __init__(self, design: TableDesign, check: Callable[[], None]) -> None:
        self.design = design
        self.check = check
        self.items: dict[ItemKey, Item] = {}
        self.queries: list[dict[str, Any]] = []
        self._lock = Lock()
        self._control_seen = False

    def put(self, items: Sequence[Item]) -> Receipt:
        self.check()
        sizes = [item_bytes(item) for item in items]
        for item in items:
            self.items[self.design.key_of(item)] = copy.deepcopy(item)
        return Receipt(len(items), sum(sizes), float(sum(map(write_units, sizes))), -(-len(items) // 25))

    def write(self, items: Sequence[Item], *, fresh: bool = False) -> list[Outcome]:
        self.check()
        with self._lock:
            return [self._write(item) for item in items]

    def write_own(self, items: Sequence[Item]) -> list[Outcome]:
        self.check()
        source = self.design.source_attribute
        outcomes = []
        with self._lock:
            for item in items:
                other = self.items.get(self.design.key_of(item), item)
                free = other.get(source) == item[source] or self._is_dead(other)
                if free:
                    self.put([item])
                outcomes.append(
                    Outcome(item, "stored") if free else Outcome(item, "taken", str(other.get(source, "")))
                )
        return outcomes

    def write_together(self, groups: Sequence[Sequence[Item]]) -> list[Outcome]:
        self.check()
        with self._lock:
            return [one for group in groups for one in self._transact(group)]

    def _transact(self, group: Sequence[Item]) -> list[Outcome]:
        assert len({self.design.key_of(item) for item in group}) == len(group) <= TRANSACTION_ACTIONS
        outcomes = [self._outcome(item) for item in group]
        if all(one.verdict == "stored" for one in outcomes):
            self.put(group)
            return outcomes
        return [Outcome(one.item, "withheld") if one.verdict == "stored" else one for one in outcomes]

    def _write(self, item: Item) -> Outcome:
        outcome = self._outcome(item)
        if outcome.verdict == "stored":
            self.put([item])
        return outcome

    def _outcome(self, item: Item) -> Outcome:
        source, ticket = self.design.source_attribute, self.design.ticket_attribute
        other = self.items.get(self.design.key_of(item))
        if other is not None:
            own, dead = other.get(source) == item[source], self._is_dead(other)
            owner = str(other.get(source, ""))
            known = _number(other.get(ticket, 0))
            if not own and not dead:
                return Outcome(item, "taken", owner, ticket=known)
            if known > _number(item.get(ticket, 0)):
                newer = Outcome(item, "newer", ticket=known)
                return newer if own else Outcome(item, "buried", owner, ticket=known)
        return Outcome(item, "stored")

    def remove_dead(self, tombstones: Sequence[Item]) -> int:
        ticket = self.design.ticket_attribute
        self.check()
        with self._lock:
            found = [(self.design.key_of(one), one[ticket]) for one in tombstones]
            still = [
                key
                for key, drawn in found
                if self._is_dead(self.items.get(key, {})) and self.items[key].get(ticket) == drawn
            ]
            self.delete(still)
        return len(still)

    def read_control(self) -> ControlState:
        return state_of(self.design, self.items.get(self.design.key_of(control_key(self.design))))

    def raise_control(self, ticket: int) -> int:
        self.check()
        with self._lock:
            found = self.read_control()
            if not found.is_there and self._control_seen:
                raise TargetError("the control item is gone")
            self._control_seen = True
            if found.ticket >= ticket:
                return found.ticket
            self.put([control_item(self.design, replace(found, ticket=ticket))])
            return 0

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        with self._lock:
            self.put([control_item(self.design, with_kept(self.read_control(), table_id, job, kept))])
            self._control_seen = True

    def _is_dead(self, item: Item) -> bool:
        return item.get(self.design.type_attribute) == TOMBSTONE

    def delete(self, keys: Sequence[ItemKey]) -> None:
        self.check()
        for key in keys:
            self.items.pop(key, None)

    def delete_own(self, items: Sequence[Item]) -> int:
        self.check()
        source = self.design.source_attribute
        keys = {self.design.key_of(item): item[source] for item in items}
        own = [key for key, text in keys.items() if self.items.get(key, {}).get(source) == text]
        self.delete(own)
        return len(own)

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        return {key: copy.deepcopy(self.items[key]) for key in keys if key in self.items}

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage]:
        mine = sorted(
            (key for key in self.items if zlib.crc32(encode_key(key[:1]).encode()) % segments == segment),
            key=encode_key,
        )
        left = [key for key in mine if start is None or encode_key(key) > encode_key(start)]
        while True:
            page, left = left[:_PAGE], left[_PAGE:]
            yield ScanPage([copy.deepcopy(self.items[key]) for key in page], page[-1] if left else None)
            if not left:
                return

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        """A page of few items, so that whoever asks has to go on; filtered after it is cut, as DynamoDB does."""
        index = self.design.asked(request.get("IndexName"))
        if index is None or (request.get("ConsistentRead") and not index.local):
            raise TargetError("DynamoDB refused query")
        self.queries.append(dict(request))
        found = [
            (self._place(item, index), item)
            for item in self.items.values()
            if all(one.name in item for one in index.attributes)
            and holds(item, request["KeyConditionExpression"], request)
        ]
        found.sort(key=lambda one: one[0], reverse=not request.get("ScanIndexForward", True))
        skipped = 0 if start is None else self._before(found, start["place"], request)
        size = min(_PAGE, request.get("Limit", _PAGE))
        page = found[skipped : skipped + size]
        wanted = request.get("FilterExpression", "")
        items = [copy.deepcopy(item) for _, item in page if not wanted or holds(item, wanted, request)]
        more = len(found) > skipped + size
        place = {"place": page[-1][0]} if more else None
        return QueryPage(items, place, _units([i for _, i in page]), dropped=len(page) - len(items))

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        index = self.design.asked(request.get("IndexName"))
        assert index is not None
        return {"place": self._place(position, index)}

    def _before(self, found: Sequence[tuple[Any, Item]], place: Any, request: Mapping[str, Any]) -> int:
        """How many stand before the place, which may be an item's that is gone, or at it."""
        if request.get("ScanIndexForward", True):
            return sum(one <= place for one, _ in found)
        return sum(one >= place for one, _ in found)

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        items = list(self.get([self.design.key_of(request["Key"])]).values())
        return QueryPage(items, read_units=_units(items))

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        """In the order in which they were stored, as DynamoDB promises none."""
        keys = [self.design.key_of(key) for key in request["Keys"]]
        if len(keys) > BATCH_GET_KEYS or len(keys) != len(set(keys)):
            raise TargetError("DynamoDB refused batch_get_item")
        items = [copy.deepcopy(item) for key, item in self.items.items() if key in keys]
        return QueryPage(items, read_units=_units(items))

    def _place(self, item: Item, index: Index) -> tuple[Any, ...]:
        return (tuple(item[one.name] for one in index.sort), self.design.key_of(item))


def _number(value: Any) -> int:
    assert isinstance(value, int)
    return value


def _units(items: Sequence[Item]) -> float:
    return 0.5 * -(-sum(map(item_bytes, items)) // READ_UNIT_BYTES)
