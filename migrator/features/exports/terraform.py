"""A DynamoDB table as a Terraform file in JSON syntax: the whole file, and the lines of one part of it.

A definition is what CreateTable takes, with the specifications of TTL and recovery beside it. A part is what a
difference is about: key, ttl, index NAME, or an option of the job. Source: the resource aws_dynamodb_table of the AWS
provider; Terraform's "JSON Configuration Syntax"."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from migrator.features.exports.file import Definition

_PROVIDERS: tuple[tuple[str, Callable[[Definition], bool]], ...] = (
    # key_schema came with 6.29.0; before 6.37.0 an index taken out of a definition took every index with it.
    ("6.37.0", lambda definition: any("key_schema" in index for index in _indexes(definition, "Global"))),
    ("6.13.0", lambda definition: "WarmThroughput" in definition),
    ("5.0.0", lambda definition: True),
)
"""The oldest version of the provider that knows what a definition has. Source: its CHANGELOG."""

_PARTS = {
    "key": ("hash_key", "range_key", "attribute"),
    "ttl": ("ttl",),
    "pitr": ("point_in_time_recovery",),
    "billing": ("billing_mode", "read_capacity", "write_capacity"),
    "deletion_protection": ("deletion_protection_enabled",),
    "stream": ("stream_enabled", "stream_view_type"),
    "table_class": ("table_class",),
    "warm_throughput": ("warm_throughput",),
    "tag": ("tags",),
}


def terraform_file(definition: Definition, head: Sequence[str]) -> str:
    """The whole file. `head`: its first comment."""
    oldest = next(version for version, needs in _PROVIDERS if needs(definition))
    provider = {"source": "hashicorp/aws", "version": f">= {oldest}"}
    document = {
        "//": " ".join(head),
        "terraform": {"required_providers": {"aws": provider}},
        "resource": {"aws_dynamodb_table": {_label(definition): _table(definition)}, **_insights(definition)},
    }
    return _text(document) + "\n"


def terraform(part: str, definition: Definition) -> list[str]:
    """Lines of the resource aws_dynamodb_table; [] where the definition says nothing of the part."""
    kind, _, name = part.partition(" ")
    table = _table(definition)
    if kind == "contributor_insights":
        found = _insights(definition)
    elif kind == "index":
        lists = ("global_secondary_index", "local_secondary_index")
        found = {word: [index] for word in lists for index in table.get(word, ()) if index["name"] == name}
        found = {"attribute": table["attribute"], **found} if found else {}
    else:
        found = {word: table[word] for word in _PARTS[kind] if word in table}
    return _text(found).split("\n")[1:-1]


def _text(document: Mapping[str, Any]) -> str:
    """JSON but for what Terraform would read as a template in a string."""
    return json.dumps(document, ensure_ascii=False, indent=2).replace("${", "$${").replace("%{", "%%{")


def _insights(definition: Definition) -> dict[str, Any]:
    """A resource of its own."""
    if "ContributorInsightsSpecification" not in definition:
        return {}
    label = _label(definition)
    named = {"table_name": definition["TableName"], "depends_on": [f"aws_dynamodb_table.{label}"]}
    return {"aws_dynamodb_contributor_insights": {label: named}}


def _label(definition: Definition) -> str:
    return re.sub(r"\W|^(?=\d)", "_", definition["TableName"].lower(), flags=re.ASCII)


def _table(definition: Definition) -> dict[str, Any]:
    stream, warm = definition.get("StreamSpecification", {}), definition.get("WarmThroughput", {})
    ttl, recovery = (
        definition.get(name, {}) for name in ("TimeToLiveSpecification", "PointInTimeRecoverySpecification")
    )
    return _set(
        name=definition["TableName"],
        **_keys(definition["KeySchema"]),
        billing_mode=definition.get("BillingMode"),
        **_capacity(definition),
        table_class=definition.get("TableClass"),
        deletion_protection_enabled=definition.get("DeletionProtectionEnabled"),
        stream_enabled=stream.get("StreamEnabled"),
        stream_view_type=stream.get("StreamViewType"),
        attribute=[
            {"name": attribute["AttributeName"], "type": attribute["AttributeType"]}
            for attribute in definition["AttributeDefinitions"]
        ],
        global_secondary_index=_indexes(definition, "Global"),
        local_secondary_index=_indexes(definition, "Local"),
        ttl=_set(attribute_name=ttl.get("AttributeName"), enabled=ttl.get("Enabled")),
        point_in_time_recovery=_set(enabled=recovery.get("PointInTimeRecoveryEnabled")),
        warm_throughput=_set(
            read_units_per_second=warm.get("ReadUnitsPerSecond"),
            write_units_per_second=warm.get("WriteUnitsPerSecond"),
        ),
        tags={tag["Key"]: tag["Value"] for tag in definition.get("Tags", ())},
    )


def _indexes(definition: Definition, kind: str) -> list[dict[str, Any]]:
    return [
        _set(
            name=index["IndexName"],
            **_keys(index["KeySchema"] if kind == "Global" else index["KeySchema"][1:]),
            projection_type=index["Projection"]["ProjectionType"],
            non_key_attributes=index["Projection"].get("NonKeyAttributes"),
            **_capacity(index),
        )
        for index in definition.get(f"{kind}SecondaryIndexes", ())
    ]


def _keys(schema: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The key's attributes by name; a block for each where a part of the key has several."""
    kinds = [attribute["KeyType"] for attribute in schema]
    if len(set(kinds)) < len(kinds):
        return {
            "key_schema": [
                {"attribute_name": attribute["AttributeName"], "key_type": attribute["KeyType"]}
                for attribute in schema
            ]
        }
    names = {"HASH": "hash_key", "RANGE": "range_key"}
    return {names[attribute["KeyType"]]: attribute["AttributeName"] for attribute in schema}


def _capacity(described: Mapping[str, Any]) -> dict[str, Any]:
    units = described.get("ProvisionedThroughput", {})
    return {
        "read_capacity": units.get("ReadCapacityUnits"),
        "write_capacity": units.get("WriteCapacityUnits"),
    }


def _set(**arguments: Any) -> dict[str, Any]:
    """The arguments that have a value."""
    return {name: value for name, value in arguments.items() if value not in (None, {}, [])}
