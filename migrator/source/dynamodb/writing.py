"""Changes that a service makes to old tables through its boto3 clients: documents before and after each writing call."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from msgspec import Struct

from migrator.mapping.items.wire import decode
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import TableFacts
from migrator.mapping.model.live import Change, Mark, StreamRecord
from migrator.runtime.errors import MigratorError, SettingsError, UnmarkedError
from migrator.runtime.logs import get_logger
from migrator.source.dynamodb.finding import Finder, Values, name_of, wired_key
from migrator.source.dynamodb.marks import RecordImages

_log = get_logger("dual_write")
_BEFORE = "migrator.before"
_ALONE = {"PutItem": "Item", "UpdateItem": "Key", "DeleteItem": "Key"}
_STATEMENTS = frozenset({"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"})

Documents = dict[str, dict[Values, tuple[WiredItem, WiredItem | None]]]
"""By table of the mapping and by key: the key, and its document (None: there is none)."""


class OldDocuments(Struct, frozen=True):
    images: RecordImages
    finder: Finder

    def read(self, keys: Mapping[str, Sequence[WiredItem]]) -> Documents:
        found: Documents = {}
        for name, of_table in keys.items():
            there = self.finder.by_keys(self.images.captured[name].table, of_table)
            found[name] = {name_of(key): (key, there.get(name_of(key))) for key in of_table}
        return found

    def keys_of(self, written: Iterable[tuple[str, WiredItem]]) -> dict[str, list[WiredItem]]:
        """Keys by table; tables that are not captured are ignored. `written`: by table name or ARN."""
        names = {real: name for name, real in self.finder.real.items() if name in self.images.captured}
        keys: dict[str, list[WiredItem]] = defaultdict(list)
        for real, item in written:
            name = names.get(real.rpartition("/")[2])
            if name is not None and (key := _key_of(self.images.captured[name].table, item)) is not None:
                keys[name].append(key)
        return keys

    def shown(self, changes: Sequence[Change]) -> list[Mark]:
        """Marks equal to a relay's from the stream's records. A change's present document is read here."""
        keys: dict[str, list[WiredItem]] = defaultdict(list)
        for change in changes:
            keys[change.table].append(change.before[0])
        now = self.read(keys)
        made = (self._mark(change, now[change.table][name_of(change.before[0])][1]) for change in changes)
        return [mark for mark in made if mark is not None]

    def _mark(self, change: Change, after: WiredItem | None) -> Mark | None:
        record = StreamRecord("", 0.0, {}, old_wired=change.before[1], new_wired=after)
        kept = self.images.kept(change.table, record)
        if kept is None:
            return None
        texts = (kept.before, kept.after)
        before, now = (None if text is None else self.images.read(change.table, text) for text in texts)
        return Mark(0, change.table, before, now)


@dataclass
class Clients:
    """Listens to boto3 clients and resources.

    A document is read before and after the call; the stream reports changes that others make between.
    `check`: called before each write to an old table; raises if this service must stop writing.
    `changed`: called with the changes of each such call after its answer.
    `is_strict`: a call is not sent if the read before it fails.
    """

    documents: OldDocuments
    check: Callable[[], None]
    changed: Callable[[Sequence[Change]], Any]
    is_strict: bool
    _attached: list[Any] = field(default_factory=list)

    def attach(self, clients: Any) -> None:
        """`clients`: one boto3 client or resource, or a list. Raises: SettingsError for anything else."""
        for events in [*map(_events_of, clients if isinstance(clients, (list, tuple)) else [clients])]:
            for name, handler in self._handlers.items():
                events.register(name, handler, unique_id=f"migrator-{name}-{id(self)}")
            self._attached.append(events)

    def detach(self) -> None:
        for events in self._attached:
            for name, handler in self._handlers.items():
                events.unregister(name, handler, unique_id=f"migrator-{name}-{id(self)}")
        self._attached.clear()

    @property
    def _handlers(self) -> dict[str, Callable[..., None]]:
        return {"before-call.dynamodb": self._before, "after-call.dynamodb": self._after}

    # botocore passes these keywords to both; a result of `_before` would become the call's

    def _before(self, model: Any, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        body = orjson.loads(params["body"] or b"{}")
        if model.name in _STATEMENTS:
            self._refuse_statements(body)
        keys = self.documents.keys_of(_written(model.name, body))
        if not keys:
            return
        self.check()
        try:
            context[_BEFORE] = self.documents.read(keys)
        except MigratorError as error:
            if self.is_strict:
                raise
            _log.warning("flush_left_to_the_relay", reason=str(error))

    def _after(self, http_response: Any, context: dict[str, Any], **_: Any) -> None:
        before: Documents | None = context.pop(_BEFORE, None)
        if before is not None and http_response.status_code < 300:
            self.changed([Change(table, one) for table, of in before.items() for one in of.values()])

    def _refuse_statements(self, body: Mapping[str, Any]) -> None:
        given = [body, *body.get("Statements", ()), *body.get("TransactStatements", ())]
        texts = [str(one.get("Statement", "")) for one in given]
        real = [self.documents.finder.real[name] for name in self.documents.images.captured]
        for text in texts:
            if not text.lstrip().lower().startswith("select") and any(name in text for name in real):
                what = "dual write: a writing PartiQL statement does not name the documents that it changes"
                raise UnmarkedError(f"{what}; use PutItem, UpdateItem, DeleteItem or their batches")


def _events_of(client: Any) -> Any:
    meta = getattr(client, "meta", None)
    events = getattr(getattr(meta, "client", client), "meta", None)
    name = getattr(getattr(events, "service_model", None), "service_name", "")
    if name != "dynamodb":
        what = "dual_write takes a client or resource of boto3 for DynamoDB, or a list of such"
        raise SettingsError(
            f"{what}, where the old side is tables of DynamoDB's; not {type(client).__name__}"
        )
    return getattr(events, "events", None)


def _written(operation: str, body: Mapping[str, Any]) -> Iterator[tuple[str, WiredItem]]:
    if operation in _ALONE:
        yield body["TableName"], body[_ALONE[operation]]
    elif operation == "BatchWriteItem":
        for table, requests in body["RequestItems"].items():
            for request in requests:
                put = request.get("PutRequest")
                yield table, put["Item"] if put else request["DeleteRequest"]["Key"]
    elif operation == "TransactWriteItems":
        for action in body["TransactItems"]:
            for word, one in action.items():
                if word != "ConditionCheck":
                    yield one["TableName"], one["Item"] if word == "Put" else one["Key"]


def _key_of(table: TableFacts, item: Mapping[str, Any]) -> WiredItem | None:
    """None if the item has no valid key: DynamoDB refuses the call, and the service gets its error."""
    if not all(part in item for part in table.primary_key):
        return None
    key: WiredItem = {part: _key_value(item[part]) for part in table.primary_key}
    try:
        values = {part: decode(wire) for part, wire in key.items()}
    except ArithmeticError:
        return None
    return None if wired_key(table, values) is None else key


def _key_value(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Decode binary values, which are base64 in a call's body."""
    return {"B": base64.b64decode(wire["B"])} if "B" in wire else dict(wire)
