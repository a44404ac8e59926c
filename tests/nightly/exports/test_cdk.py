"""What `migrator export --as cdk-ts` and `cdk-py` write: compiled, synthesised, and compared with the CloudFormation template."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from tests.exports.shipped import Shipped, all_shipped

PROVISIONED = "provisioned: {read: 5, write: 6}, table_class: standard_infrequent_access"
EVERY = (
    "stream: new_image, tags: {team: shop}, deletion_protection: true, contributor_insights: true, "
    "warm_throughput: {read: 12000, write: 4000}"
)
_LEFT_OFF = ("TTL", "pitr", "contributor_insights", "warm_throughput", "table_class")
"""What the embedded server's stacks leave as it is by default, and AWS's do not; the templates are compared with it on."""


@pytest.mark.xdist_group("node")
def test_cdk_constructs_make_the_cloudformation_template(
    node: Path, tmp_path: Path, dynamodb_url: str
) -> None:
    jobs: list[Shipped] = []
    for number, options in enumerate(("", EVERY, PROVISIONED)):
        (tmp_path / str(number)).mkdir()
        jobs += all_shipped(tmp_path / str(number), dynamodb_url, options)
    templates = _synthesised(node, jobs)
    for job in jobs:
        written = yaml.safe_load(job.exported("cloudformation"))["Resources"]
        (wanted,) = written.values()
        made = templates[job.table]["Resources"]
        (resource,) = [one for one in made.values() if one["Type"] == "AWS::DynamoDB::Table"]
        assert {name: resource[name] for name in wanted if name != "Properties"} == {
            name: wanted[name] for name in wanted if name != "Properties"
        }
        # An attribute may be defined in any order, and a setting that is off may be left out.
        assert _comparable(resource["Properties"]) == _comparable(wanted["Properties"]), job.table
    for job in jobs:
        _deployed(templates[job.table], job, dynamodb_url)


def _synthesised(node: Path, jobs: Sequence[Shipped]) -> dict[str, dict[str, Any]]:
    """The template of each job's stack, by its table."""
    imports, stacks = ['import { App, Stack, DefaultStackSynthesizer } from "aws-cdk-lib";'], []
    for number, job in enumerate(jobs):
        folder = node / f"table{number}"
        assert job.run("export", "--as", "cdk-ts", "job.yaml", "--out", str(folder)).code == 0
        name = (folder / "table.ts").read_text().partition("export class ")[2].split()[0]
        imports.append(f'import {{ {name} }} from "./table{number}/table";')
        synthesizer = "new DefaultStackSynthesizer({ generateBootstrapVersionRule: false })"
        stacks.append(f'new {name}(new Stack(app, "S{number}", {{ synthesizer: {synthesizer} }}), "Table");')
    body = ['const app = new App({ outdir: "cdk.out" });', *stacks, "app.synth();"]
    (node / "app.ts").write_text("\n".join([*imports, *body]))
    compile_ = [
        "npx",
        "tsc",
        "--strict",
        "--skipLibCheck",
        "--target",
        "es2022",
        "--module",
        "commonjs",
        "--types",
        "node",
        "app.ts",
    ]
    subprocess.run(compile_, cwd=node, check=True, timeout=300)
    subprocess.run(["node", "app.js"], cwd=node, check=True, timeout=300)
    return {
        job.table: json.loads((node / "cdk.out" / f"S{number}.template.json").read_text())
        for number, job in enumerate(jobs)
    }


def _comparable(properties: dict[str, object]) -> dict[str, object]:
    attributes = properties["AttributeDefinitions"]
    assert isinstance(attributes, list)
    ordered = sorted(attributes, key=lambda attribute: attribute["AttributeName"])
    return {"BillingMode": "PROVISIONED", **properties, "AttributeDefinitions": ordered}


def _deployed(template: dict[str, object], job: Shipped, endpoint: str) -> None:
    client = boto3.client(
        "cloudformation", endpoint_url=endpoint, region_name="eu-central-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    stack = job.table.replace("_", "-")
    client.create_stack(StackName=stack, TemplateBody=json.dumps(template))
    client.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 1})
    differences = job.run("table", "check", "job.yaml", "--json").data["differences"]
    assert [one for one in differences if not one.startswith(_LEFT_OFF)] == [], differences


def test_both_constructs_have_the_name_of_the_resource(tmp_path: Path) -> None:
    for job in all_shipped(tmp_path, "http://127.0.0.1:1", EVERY):
        for kind in ("cdk-ts", "cdk-py"):
            assert job.run("export", "job.yaml", "--as", kind, "--out", ".").code == 0
        (made,) = [
            one
            for one in ast.parse((job.folder / "table.py").read_text()).body
            if isinstance(one, ast.ClassDef)
        ]
        assert f"export class {made.name} extends " in (job.folder / "table.ts").read_text()
        assert f"  {made.name}:\n" in (job.folder / "table.yaml").read_text()
