"""Control items and our own attributes in the table: read, write, strip."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from migrator.dynamodb.store import DynamoStore
from migrator.mapping.items.wire import encode, encode_item, item_bytes, write_units
from migrator.mapping.model.edges import ControlState, Kept, KeptPhase
from migrator.mapping.model.table import CONTROL, Item, TableDesign, Value
from migrator.runtime.errors import TargetError
from migrator.runtime.values import replace

# The control item stores what must stay known if source or journal are lost.

_KEYS: dict[str, Value] = {"text": "_migrator", "number": -(10**38 - 1), "binary": b"_migrator"}
"""No row has such a key: the number is the lowest integer that DynamoDB stores exactly."""
_TABLE, _JOBS, _VERSION, _RAISED_BY = "_table", "_jobs", "_version", "_raised_by"
_TRIES = 20
_CONTENDED = "the update of the control item failed: too many concurrent writers. Run the same command again"


class ControlItem:
    """The control item of a DynamoDB table.

    Each write replaces the whole item, if its state except for the ticket is the one this writer knows. So a
    journal that another one has replaced learns it by its next write.
    """

    def __init__(self, store: DynamoStore, changed: Callable[[ControlState], None]) -> None:
        """`changed`: called with a new state of another writer; an error that it raises stops this writer."""
        self.store = store
        self.changed = changed
        self.design = store.design
        self._last_state: ControlState | None = None

    def read_control(self) -> ControlState:
        return self._seen(_stored(self.store))

    def raise_control(self, ticket: int) -> int:
        mark = secrets.token_hex(8)
        for _ in range(_TRIES):
            current = self.read_control() if self._last_state is None else self._last_state
            if current.ticket >= ticket:
                return current.ticket
            other = self._put(replace(current, ticket=ticket), current, mark)
            if other is None or other.get(_RAISED_BY) == mark:
                self._last_state = replace(current, ticket=ticket, is_there=True)
                return 0
            if not other and current.is_there:
                raise TargetError(f"table {self.design.name}: the control item is gone that was there before")
            state = self._seen(other or None)
            if state.version != current.version:
                self.changed(state)
        raise TargetError(f"table {self.design.name}: {_CONTENDED}")

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        for _ in range(_TRIES):
            current = self.read_control()
            wanted = with_kept(current, table_id, job, kept)
            if self._put(wanted, current, "", with_ticket=current.ticket) is None:
                self._last_state = wanted
                return
        raise TargetError(f"table {self.design.name}: {_CONTENDED}")

    def _seen(self, item: Item | None) -> ControlState:
        self._last_state = state_of(self.design, item)
        return self._last_state

    def _put(
        self, wanted: ControlState, current: ControlState, mark: str, *, with_ticket: int | None = None
    ) -> Item | None:
        request = self._request(wanted, current, mark, with_ticket)

        if self.store.write_if("put_item", request, 1):
            return None
        stored = _stored(self.store)
        return stored or {}

    def _request(
        self, wanted: ControlState, current: ControlState, mark: str, ticket: int | None
    ) -> dict[str, Any]:
        design = self.design
        names = {"#key": design.key[0].name}
        values: dict[str, Value] = {}
        condition = "attribute_not_exists(#key)"
        if current.is_there:
            names = {"#type": design.type_attribute, "#ticket": design.ticket_attribute, "#version": _VERSION}
            values = {":control": CONTROL, ":ticket": wanted.ticket if ticket is None else ticket}
            same = "#version = :version" if current.version else "attribute_not_exists(#version)"
            if current.version:
                values[":version"] = current.version
            lower = "#ticket < :ticket" if ticket is None else "#ticket = :ticket"
            condition = f"#type = :control AND {lower} AND {same}"
        request = {
            "TableName": design.name,
            "Item": encode_item(control_item(design, wanted, mark)),
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ReturnConsumedCapacity": "INDEXES",
        }
        if values:
            request["ExpressionAttributeValues"] = {name: encode(value) for name, value in values.items()}
        return request


def control_state(store: DynamoStore) -> ControlState:
    return state_of(store.design, _stored(store))


def _stored(store: DynamoStore) -> Item | None:
    items = store.get_item({"Key": control_key(store.design), "ConsistentRead": True}).items
    return items[0] if items else None


def control_key(design: TableDesign) -> Item:
    return {attribute.name: _KEYS[attribute.type] for attribute in design.key}


def control_item(design: TableDesign, state: ControlState, mark: str = "") -> Item:
    item: Item = {
        **control_key(design),
        design.type_attribute: CONTROL,
        design.ticket_attribute: state.ticket,
        _RAISED_BY: mark or "-",
    }
    if state.version:
        jobs: Any = {name: _written(kept) for name, kept in state.jobs.items()}
        item |= {_VERSION: state.version, _TABLE: state.table_id, _JOBS: jobs}
    return item


def state_of(design: TableDesign, item: Item | None) -> ControlState:
    """Raises: TargetError if the item is not a valid control item."""
    if item is None:
        return ControlState()
    ticket = item.get(design.ticket_attribute)
    if item.get(design.type_attribute) != CONTROL or not isinstance(ticket, int):
        what = f"table {design.name}: under the key of migrator's control item stands another item"
        raise TargetError(f"{what}; take it away")
    jobs: Any = item.get(_JOBS) or {}
    version: Any = item.get(_VERSION) or 0
    try:
        kept = {name: _read(written_kept) for name, written_kept in jobs.items()}
        return ControlState(ticket, str(item.get(_TABLE, "")), kept, int(version), is_there=True)
    except (AttributeError, LookupError, TypeError, ValueError):
        what = f"table {design.name}: migrator's control item cannot be read"
        raise TargetError(f"{what}; a newer version wrote it, or it was changed by hand") from None


def with_kept(state: ControlState, table_id: str, job: str, kept: Kept) -> ControlState:
    return replace(
        state,
        table_id=table_id,
        jobs={**state.jobs, job: kept},
        version=state.version + 1,
        is_there=True,
    )


def _written(kept: Kept) -> Mapping[str, Any]:
    phases = {name: {"phase": phase.phase, "version": phase.version} for name, phase in kept.phases.items()}
    return {
        "journal": kept.journal,
        "phases": phases,
        "direct": sorted(kept.direct),
        "direct_run": kept.direct_run,
    }


def _read(written: Any) -> Kept:
    phases = {
        name: KeptPhase(str(phase["phase"]), int(phase["version"]))
        for name, phase in written["phases"].items()
    }
    return Kept(str(written["journal"]), phases, frozenset(written["direct"]), int(written["direct_run"]))


# ── model.edges.Stripping on a DynamoDB table ──


class DynamoStripping:
    """A context manager. Sends as many parallel requests as there are connections."""

    def __init__(self, store: DynamoStore) -> None:
        self.store = store
        self.design = store.design
        connections = int(store.client.meta.config.max_pool_connections)
        self._pool = ThreadPoolExecutor(connections, thread_name_prefix="strip")

    def __enter__(self) -> DynamoStripping:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def strip(self, items: Sequence[Item]) -> int:
        return self._all(self._strip, items)

    def remove(self, own: Sequence[Item]) -> int:
        return self._all(lambda item: self.store.delete_if(item, [self.design.type_attribute]), own)

    def own(self, items: Sequence[Item]) -> int:
        """Set our attributes on stored items, unless their ticket is higher; returns how many were stored.

        All other attributes stay. Raises: StoppedError if DynamoDB gave up; part of it may be done.
        """
        return self._all(self._own, items)

    def _all(self, work: Callable[[Item], bool], items: Sequence[Item]) -> int:
        return sum(self._pool.map(work, items))

    def _strip(self, item: Item) -> bool:
        # An item without them was stripped before: the answer may have been lost.
        condition = "attribute_exists(#key) AND (attribute_not_exists(#own0) OR #own0 = :own0)"
        return self._update(item, "REMOVE #own0, #own1, #own2", condition, self.design.own_attributes[:1])

    def _own(self, item: Item) -> bool:
        update = "SET #own0 = :own0, #own1 = :own1, #own2 = :own2"
        condition = "attribute_exists(#key) AND (attribute_not_exists(#own1) OR #own1 <= :own1)"
        return self._update(item, update, condition, self.design.own_attributes)

    def _update(self, item: Item, update: str, condition: str, given: Sequence[str]) -> bool:
        names = {f"#own{number}": name for number, name in enumerate(self.design.own_attributes)}
        request = {
            "TableName": self.design.name,
            "Key": self.store.key(self.design.key_of(item)),
            "UpdateExpression": update,
            "ConditionExpression": condition,
            "ExpressionAttributeNames": {"#key": self.design.key[0].name, **names},
            "ExpressionAttributeValues": {
                f":own{number}": encode(item[name]) for number, name in enumerate(given)
            },
            "ReturnConsumedCapacity": "INDEXES",
        }
        return self.store.write_if("update_item", request, write_units(item_bytes(item)))
