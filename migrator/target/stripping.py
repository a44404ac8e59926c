"""ports.stripping.Stripping on a DynamoDB table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Item
from migrator.target.failures import holds
from migrator.target.store import DynamoStore
from migrator.target.wire import encode


class DynamoStripping:
    """Use as a context manager. Requests are sent side by side, as many as there are connections."""

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
        return self._all(self._remove, own)

    def _all(self, work: Callable[[Item], bool], items: Sequence[Item]) -> int:
        return sum(self._pool.map(work, items))

    def _strip(self, item: Item) -> bool:
        names = {f"#own{number}": name for number, name in enumerate(self.design.own_attributes)}
        request = {
            **self._held(item, "#own0"),
            "UpdateExpression": f"REMOVE {', '.join(names)}",
            "ExpressionAttributeNames": names,
        }
        source = self.design.source_attribute
        request["ExpressionAttributeValues"] = {":held": encode(item[source])}
        return self._sent("update_item", request, write_units(item_bytes(item)))

    def _remove(self, item: Item) -> bool:
        name = self.design.type_attribute
        request = {**self._held(item, "#type"), "ExpressionAttributeNames": {"#type": name}}
        request["ExpressionAttributeValues"] = {":held": encode(item[name])}
        return self._sent("delete_item", request, 1)

    def _held(self, item: Item, name: str) -> dict[str, Any]:
        return {
            "TableName": self.design.name,
            "Key": self.store.key(self.design.key_of(item)),
            "ConditionExpression": f"{name} = :held",
            "ReturnConsumedCapacity": "INDEXES",
        }

    def _sent(self, operation: str, request: dict[str, Any], units: float) -> bool:
        """Whether the item was what it had been."""
        call = getattr(self.store.client, operation)

        def once() -> bool:
            return holds(lambda: self.store.metered(units, lambda: call(**request)))

        return bool(self.store.retried(operation, once))
