"""Table creation: definition, options, limits of the account, and what an endpoint can do."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from migrator.model.edges import Probe
from migrator.model.table import Index, KeyAttribute, TableDesign, Value
from migrator.settings.source import TableOptions
from migrator.target.failures import error_code, in_words
from migrator.target.wire import encode

# ── The requests that make a mapping's table, with the options that the job asks for ──

TYPES = {"text": "S", "number": "N", "binary": "B"}
Request = tuple[str, dict[str, Any]]
"""An operation of the client and its parameters."""


def creation_request(design: TableDesign, options: TableOptions | None = None) -> dict[str, Any]:
    """CreateTable's parameters: all indexes at once, and every option that CreateTable takes."""
    asked = options or TableOptions()
    throughput = _throughput(asked)
    request: dict[str, Any] = {
        "TableName": design.name,
        "BillingMode": "PROVISIONED" if throughput else "PAY_PER_REQUEST",
        "KeySchema": key_schema(design.key[:1], design.key[1:]),
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": TYPES[type_]}
            for name, type_ in _attributes(design).items()
        ],
        **throughput,
        **_settings(asked),
    }
    for word, local in (("GlobalSecondaryIndexes", False), ("LocalSecondaryIndexes", True)):
        own = {} if local else throughput
        indexes = [_index_request(index) | own for index in design.indexes if index.local is local]
        if indexes:
            request[word] = indexes
    return request


def later_requests(design: TableDesign, options: TableOptions | None = None) -> list[Request]:
    """What CreateTable does not take: to be asked for when the table is ACTIVE."""
    asked, name = options or TableOptions(), {"TableName": design.name}
    requests: list[Request] = []
    if design.ttl:
        specification = {"Enabled": True, "AttributeName": design.ttl}
        requests.append(("update_time_to_live", {**name, "TimeToLiveSpecification": specification}))
    if asked.pitr:
        pitr = {"PointInTimeRecoveryEnabled": True}
        requests.append(("update_continuous_backups", {**name, "PointInTimeRecoverySpecification": pitr}))
    if asked.contributor_insights:
        requests.append(("update_contributor_insights", {**name, "ContributorInsightsAction": "ENABLE"}))
    return requests


def definition(design: TableDesign, options: TableOptions) -> dict[str, Any]:
    """The whole table in CreateTable's words, with what other operations set beside it."""
    found = creation_request(design, options)
    for _, request in later_requests(design, options):
        found |= request
    if found.pop("ContributorInsightsAction", None):
        found["ContributorInsightsSpecification"] = {"Enabled": True}
    off = {"PointInTimeRecoveryEnabled": False}
    return {"PointInTimeRecoverySpecification": off, **found}


def key_schema(partition: tuple[KeyAttribute, ...], sort: tuple[KeyAttribute, ...]) -> list[dict[str, str]]:
    return [{"AttributeName": one.name, "KeyType": "HASH"} for one in partition] + [
        {"AttributeName": one.name, "KeyType": "RANGE"} for one in sort
    ]


def projection(index: Index) -> dict[str, Any]:
    if isinstance(index.projection, tuple):
        return {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(index.projection)}
    return {"ProjectionType": {"all": "ALL", "keys": "KEYS_ONLY"}[index.projection]}


