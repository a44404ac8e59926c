"""Whether the credentials may do what a run does, action by action, on a key that no item has."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from migrator.model import KeyAttribute, TableDesign, Value
from migrator.ports import Probe
from migrator.target.failures import error_code, in_words
from migrator.target.wire import encode


def probes(client: Any, design: TableDesign, *, write: bool) -> list[Probe]:
    """One probe per action. `write`: those too that would write, if there were such an item."""
    key = {one.name: _nobodys(one) for one in design.key}
    calls = _reads(client, design, key)
    if write:
        calls |= _writes(client, design, key)
    return [_probe(client, design.name, action, call) for action, call in calls.items()]


def clock_of(client: Any, design: TableDesign) -> float | None:
    """The service's clock in seconds since 1970, by the Date header of an answer; None where it has none."""
    answer = client.describe_table(TableName=design.name)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    return None if date is None else parsedate_to_datetime(date).timestamp()


def _nobodys(attribute: KeyAttribute) -> dict[str, Any]:
    """A key value that no item has."""
    chance = secrets.token_hex(8)
    values: dict[str, Value] = {
        "text": f"migrator-doctor-{chance}",
        "number": -(10**30) - int(chance, 16),
        "binary": f"migrator-doctor-{chance}".encode(),
    }
    return encode(values[attribute.type])


def _reads(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    table, first = {"TableName": design.name}, design.key[0].name
    condition = {
        "KeyConditionExpression": "#k = :k",
        "ExpressionAttributeNames": {"#k": first},
        "ExpressionAttributeValues": {":k": key[first]},
    }
    return {
        "DescribeTimeToLive": lambda: client.describe_time_to_live(**table),
        "GetItem": lambda: client.get_item(**table, Key=key),
        "Query": lambda: client.query(**table, **condition),
        "BatchGetItem": lambda: client.batch_get_item(RequestItems={design.name: {"Keys": [key]}}),
        "Scan": lambda: client.scan(**table, Limit=1),
    }


def _writes(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    delete = {"DeleteRequest": {"Key": key}}
    exists = {
        "ConditionExpression": "attribute_exists(#k)",
        "ExpressionAttributeNames": {"#k": design.key[0].name},
    }
    return {
        "BatchWriteItem": lambda: client.batch_write_item(RequestItems={design.name: [delete]}),
        "DeleteItem": lambda: client.delete_item(TableName=design.name, Key=key, **exists),
    }


def _probe(client: Any, table: str, action: str, call: Callable[[], Any]) -> Probe:
    try:
        call()
    except ClientError as error:
        if error_code(error) != "ConditionalCheckFailedException":
            return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)))
    except BotoCoreError as error:
        return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)))
    return Probe(action)
