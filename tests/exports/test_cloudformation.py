"""What `migrator export --as cloudformation` writes, read by cfn-lint and deployed to the embedded server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest

from tests.exports.shipped import MAPPINGS, all_shipped, shipped

pytestmark = pytest.mark.slow

OPTIONS = "stream: new_image, tags: {team: shop}, deletion_protection: true"


def test_cfn_lint_finds_nothing_in_any_of_them(tmp_path: Path) -> None:
    provisioned = "provisioned: {read: 5, write: 6}, table_class: standard_infrequent_access"
    templates = []
    every = f"{OPTIONS}, contributor_insights: true, warm_throughput: {{read: 12000, write: 4000}}"
    for folder, options in (("plain", ""), ("every", every), ("provisioned", provisioned)):
        (tmp_path / folder).mkdir()
        for job in all_shipped(tmp_path / folder, "http://127.0.0.1:1", options):
            assert job.run("export", "--as", "cloudformation", "job.yaml", "--out", ".").code == 0
            templates.append(str(job.folder / "table.yaml"))
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--include-checks", "I", "--", *templates]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("mapping", MAPPINGS, ids=[mapping.stem for mapping in MAPPINGS])
def test_stack_makes_the_table_of_the_mapping(mapping: Path, tmp_path: Path, dynamodb_url: str) -> None:
    # The embedded server's stacks leave recovery and TTL off; AWS's do not.
    job = shipped(tmp_path, mapping, dynamodb_url, f"{OPTIONS}, pitr: false")
    client = boto3.client(
        "cloudformation", endpoint_url=dynamodb_url, region_name="eu-central-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    stack = job.table.replace("_", "-")
    client.create_stack(StackName=stack, TemplateBody=job.exported("cloudformation"))
    while (state := client.describe_stacks(StackName=stack)["Stacks"][0])["StackStatus"].endswith("PROGRESS"):
        time.sleep(0.1)
    assert state["StackStatus"] == "CREATE_COMPLETE"
    outputs = {output["OutputKey"]: output["OutputValue"] for output in state["Outputs"]}
    assert outputs["TableName"] == job.table
    differences = job.run("table", "check", "job.yaml", "--json").data["differences"]
    assert [one for one in differences if not one.startswith("TTL")] == [], differences
