"""A DynamoDB table as a CloudFormation template: the whole file, and the lines of one part of it.

A part is what a difference is about, as in terraform.py. Source: the CloudFormation reference of AWS::DynamoDB::Table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from migrator.features.exports.file import Definition, comment, construct_name

_PARTS = {
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


def cloudformation_file(definition: Definition, head: Sequence[str]) -> str:
    """The whole template. The table outlives its stack: a stack that is deleted by mistake takes no data along."""
    name = construct_name(definition)
    outputs: dict[str, Any] = {"TableName": {"Ref": name}, "TableArn": {"Fn::GetAtt": [name, "Arn"]}}
    if "StreamSpecification" in definition:
        outputs["StreamArn"] = {"Fn::GetAtt": [name, "StreamArn"]}
    template = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"The DynamoDB table {definition['TableName']}",
        "Resources": {
            name: {
                "Type": "AWS::DynamoDB::Table",
                "DeletionPolicy": "Retain",
                "UpdateReplacePolicy": "Retain",
                "Properties": _properties(definition),
            }
        },
        "Outputs": {output: {"Value": value} for output, value in outputs.items()},
    }
    return comment("#", head) + "\n" + "\n".join(_yaml(template)) + "\n"


def cloudformation(part: str, definition: Definition) -> list[str]:
    """Lines below `Properties:`; [] where the definition says nothing of the part, so that it has to go."""
    kind, _, name = part.partition(" ")
    properties = _properties(definition)
    if kind != "index":
        return _yaml({word: properties[word] for word in _PARTS[kind] if word in properties})
    for word in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in properties.get(word, ()):
            if index["IndexName"] == name:
                return _yaml({"AttributeDefinitions": properties["AttributeDefinitions"], word: [index]})
    return []


def _properties(definition: Definition) -> dict[str, Any]:
    """CreateTable's words, but for a stream, which is on by being named."""
    properties = dict(definition)
    if stream := properties.get("StreamSpecification"):
        properties["StreamSpecification"] = {"StreamViewType": stream["StreamViewType"]}
    return properties


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
        return [f"{name} {json.dumps(value, ensure_ascii=False)}"]
    if isinstance(value, (Mapping, list)):
        return [name, *(f"  {line}" for line in _yaml(value))]
    return [f"{name} {json.dumps(value, ensure_ascii=False)}"]
