"""An item store in memory; it passes the contract of the real one."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import orjson

from migrator.dynamodb.control import control_item, control_key, state_of, with_kept
from migrator.mapping.items.encoder import encoded_of, item_of
from migrator.mapping.items.wire import base64_text, encode_item, item_bytes, write_units
from migrator.mapping.model.edges import (
    ControlState,
    Found,
    Kept,
    QueryPage,
    Receipt,
    ScanPage,
    WiredItem,
)
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import (
    BATCH_GET_KEYS,
    READ_UNIT_BYTES,
    TOMBSTONE,
    TRANSACTION_ACTIONS,
    EncodedItem,
    Index,
    Item,
    ItemKey,
    TableDesign,
    encode_key,
)
from migrator.runtime.errors import TargetError
from migrator.runtime.values import replace
from tests.fakes.conditions import holds

_PAGE = 7


class FakeStore:
    """model.edges.ItemStore, model.live.ConditionalStore and OwnStore without a server.

    `check` stands before each write, and raises where nothing more must be written. A test may look at `items` and
    change them, and see the `queries` asked.
    """

    sends_texts = True

    def __init__(self, design: TableDesign, check: Callable[[], None]) -> None:
        self.design = design
        self.check = check
        self.items: dict[ItemKey, Item] = {}
        self.queries: list[dict[str, Any]] = []
        self._lock = Lock()
        self._control_seen = False

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        self.check()
        for item in items:
            self._store(item)
        sizes = [item.size_bytes for item in items]
        return Receipt(len(items), sum(sizes), float(sum(map(write_units, sizes))), -(-len(items) // 25))

    def _store(self, item: EncodedItem) -> None:
        plain = item_of(item)
        assert item._replace(json=b"") == encoded_of(plain, self.design)._replace(json=b"")
        self.items[item.key] = plain

    def write(self, items: Sequence[EncodedItem], *, fresh: bool = False) -> list[Outcome]:
        self.check()
        with self._lock:
            return [self._write(item) for item in items]

    def write_own(self, items: Sequence[EncodedItem]) -> list[Outcome]:
        self.check()
        source = self.design.source_attribute
        outcomes = []
        with self._lock:
            for item in items:
                other = self.items.get(item.key, {source: item.source})
                free = other.get(source) == item.source or self._is_tombstone(other)
                if free:
                    self._store(item)
                outcomes.append(
                    Outcome(item, "stored")
                    if free
                    else Outcome(item, "owned_by_other", str(other.get(source, "")))
                )
        return outcomes

    def write_together(self, groups: Sequence[Sequence[EncodedItem]]) -> list[Outcome]:
        self.check()
        with self._lock:
            return [outcome for group in groups for outcome in self._transact(group)]

    def _transact(self, group: Sequence[EncodedItem]) -> list[Outcome]:
        assert len({item.key for item in group}) == len(group) <= TRANSACTION_ACTIONS
        outcomes = [self._outcome(item) for item in group]
        if all(outcome.verdict == "stored" for outcome in outcomes):
            for item in group:
                self._store(item)
            return outcomes
        return [
            Outcome(outcome.item, "rolled_back") if outcome.verdict == "stored" else outcome
            for outcome in outcomes
        ]

    def _write(self, item: EncodedItem) -> Outcome:
        outcome = self._outcome(item)
        if outcome.verdict == "stored":
            self._store(item)
        return outcome

    def _outcome(self, item: EncodedItem) -> Outcome:
        source, ticket = self.design.source_attribute, self.design.ticket_attribute
        other = self.items.get(item.key)
        if other is not None:
            own, is_tombstone = other.get(source) == item.source, self._is_tombstone(other)
            owner = str(other.get(source, ""))
            ticket_there = _number(other.get(ticket, 0))
            if not own and not is_tombstone:
                return Outcome(item, "owned_by_other", owner, ticket=ticket_there)
            if ticket_there > item.ticket:
                newer = Outcome(item, "newer", ticket=ticket_there)
                return newer if own else Outcome(item, "tombstoned_by_other", owner, ticket=ticket_there)
        return Outcome(item, "stored")

    def remove_tombstones(self, tombstones: Sequence[Item]) -> int:
        self.check()
        return self.delete_if(tombstones, [self.design.type_attribute, self.design.ticket_attribute])

    def read_control(self) -> ControlState:
        return state_of(self.design, self.items.get(self.design.key_of(control_key(self.design))))

    def raise_control(self, ticket: int) -> int:
        self.check()
        with self._lock:
            state = self.read_control()
            if not state.is_there and self._control_seen:
                raise TargetError("the control item is gone")
            self._control_seen = True
            if state.ticket >= ticket:
                return state.ticket
            self.put([encoded_of(control_item(self.design, replace(state, ticket=ticket)), self.design)])
            return 0

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        with self._lock:
            kept_item = control_item(self.design, with_kept(self.read_control(), table_id, job, kept))
            self.put([encoded_of(kept_item, self.design)])
            self._control_seen = True

    def _is_tombstone(self, item: Item) -> bool:
        return item.get(self.design.type_attribute) == TOMBSTONE

    def delete(self, keys: Sequence[ItemKey]) -> None:
        self.check()
        for key in keys:
            self.items.pop(key, None)

    def delete_own(self, items: Sequence[Item]) -> int:
        self.check()
        return self.delete_if(items, [self.design.source_attribute])

    def delete_if(self, items: Sequence[Item], held: Sequence[str]) -> int:
        gone = 0
        with self._lock:
            for item in items:
                there = self.items.get(key := self.design.key_of(item), item)
                if all(there.get(name) == item[name] for name in held):
                    self.items.pop(key, None)
                    gone += 1
        return gone

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        return {key: copy.deepcopy(self.items[key]) for key in keys if key in self.items}

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage[Item]]:
        own_keys = sorted(
            (
                key
                for key in list(self.items)
                if zlib.crc32(encode_key(key[:1]).encode()) % segments == segment
            ),
            key=encode_key,
        )
        left = [key for key in own_keys if start is None or encode_key(key) > encode_key(start)]
        while True:
            page, left = left[:_PAGE], left[_PAGE:]
            yield ScanPage([copy.deepcopy(self.items[key]) for key in page], page[-1] if left else None)
            if not left:
                return

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScanPage[Found]]:
        """Attributes come in another order than they were put, as DynamoDB promises none."""
        for page in self.scan(segment, segments, start):
            wired = [dict(reversed(encode_item(item).items())) for item in page.items]
            items = orjson.loads(orjson.dumps(wired, default=base64_text))
            yield ScanPage([each(item) for item in items], page.next_start)

    def scan_text(
        self,
        segment: int,
        segments: int,
        see: Callable[[bytes], list[Found]],
        start: ItemKey | None = None,
    ) -> Iterator[ScanPage[Found]]:
        for page in self.scan_encoded(segment, segments, orjson.dumps, start):
            yield ScanPage(see(b",".join(page.items)), page.next_start)

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        """A page of few items, so that the reader has to go on; filtered after it is cut, as DynamoDB does."""
        index = self.design.asked(request.get("IndexName"))
        if index is None or (request.get("ConsistentRead") and not index.local):
            raise TargetError("DynamoDB refused query")
        self.queries.append(dict(request))
        matching = [
            (self._sort_key(item, index), item)
            for item in self.items.values()
            if all(one.name in item for one in index.attributes)
            and holds(item, request["KeyConditionExpression"], request)
        ]
        matching.sort(key=lambda one: one[0], reverse=not request.get("ScanIndexForward", True))
        skipped = 0 if start is None else self._before(matching, start["place"], request)
        size = min(_PAGE, request.get("Limit", _PAGE))
        page = matching[skipped : skipped + size]
        wanted = request.get("FilterExpression", "")
        items = [copy.deepcopy(item) for _, item in page if not wanted or holds(item, wanted, request)]
        has_more = len(matching) > skipped + size
        last_key = {"place": page[-1][0]} if has_more else None
        return QueryPage(items, last_key, _units([i for _, i in page]), dropped=len(page) - len(items))

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        index = self.design.asked(request.get("IndexName"))
        assert index is not None
        return {"place": self._sort_key(position, index)}

    def _before(self, matching: Sequence[tuple[Any, Item]], sort_key: Any, request: Mapping[str, Any]) -> int:
        """How many items stand before the sort key, or at it; the item that had it may be gone."""
        if request.get("ScanIndexForward", True):
            return sum(one <= sort_key for one, _ in matching)
        return sum(one >= sort_key for one, _ in matching)

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

    def _sort_key(self, item: Item, index: Index) -> tuple[Any, ...]:
        return (tuple(item[attribute.name] for attribute in index.sort), self.design.key_of(item))


def _number(value: Any) -> int:
    assert isinstance(value, int)
    return value


def _units(items: Sequence[Item]) -> float:
    return 0.5 * -(-sum(map(item_bytes, items)) // READ_UNIT_BYTES)
