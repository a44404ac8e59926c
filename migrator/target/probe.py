"""Whether the credentials may do what a run does, action by action, on a key that no item has."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from migrator.model import KeyAttribute, TableDesign, Value
from migrator.ports import Probe
from migrator.target.failures import error_code, in_words
from migrator.target.wire import encode

_What: TypeAlias = tuple[str, str]
"""An action, and the index that it is tried on ('' for the table)."""


def probes(client: Any, design: TableDesign, *, write: bool) -> list[Probe]:
    """One probe per action. `write`: those too that would write, if there were such an item."""
    key = {one.name: _nobodys(one) for one in design.key}
    calls = _reads(client, design, key)
    if write:
        calls |= _writes(client, design, key)
    found = [_probe(client, design.name, what, call) for what, call in calls.items()]
    if write:
        may_delete = any(one.action == "DeleteItem" and not one.refused for one in found)
        found.append(_probe_insert(client, design, key) if may_delete else Probe(_INSERT, _NOT_TRIED))
    return found


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


def _reads(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    table = {"TableName": design.name}
    queries = [partial(client.query, **table, **_nobodys_partition(design.key[:1]))]
    queries += [
        partial(client.query, **table, IndexName=one.name, **_nobodys_partition(one.partition))
        for one in design.indexes
    ]
    # An index has an ARN of its own, so that a policy may leave it out.
    named = [("Query", index) for index in ("", *(one.name for one in design.indexes))]
    return {
        ("DescribeTimeToLive", ""): lambda: client.describe_time_to_live(**table),
        ("GetItem", ""): lambda: client.get_item(**table, Key=key),
        **dict(zip(named, queries, strict=True)),
        ("BatchGetItem", ""): lambda: client.batch_get_item(RequestItems={design.name: {"Keys": [key]}}),
        ("Scan", ""): lambda: client.scan(**table, Limit=1),
    }


def _nobodys_partition(attributes: Sequence[KeyAttribute]) -> dict[str, Any]:
    """The condition of a Query that finds nothing."""
    numbered = list(enumerate(attributes))
    return {
        "KeyConditionExpression": " AND ".join(f"#k{number} = :k{number}" for number, _ in numbered),
        "ExpressionAttributeNames": {f"#k{number}": one.name for number, one in numbered},
        "ExpressionAttributeValues": {f":k{number}": _nobodys(one) for number, one in numbered},
    }


def _writes(client: Any, design: TableDesign, key: dict[str, Any]) -> dict[_What, Callable[[], Any]]:
    delete = {"DeleteRequest": {"Key": key}}
    table, source = {"TableName": design.name}, design.source_attribute
    names = {"#k": design.key[0].name}
    exists = {"ConditionExpression": "attribute_exists(#k)", "ExpressionAttributeNames": names}
    update = {
        **exists,
        "ExpressionAttributeNames": {**names, "#own": source},
        "UpdateExpression": "REMOVE #own",
    }
    return {
        ("BatchWriteItem", ""): lambda: client.batch_write_item(RequestItems={design.name: [delete]}),
        ("PutItem", ""): lambda: client.put_item(**table, Item=key, **exists),
        ("DeleteItem", ""): lambda: client.delete_item(**table, Key=key, **exists),
        ("UpdateItem", ""): lambda: client.update_item(**table, Key=key, **update),
    }


_INSERT = "PartiQLInsert"
_NOT_TRIED = "not tried: without DeleteItem the item of the probe would stay"


def _probe_insert(client: Any, design: TableDesign, key: dict[str, Any]) -> Probe:
    """No condition holds an INSERT of PartiQL's back: an item of nobody's, taken away again whatever was answered."""
    names = ", ".join(f"'{attribute.name}': ?" for attribute in design.key)
    statement = {
        "Statement": f'INSERT INTO "{design.name}" VALUE {{{names}}}',
        "Parameters": list(key.values()),
    }

    def call() -> None:
        try:
            answer = client.batch_execute_statement(Statements=[statement])
        finally:
            client.delete_item(TableName=design.name, Key=key)
        for one in answer["Responses"]:
            if error := one.get("Error"):
                # It says the same as an answer that is refused as a whole.
                said = {"Error": {"Code": f"{error['Code']}Exception", "Message": error.get("Message", "")}}
                raise ClientError(said, _INSERT)

    return _probe(client, design.name, (_INSERT, ""), call)


def _probe(client: Any, table: str, what: _What, call: Callable[[], Any]) -> Probe:
    action, index = what
    try:
        call()
    except ClientError as error:
        if error_code(error) != "ConditionalCheckFailedException":
            return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    except BotoCoreError as error:
        return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    return Probe(action, index=index)
