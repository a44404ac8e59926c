"""Writes of a generated module for the time after a migration: all items of a row in one transaction, or none of them.

Copied into it as it is. The constants at the top are those of one table: the module has its own in their place.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

from migrator.features.exports.python.table import _KEY, _TTL, _TYPE, TABLE, _Table, _wire, _wired
from migrator.features.exports.python.values import Item, RefusedError

_REVISION = ""
_OWN = ("_src", "_rev")
_ATTRIBUTES: dict[str, tuple[str, ...]] = {}


class ConflictError(Exception):
    """Another writer was quicker, or the row is there already: read it again, and decide again. `types`: of the items."""

    def __init__(self, doing: str, types: Sequence[str]) -> None:
        super().__init__(f"{doing}: not as expected: {', '.join(types)}; read the row again")
        self.types = tuple(types)


class _Writable(_Table):
    """`trace`: writes carry `_src` and `_rev`, by which `migrator verify` knows the row of an item."""

    def __init__(
        self, client: Any, table: str = TABLE, *, cursor_key: str = "", trace: bool = False
    ) -> None:
        super().__init__(client, table, cursor_key=cursor_key)
        self._trace = trace

    def _put(self, doing: str, source: tuple[str, Sequence[Any]], items: Sequence[Item]) -> None:
        """Raises: ConflictError where one of them is there already."""
        self._transact(doing, [(item, self._put_action(item, source)) for item in items])

    def _change(
        self,
        doing: str,
        source: tuple[str, Sequence[Any]],
        before: Sequence[Item],
        after: Sequence[Item],
        version: str | None,
    ) -> None:
        """Raises: ConflictError where an item is not as `before` has it, or one of a new key is there already."""
        old = {tuple(item[name] for name in _KEY): item for item in before}
        actions = []
        for item in after:
            was = old.pop(tuple(item[name] for name in _KEY), None)
            action = (
                self._put_action(item, source) if was is None else self._update(was, item, version)
            )
            actions.append((item, action))
        actions += [(item, {"Delete": self._as_before(item, version)}) for item in old.values()]
        self._transact(doing, actions)

    def _put_action(self, item: Item, source: tuple[str, Sequence[Any]]) -> Item:
        """A put where nothing is, or only what a migration left there, or what has expired."""
        names = {"#key": _KEY[0], "#type": _TYPE}
        free = "attribute_not_exists(#key) OR #type = :gone"
        bound: Item = {":gone": "_tombstone"}
        if _TTL is not None:
            names["#ttl"], bound[":now"] = _TTL, int(time.time())
            free += " OR #ttl <= :now"
        traced = {_OWN[0]: _source_text(*source), _OWN[1]: _REVISION} if self._trace else {}
        put = {
            "Item": _wired({**item, **traced}),
            "ConditionExpression": free,
            "ExpressionAttributeNames": names,
        }
        return {"Put": {"TableName": self._name, **put, "ExpressionAttributeValues": _wired(bound)}}

    def _update(self, was: Item, item: Item, version: str | None) -> Item:
        """What differs is set or removed; attributes that are not the mapping's stay. Nothing differs: a check alone."""
        action = self._as_before(was, version)
        names, bound = action["ExpressionAttributeNames"], action["ExpressionAttributeValues"]
        setting, removing = [], []
        for name in dict.fromkeys([*was, *item]):
            if was.get(name) == item.get(name) and type(was.get(name)) is type(item.get(name)):
                continue
            place = f"#s{len(names)}"
            names[place] = name
            if name in item:
                bound[f":s{len(names)}"] = _wire(item[name])
                setting.append(f"{place} = :s{len(names)}")
            else:
                removing.append(place)
        if not setting and not removing:
            return {"ConditionCheck": action}
        sets = f"SET {', '.join(setting)}" if setting else ""
        removes = f"REMOVE {', '.join(removing)}" if removing else ""
        return {"Update": {**action, "UpdateExpression": f"{sets} {removes}".strip()}}

    def _as_before(self, item: Item, version: str | None) -> Item:
        """An action on the item, if it is still so: by its version where the row has one, else by all its attributes."""
        type_ = item[_TYPE]
        watched = (
            [version] if version else [name for name in _ATTRIBUTES[type_] if name not in _KEY]
        )
        names, bound, clauses = {"#type": _TYPE}, {":type": _wire(type_)}, ["#type = :type"]
        for number, name in enumerate(watched):
            names[f"#w{number}"] = name
            if name in item:
                bound[f":w{number}"] = _wire(item[name])
            is_there = name in item
            clauses.append(
                f"#w{number} = :w{number}" if is_there else f"attribute_not_exists(#w{number})"
            )
        return {
            "TableName": self._name,
            "Key": _wired({name: item[name] for name in _KEY}),
            "ConditionExpression": " AND ".join(clauses),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": bound,
        }

    def _transact(self, doing: str, actions: Sequence[tuple[Item, Item]]) -> None:
        """All actions or none; another transaction on the same items is waited for, for a moment."""
        if len(actions) > 100:
            raise RefusedError(
                f"{doing}: {len(actions)} items at once; a transaction of DynamoDB takes 100"
            )
        for attempt in range(6 if actions else 0):
            try:
                self._client.transact_write_items(TransactItems=[action for _, action in actions])
                return
            except self._client.exceptions.TransactionCanceledException as error:
                reasons = [reason["Code"] for reason in error.response["CancellationReasons"]]
                failed = [
                    str(item[_TYPE])
                    for (item, _), reason in zip(actions, reasons, strict=True)
                    if reason in ("ConditionalCheckFailed", "TransactionConflict")
                ]
                if "ConditionalCheckFailed" in reasons or (failed and attempt == 5):
                    raise ConflictError(doing, failed) from None
                if not failed:
                    raise
            time.sleep(random.uniform(0, 0.05 * 2**attempt))


def _source_text(entity: str, key: Sequence[Any]) -> str:
    """The row that items are of, as a migration writes it."""
    plain = [value if isinstance(value, (int, str)) else str(value) for value in key]
    return f"{entity}:{json.dumps(plain, ensure_ascii=False, separators=(',', ':'))}"
