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


# ── A CDK construct that includes the template ──

TEMPLATE = "table.yaml"
"""The template, in the construct's folder."""

_TYPESCRIPT = """{head}
import {{ join }} from "node:path";
import {{ CfnTable }} from "aws-cdk-lib/aws-dynamodb";
import {{ CfnInclude }} from "aws-cdk-lib/cloudformation-include";
import {{ Construct }} from "constructs";

export class {name} extends CfnInclude {{
  readonly table: CfnTable;

  constructor(scope: Construct, id: string) {{
    super(scope, id, {{ templateFile: join(__dirname, "{template}") }});
    this.table = this.getResource("{name}") as CfnTable;
  }}
}}
"""
_PYTHON = """{head}
from pathlib import Path

from aws_cdk.cloudformation_include import CfnInclude
from constructs import Construct


class {name}(CfnInclude):
    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id, template_file=str(Path(__file__).with_name("{template}")))
        self.table = self.get_resource("{name}")
"""


def cdk_typescript(definition: Definition, head: Sequence[str]) -> str:
    """A module with one class, of which a stack makes one: `new MusicTable(this, "Table")`."""
    name = construct_name(definition)
    return _TYPESCRIPT.format(head=comment("//", head), name=name, template=TEMPLATE)


def cdk_python(definition: Definition, head: Sequence[str]) -> str:
    """The same in Python: `MusicTable(self, "Table")`."""
    return _PYTHON.format(head=comment("#", head), name=construct_name(definition), template=TEMPLATE)
