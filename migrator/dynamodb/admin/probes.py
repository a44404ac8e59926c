"""Whether the credentials may do what a run does, action by action, on a key that no item has; and the service's clock."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from migrator.dynamodb.control import control_key
from migrator.dynamodb.failures import error_code, in_words
from migrator.mapping.items.wire import encode
from migrator.mapping.model.edges import Probe
from migrator.mapping.model.table import KeyAttribute, TableDesign, Value
from migrator.settings.definition import creation_request
from migrator.settings.roles import TableRights

_What: TypeAlias = tuple[str, str]
"""An action, and the index that it is tried on ('' for the table)."""


def probes(client: Any, design: TableDesign, *, write: bool, only: TableRights | None = None) -> list[Probe]:
    """One probe per action. `write`: those too that would write, if there were such an item. `only`: a role's rights,
    each of which has a probe then, also one that cannot be tried.
    """
    key = {attribute.name: _absent_value(attribute) for attribute in design.key}
    writes = _writes(client, design, key)
    calls = _reads(client, design, key) | (writes if write else {})
    if only is not None:
        calls |= _of_definitions(client, design) | ({_CREATE: _create(client, design)} if write else {})
        calls = {what: call for what, call in calls.items() if what in only.named()}
    probed = [_probe(client, design.name, what, call) for what, call in calls.items()]
    if write and (only is None or _INSERT in only.table):
        may_delete = any(probe.action == "DeleteItem" and not probe.refused for probe in probed)
        probed.append(_probe_insert(client, design, key, may_delete=may_delete))
    left = set() if only is None else {*only.named()} - {(probe.action, probe.index) for probe in probed}
    for action, index in sorted(left):
        with_write = not write and (action == _INSERT or (action, index) in {*writes, _CREATE})
        why = (
            "not tried without --write"
            if with_write
            else "not tried: it would change the table, or nothing is there to try it on"
        )
        probed.append(Probe(action, why, index, tried=False))
    return probed


def clock_of(client: Any, design: TableDesign) -> float | None:
    """The service's clock in seconds since 1970, by the Date header of an answer; None where it has none."""
    answer = client.describe_table(TableName=design.name)
    date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    return None if date is None else parsedate_to_datetime(date).timestamp()


def _absent_value(attribute: KeyAttribute) -> dict[str, Any]:
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
    queries = [partial(client.query, **table, **_absent_partition(design.key[:1]))]
    queries += [
        partial(client.query, **table, IndexName=index.name, **_absent_partition(index.partition))
        for index in design.indexes
    ]
    # An index has an ARN of its own, so that a policy may leave it out.
    named = [("Query", index) for index in ("", *(index.name for index in design.indexes))]
    return {
        ("DescribeTimeToLive", ""): lambda: client.describe_time_to_live(**table),
        ("GetItem", ""): lambda: client.get_item(**table, Key=key),
        **dict(zip(named, queries, strict=True)),
        ("BatchGetItem", ""): lambda: client.batch_get_item(RequestItems={design.name: {"Keys": [key]}}),
        ("Scan", ""): lambda: client.scan(**table, Limit=1),
    }


def _absent_partition(attributes: Sequence[KeyAttribute]) -> dict[str, Any]:
    """The condition of a Query that finds nothing."""
    numbered = list(enumerate(attributes))
    return {
        "KeyConditionExpression": " AND ".join(f"#k{number} = :k{number}" for number, _ in numbered),
        "ExpressionAttributeNames": {f"#k{number}": attribute.name for number, attribute in numbered},
        "ExpressionAttributeValues": {
            f":k{number}": _absent_value(attribute) for number, attribute in numbered
        },
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


_CREATE: _What = ("CreateTable", "")


def _of_definitions(client: Any, design: TableDesign) -> dict[_What, Callable[[], Any]]:
    """Requests about the table's options, and about the table itself."""
    table = {"TableName": design.name}

    def tags() -> None:
        arn = client.describe_table(**table)["Table"]["TableArn"]
        client.list_tags_of_resource(ResourceArn=arn)

    return {
        ("DescribeTable", ""): lambda: client.describe_table(**table),
        ("DescribeContinuousBackups", ""): lambda: client.describe_continuous_backups(**table),
        ("DescribeContributorInsights", ""): lambda: client.describe_contributor_insights(**table),
        ("ListTagsOfResource", ""): tags,
    }


def _create(client: Any, design: TableDesign) -> Callable[[], Any]:
    """A CreateTable of the table that is there, which DynamoDB refuses to who may create it."""
    return lambda: client.create_table(**creation_request(design))


_INSERT = "PartiQLInsert"
_NOT_TRIED = "not tried: without DeleteItem the item of the probe would stay"


def _probe_insert(client: Any, design: TableDesign, key: dict[str, Any], *, may_delete: bool) -> Probe:
    """An INSERT of PartiQL takes no condition, but an existing item refuses it: the control item, if it exists.

    Otherwise a random key is written, and deleted again after every answer.
    """
    own = {name: encode(value) for name, value in control_key(design).items()}
    try:
        is_there = "Item" in client.get_item(TableName=design.name, Key=own, ConsistentRead=True)
    except (ClientError, BotoCoreError):
        is_there = False
    if is_there:
        return _probe(client, design.name, (_INSERT, ""), lambda: _insert(client, design, own))
    if not may_delete:
        return Probe(_INSERT, _NOT_TRIED, tried=False)

    def call() -> None:
        try:
            _insert(client, design, key)
        finally:
            client.delete_item(TableName=design.name, Key=key)

    return _probe(client, design.name, (_INSERT, ""), call)


def _insert(client: Any, design: TableDesign, key: dict[str, Any]) -> None:
    names = ", ".join(f"'{attribute.name}': ?" for attribute in design.key)
    statement = {
        "Statement": f'INSERT INTO "{design.name}" VALUE {{{names}}}',
        "Parameters": list(key.values()),
    }
    for response in client.batch_execute_statement(Statements=[statement])["Responses"]:
        if error := response.get("Error"):
            # The same as an answer that is refused as a whole.
            refusal = {"Error": {"Code": f"{error['Code']}Exception", "Message": error.get("Message", "")}}
            raise ClientError(refusal, _INSERT)


_MAY = frozenset({"ConditionalCheckFailedException", "DuplicateItemException", "ResourceInUseException"})
"""Refusals that only those get who may do it."""


def _probe(client: Any, table: str, what: _What, call: Callable[[], Any]) -> Probe:
    action, index = what
    try:
        call()
    except ClientError as error:
        if error_code(error) not in _MAY:
            return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    except BotoCoreError as error:
        return Probe(action, str(in_words(error, action, table, client.meta.endpoint_url)), index)
    return Probe(action, index=index)
