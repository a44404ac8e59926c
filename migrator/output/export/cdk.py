"""A DynamoDB table as a construct of the AWS CDK, in TypeScript and in Python: one tree, written in two languages.

The construct is `Table`, not `TableV2`: it takes provisioned capacity without autoscaling, and its template is the
resource that `migrator export cloudformation` writes. Source: aws-cdk-lib, module aws-dynamodb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from migrator.output.export.file import Definition, comment, construct_name


@dataclass(frozen=True)
class _Enum:
    type: str
    member: str


@dataclass(frozen=True)
class _Struct:
    """`type`: the name of it, which Python says and TypeScript does not."""

    type: str
    values: Mapping[str, _Value]


_Value: TypeAlias = "str | int | bool | _Enum | _Struct | list[_Value]"

_TYPES = {"S": "STRING", "N": "NUMBER", "B": "BINARY"}
_CAPACITY = {"readCapacity": "ReadCapacityUnits", "writeCapacity": "WriteCapacityUnits"}


@dataclass(frozen=True)
class _Tree:
    """`indexes`: the method that adds each, and what it is given."""

    name: str
    values: Mapping[str, _Value]
    indexes: Sequence[tuple[str, Mapping[str, _Value]]]
    tags: Mapping[str, str]


def cdk_typescript(definition: Definition, head: Sequence[str]) -> str:
    """A module with one class, of which a stack makes one: `new MusicTable(this, "Table")`."""
    tree = _tree(definition)
    calls = [f"this.{method}({_typescript(values)});" for method, values in tree.indexes]
    calls += [f"Tags.of(this).add({_text(name)}, {_text(value)});" for name, value in tree.tags.items()]
    core = "RemovalPolicy, Tags" if tree.tags else "RemovalPolicy"
    body = [f"super(scope, id, {_typescript(tree.values)});", *calls]
    return "\n".join(
        [
            comment("//", head),
            f'import {{ {core} }} from "aws-cdk-lib";',
            'import * as dynamodb from "aws-cdk-lib/aws-dynamodb";',
            'import { Construct } from "constructs";',
            "",
            f"/** The DynamoDB table {definition['TableName']}. */",
            f"export class {tree.name} extends dynamodb.Table {{",
            "  constructor(scope: Construct, id: string) {",
            *(f"    {line}" for call in body for line in call.split("\n")),
            "  }",
            "}",
            "",
        ]
    )


def cdk_python(definition: Definition, head: Sequence[str]) -> str:
    """The same in Python: `MusicTable(self, "Table")`."""
    tree = _tree(definition)
    calls = [f"self.{_snake(method)}({_keywords(values)})" for method, values in tree.indexes]
    calls += [f"Tags.of(self).add({_text(name)}, {_text(value)})" for name, value in tree.tags.items()]
    core = "RemovalPolicy, Tags" if tree.tags else "RemovalPolicy"
    body = [f"super().__init__({_keywords(tree.values, 'scope', 'construct_id')})", *calls]
    return "\n".join(
        [
            comment("#", head),
            f"from aws_cdk import {core}",
            "from aws_cdk import aws_dynamodb as dynamodb",
            "from constructs import Construct",
            "",
            "",
            f"class {tree.name}(dynamodb.Table):",
            f'    """The DynamoDB table {definition["TableName"]}."""',
            "",
            "    def __init__(self, scope: Construct, construct_id: str) -> None:",
            *(f"        {line}" for call in body for line in call.split("\n")),
            "",
        ]
    )


# ── the tree ──


def _tree(definition: Definition) -> _Tree:
    types = {
        attribute["AttributeName"]: _TYPES[attribute["AttributeType"]]
        for attribute in definition["AttributeDefinitions"]
    }
    indexes = [
        (method, _index(index, types, is_local=word.startswith("Local")))
        for word, method in (
            ("GlobalSecondaryIndexes", "addGlobalSecondaryIndex"),
            ("LocalSecondaryIndexes", "addLocalSecondaryIndex"),
        )
        for index in definition.get(word, ())
    ]
    values = {
        "tableName": definition["TableName"],
        **_keys(definition["KeySchema"], types),
        "billingMode": _Enum("BillingMode", definition["BillingMode"]),
        **_capacity(definition),
        **_settings(definition),
        "removalPolicy": _Enum("RemovalPolicy", "RETAIN"),
    }
    tags = {tag["Key"]: tag["Value"] for tag in definition.get("Tags", ())}
    return _Tree(construct_name(definition), values, indexes, tags)


def _settings(definition: Definition) -> dict[str, _Value]:
    """What the definition says beside keys and billing."""
    pitr = definition["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
    settings: dict[str, _Value] = {
        "pointInTimeRecoverySpecification": _Struct(
            "PointInTimeRecoverySpecification", {"pointInTimeRecoveryEnabled": pitr}
        )
    }
    if ttl := definition.get("TimeToLiveSpecification"):
        settings["timeToLiveAttribute"] = ttl["AttributeName"]
    if stream := definition.get("StreamSpecification"):
        view = stream["StreamViewType"]
        settings["stream"] = _Enum("StreamViewType", view)
    if definition.get("DeletionProtectionEnabled"):
        settings["deletionProtection"] = True
    if table_class := definition.get("TableClass"):
        settings["tableClass"] = _Enum("TableClass", table_class)
    if warm := definition.get("WarmThroughput"):
        units = {name[0].lower() + name[1:]: value for name, value in warm.items()}
        settings["warmThroughput"] = _Struct("WarmThroughput", units)
    if "ContributorInsightsSpecification" in definition:
        settings["contributorInsightsSpecification"] = _Struct(
            "ContributorInsightsSpecification", {"enabled": True}
        )
    return settings


def _index(index: Mapping[str, Any], types: Mapping[str, str], *, is_local: bool) -> dict[str, _Value]:
    keys = _keys(index["KeySchema"][1:] if is_local else index["KeySchema"], types)
    projection = index["Projection"]
    values = {
        "indexName": index["IndexName"],
        **keys,
        "projectionType": _Enum("ProjectionType", projection["ProjectionType"]),
    }
    if "NonKeyAttributes" in projection:
        values["nonKeyAttributes"] = list(projection["NonKeyAttributes"])
    return values | _capacity(index)


def _keys(schema: Sequence[Mapping[str, str]], types: Mapping[str, str]) -> dict[str, _Value]:
    """partitionKey and sortKey; in the plural where a part has several attributes."""
    keys: dict[str, _Value] = {}
    for kind, name in (("HASH", "partitionKey"), ("RANGE", "sortKey")):
        attributes: list[_Value] = [
            _Struct(
                "Attribute",
                {
                    "name": attribute["AttributeName"],
                    "type": _Enum("AttributeType", types[attribute["AttributeName"]]),
                },
            )
            for attribute in schema
            if attribute["KeyType"] == kind
        ]
        if len(attributes) > 1:
            keys[f"{name}s"] = attributes
        elif attributes:
            keys[name] = attributes[0]
    return keys


def _capacity(described: Mapping[str, Any]) -> dict[str, _Value]:
    units = described.get("ProvisionedThroughput")
    return {ours: units[theirs] for ours, theirs in _CAPACITY.items()} if units else {}


# ── the languages ──


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _typescript(value: _Value | Mapping[str, _Value]) -> str:
    """What is given to a constructor or a method has a line each, what is in there stands in one line."""
    if isinstance(value, Mapping):
        lines = [f"  {name}: {_typescript(entry)}," for name, entry in value.items()]
        return "\n".join(["{", *lines, "}"])
    if isinstance(value, _Struct):
        inner = ", ".join(f"{name}: {_typescript(entry)}" for name, entry in value.values.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_typescript, value))}]"
    return _enum(value) if isinstance(value, _Enum) else json.dumps(value, ensure_ascii=False)


def _keywords(values: Mapping[str, _Value], *first: str) -> str:
    given = [*first, *(f"{_snake(name)}={_python(value)}" for name, value in values.items())]
    return "\n".join(["", *(f"    {one}," for one in given), ""])


def _python(value: _Value) -> str:
    if isinstance(value, _Struct):
        inner = ", ".join(f"{_snake(name)}={_python(entry)}" for name, entry in value.values.items())
        return f"dynamodb.{value.type}({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(_python, value))}]"
    if isinstance(value, str):
        return _text(value)
    return _enum(value) if isinstance(value, _Enum) else repr(value)


def _enum(value: _Enum) -> str:
    module = "" if value.type == "RemovalPolicy" else "dynamodb."
    return f"{module}{value.type}.{value.member}"


def _snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()
