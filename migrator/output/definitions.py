"""A DynamoDB table's parts as lines of a Terraform or CloudFormation definition.

A definition is what CreateTable takes, with the specifications of TTL and recovery beside it. A part is what a
difference is about: key, ttl, index NAME, or an option of the job. Sources: the Terraform AWS provider's
aws_dynamodb_table; the CloudFormation reference of AWS::DynamoDB::Table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

Definition = Mapping[str, Any]

_CLOUDFORMATION = {
    "key": ("KeySchema", "AttributeDefinitions"),
    "ttl": ("TimeToLiveSpecification",),
    "pitr": ("PointInTimeRecoverySpecification",),
    "billing": ("BillingMode", "ProvisionedThroughput"),
    "deletion_protection": ("DeletionProtectionEnabled",),
    "stream": ("StreamSpecification",),
    "table_class": ("TableClass",),
    "warm_throughput": ("WarmThroughput",),
    "contributor_insights": ("ContributorInsightsSpecification",),
    "tag": ("Tags",),
}


def cloudformation(part: str, definition: Definition) -> list[str]:
    """Lines below `Properties:`; [] where the definition says nothing of the part, so that it has to go."""
    kind, _, name = part.partition(" ")
    if kind == "index":
        word, index = _index(name, definition)
        return (
            _yaml({"AttributeDefinitions": definition["AttributeDefinitions"], word: [index]})
            if index
            else []
        )
    if kind == "stream":
        view = (definition.get("StreamSpecification") or {}).get("StreamViewType")
        return _yaml({"StreamSpecification": {"StreamViewType": view}}) if view else []
    return _yaml({word: definition[word] for word in _CLOUDFORMATION[kind] if word in definition})


def terraform(part: str, definition: Definition) -> list[str]:
    """Lines of the resource aws_dynamodb_table; [] where the definition says nothing of the part."""
    kind, _, name = part.partition(" ")
    return list(_TERRAFORM[kind](name, definition))


def _key(_: str, definition: Definition) -> Iterator[str]:
    yield from _keys(definition["KeySchema"])
    yield from _attributes(
        [attribute["AttributeName"] for attribute in definition["AttributeDefinitions"]], definition
    )


def _attributes(names: Collection[str], definition: Definition) -> Iterator[str]:
    """A block for each of these key attributes; a key of an attribute without one is refused."""
    for attribute in definition["AttributeDefinitions"]:
        if attribute["AttributeName"] in names:
            words = {"name": attribute["AttributeName"], "type": attribute["AttributeType"]}
            yield from _block("attribute", words)


def _keys(schema: list[dict[str, str]]) -> list[str]:
    """hash_key and range_key; a key of several attributes has a block for each."""
    if len(schema) > 2 or [attribute["KeyType"] for attribute in schema] == ["HASH", "HASH"]:
        blocks = [
            {"attribute_name": attribute["AttributeName"], "key_type": attribute["KeyType"]}
            for attribute in schema
        ]
        return [line for words in blocks for line in _block("key_schema", words)]
    names = {"HASH": "hash_key", "RANGE": "range_key"}
    return [
        f"{names[attribute['KeyType']]} = {json.dumps(attribute['AttributeName'])}" for attribute in schema
    ]


def _index_block(name: str, definition: Definition) -> Iterator[str]:
    word, index = _index(name, definition)
    if not index:
        return
    kind = {
        "GlobalSecondaryIndexes": "global_secondary_index",
        "LocalSecondaryIndexes": "local_secondary_index",
    }
    table_key = [attribute["AttributeName"] for attribute in definition["KeySchema"]]
    own = [
        attribute["AttributeName"]
        for attribute in index["KeySchema"]
        if attribute["AttributeName"] not in table_key
    ]
    yield from _attributes(own, definition)
    yield f"{kind[word]} {{"
    yield f"  name = {json.dumps(name)}"
    keys = index["KeySchema"] if word.startswith("Global") else index["KeySchema"][1:]
    yield from (f"  {line}" for line in _keys(keys))
    yield f"  projection_type = {json.dumps(index['Projection']['ProjectionType'])}"
    if "NonKeyAttributes" in index["Projection"]:
        yield f"  non_key_attributes = {json.dumps(index['Projection']['NonKeyAttributes'])}"
    yield from (f"  {line}" for line in _CAPACITY("", index))
    yield "}"


def _index(name: str, definition: Definition) -> tuple[str, dict[str, Any]]:
    """(the word that it stands under, the index); ('', {}) where the definition has no such index."""
    for word in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in definition.get(word, ()):
            if index["IndexName"] == name:
                return word, index
    return "", {}


def _settings(name: str, *words: tuple[str, str]) -> Callable[[str, Definition], Iterator[str]]:
    """A block of one specification: (our word there, the definition's word)."""

    def lines(_: str, definition: Definition) -> Iterator[str]:
        settings = definition.get(name)
        if settings is not None:
            block = {"TimeToLiveSpecification": "ttl", "WarmThroughput": "warm_throughput"}
            block["PointInTimeRecoverySpecification"] = "point_in_time_recovery"
            yield from _block(block[name], {ours: settings[theirs] for ours, theirs in words})

    return lines


def _plain(*words: tuple[str, str]) -> Callable[[str, Definition], Iterator[str]]:
    """Lines of values that stand alone: (our word, the definition's path of words)."""

    def lines(_: str, definition: Definition) -> Iterator[str]:
        for ours, path in words:
            value: Any = definition
            for step in path.split("."):
                value = value.get(step) if value else None
            if value is not None:
                yield f"{ours} = {json.dumps(value)}"

    return lines


_CAPACITY = _plain(
    ("read_capacity", "ProvisionedThroughput.ReadCapacityUnits"),
    ("write_capacity", "ProvisionedThroughput.WriteCapacityUnits"),
)


def _tag(name: str, definition: Definition) -> Iterator[str]:
    tags = {tag["Key"]: tag["Value"] for tag in definition.get("Tags", ())}
    if name in tags:
        yield from (f"tags = {{ {json.dumps(name)} = {json.dumps(tags[name])} }}",)


def _insights(_: str, definition: Definition) -> Iterator[str]:
    if "ContributorInsightsSpecification" in definition:
        yield from _block(
            'resource "aws_dynamodb_contributor_insights" "table"', {"table_name": definition["TableName"]}
        )


def _block(name: str, words: Mapping[str, Any]) -> list[str]:
    return [f"{name} {{", *(f"  {word} = {json.dumps(value)}" for word, value in words.items()), "}"]


_TERRAFORM: dict[str, Callable[[str, Definition], Iterator[str]]] = {
    "key": _key,
    "index": _index_block,
    "ttl": _settings("TimeToLiveSpecification", ("attribute_name", "AttributeName"), ("enabled", "Enabled")),
    "pitr": _settings("PointInTimeRecoverySpecification", ("enabled", "PointInTimeRecoveryEnabled")),
    "warm_throughput": _settings(
        "WarmThroughput",
        ("read_units_per_second", "ReadUnitsPerSecond"),
        ("write_units_per_second", "WriteUnitsPerSecond"),
    ),
    "billing": _plain(
        ("billing_mode", "BillingMode"),
        ("read_capacity", "ProvisionedThroughput.ReadCapacityUnits"),
        ("write_capacity", "ProvisionedThroughput.WriteCapacityUnits"),
    ),
    "deletion_protection": _plain(("deletion_protection_enabled", "DeletionProtectionEnabled")),
    "stream": _plain(
        ("stream_enabled", "StreamSpecification.StreamEnabled"),
        ("stream_view_type", "StreamSpecification.StreamViewType"),
    ),
    "table_class": _plain(("table_class", "TableClass")),
    "contributor_insights": _insights,
    "tag": _tag,
}


def _yaml(value: Any) -> list[str]:
    """A value of mappings, lists and plain values as lines of YAML."""
    if isinstance(value, Mapping):
        return [line for name, entry in value.items() for line in _entry(f"{name}:", entry)]
    return [
        f"{'- ' if number == 0 else '  '}{line}"
        for entry in value
        for number, line in enumerate(_yaml(entry))
    ]


def _entry(name: str, value: Any) -> list[str]:
    if isinstance(value, list) and value and not isinstance(value[0], (Mapping, list)):
        return [f"{name} {json.dumps(value)}"]
    if isinstance(value, (Mapping, list)):
        return [name, *(f"  {line}" for line in _yaml(value))]
    return [f"{name} {json.dumps(value)}"]