def _settings(asked: TableOptions) -> dict[str, Any]:
    """The options beside keys, indexes and billing; one that is not asked for is left out."""
    stream = {"StreamEnabled": True, "StreamViewType": (asked.stream or "").upper()}
    tags = [{"Key": name, "Value": value} for name, value in asked.tags.items()]
    wanted = {
        "DeletionProtectionEnabled": asked.deletion_protection or None,
        "StreamSpecification": stream if asked.stream else None,
        "Tags": tags or None,
        "TableClass": asked.table_class and asked.table_class.upper(),
        "WarmThroughput": asked.warm_throughput and _units(asked.warm_throughput, "UnitsPerSecond"),
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _throughput(asked: TableOptions) -> dict[str, Any]:
    """Provisioned capacity, for the table and each global index alike; {} on demand."""
    return {"ProvisionedThroughput": _units(asked.provisioned, "CapacityUnits")} if asked.provisioned else {}


def _units(pair: tuple[int, int], word: str) -> dict[str, int]:
    return {f"Read{word}": pair[0], f"Write{word}": pair[1]}


def _index_request(index: Index) -> dict[str, Any]:
    return {
        "IndexName": index.name,
        "KeySchema": key_schema(index.partition, index.sort),
        "Projection": projection(index),
    }


def _attributes(design: TableDesign) -> dict[str, str]:
    keys = [*design.key, *(attribute for index in design.indexes for attribute in index.attributes)]
    return {attribute.name: attribute.type for attribute in keys}


# ── How a table's options differ from those that the job asks for ──

_ON = ("ENABLED", "ENABLING")


def option_differences(
    asked: TableOptions, found: dict[str, Any], told: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """(option, sentence). `found`: DescribeTable's answer; `told`: those of the operations that `wanted_answers` names."""
    for name, wanted, there in _pairs(asked, found, told):
        if wanted != there:
            yield name, f"{name} is {wanted} in the job and {there} in the table"


def wanted_answers(asked: TableOptions) -> list[str]:
    """Operations whose answers are needed to compare; each needs a permission, so no more than needed."""
    wanted = {
        "describe_continuous_backups": True,
        "describe_contributor_insights": asked.contributor_insights,
    }
    wanted["list_tags_of_resource"] = bool(asked.tags)
    return [operation for operation, needed in wanted.items() if needed]


def _pairs(
    asked: TableOptions, found: dict[str, Any], told: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """(option, as asked for, as it is); what the job does not name is left as it is."""
    backups = told.get("describe_continuous_backups", {}).get("ContinuousBackupsDescription", {})
    pitr = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
    yield "pitr", _switch(asked.pitr), _switch(pitr in _ON)
    yield "billing", *_billing(asked, found)
    if asked.deletion_protection:
        yield "deletion_protection", "on", _switch(bool(found.get("DeletionProtectionEnabled")))
    if asked.stream:
        yield "stream", asked.stream, _stream(found)
    if asked.contributor_insights:
        insights = told.get("describe_contributor_insights", {}).get("ContributorInsightsStatus")
        yield "contributor_insights", "on", _switch(insights in _ON)
    if asked.table_class:
        there = (found.get("TableClassSummary") or {}).get("TableClass", "STANDARD")
        yield "table_class", asked.table_class, str(there).lower()
    if asked.warm_throughput:
        yield "warm_throughput", *_warm(asked.warm_throughput, found.get("WarmThroughput") or {})
    tags = {one["Key"]: one["Value"] for one in told.get("list_tags_of_resource", {}).get("Tags", [])}
    for name, value in asked.tags.items():
        yield f"tag {name}", value, tags.get(name, "not set")


def _billing(asked: TableOptions, found: dict[str, Any]) -> tuple[str, str]:
    there = (found.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    wanted = "PROVISIONED" if asked.provisioned else "PAY_PER_REQUEST"
    return wanted.lower(), str(there).lower()


def _stream(found: dict[str, Any]) -> str:
    stream = found.get("StreamSpecification") or {}
    return str(stream.get("StreamViewType", "off")).lower() if stream.get("StreamEnabled") else "off"


def _warm(wanted: tuple[int, int], found: dict[str, Any]) -> tuple[str, str]:
    """As asked for, where the table is as warm or warmer: AWS only ever raises it."""
    there = (int(found.get("ReadUnitsPerSecond", 0)), int(found.get("WriteUnitsPerSecond", 0)))
    shown = there if there[0] < wanted[0] or there[1] < wanted[1] else wanted
    return f"{wanted[0]}/{wanted[1]}", f"{shown[0]}/{shown[1]}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


# ── Whether the credentials may do what a run does, action by action, on a key that no item has ──

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
