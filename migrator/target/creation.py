"""The requests that make a mapping's table, with the options that the job asks for."""

from __future__ import annotations

from typing import Any

from migrator.model import Index, KeyAttribute, TableDesign
from migrator.table_options import TableOptions

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
