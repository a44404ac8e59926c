"""The control item: one item of the table that holds the highest ticket known, whatever becomes of the source."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from migrator.errors import TargetError
from migrator.model import CONTROL, Item, TableDesign, Value
from migrator.target.failures import error_code
from migrator.target.store import DynamoStore
from migrator.target.wire import decode_item, encode, encode_item

_KEYS: dict[str, Value] = {"text": "_migrator", "number": -(10**38 - 1), "binary": b"_migrator"}
"""No row has such a key: the number is the lowest whole one that DynamoDB holds exactly."""


class ControlItem:
    """ports.live.Control on a DynamoDB table."""

    def __init__(self, store: DynamoStore) -> None:
        self.store = store
        self.design = store.design

    def read_control(self) -> int:
        request = {"Key": control_key(self.design), "ConsistentRead": True}
        found = self.store.get_item(request).items
        return _ticket(self.design, found[0]) if found else 0

    def raise_control(self, ticket: int) -> None:
        request = self._put(ticket)

        def once() -> Item | None:
            """What was in the way."""
            try:
                self.store.metered(1, lambda: self.store.client.put_item(**request))
            except ClientError as error:
                if error_code(error) != "ConditionalCheckFailedException":
                    raise
                return decode_item(error.response.get("Item", {}))
            return None

        other: Item | None = self.store.retried("put_item", once)
        if other is not None:
            _ticket(self.design, other)

    def _put(self, ticket: int) -> dict[str, Any]:
        design = self.design
        item: Item = {
            **control_key(design),
            design.type_attribute: CONTROL,
            design.ticket_attribute: ticket,
        }
        return {
            "TableName": design.name,
            "Item": encode_item(item),
            "ConditionExpression": "attribute_not_exists(#key) OR (#type = :control AND #ticket < :ticket)",
            "ExpressionAttributeNames": {
                "#key": design.key[0].name,
                "#type": design.type_attribute,
                "#ticket": design.ticket_attribute,
            },
            "ExpressionAttributeValues": {":control": encode(CONTROL), ":ticket": encode(ticket)},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            "ReturnConsumedCapacity": "INDEXES",
        }


def control_key(design: TableDesign) -> Item:
    """The key of the control item, by the names of its attributes."""
    return {attribute.name: _KEYS[attribute.type] for attribute in design.key}


def _ticket(design: TableDesign, item: Item) -> int:
    ticket = item.get(design.ticket_attribute)
    if item.get(design.type_attribute) != CONTROL or not isinstance(ticket, int):
        what = f"table {design.name}: under the key of migrator's control item stands another item"
        raise TargetError(f"{what}; take it away")
    return ticket
