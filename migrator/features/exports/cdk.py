"""A DynamoDB table as a construct of the AWS CDK, in TypeScript and in Python, that includes the CloudFormation template.

Source: aws-cdk-lib, module cloudformation-include.
"""

from __future__ import annotations

from collections.abc import Sequence

from migrator.features.exports.file import Definition, comment, construct_name

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
