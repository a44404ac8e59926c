"""Policies as text: what IAM would say of them, and where the table is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.exports.shipped import ROOT, Shipped, all_shipped, shipped

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Shipped:
    return shipped(tmp_path, ROOT / "mappings" / "chinook.yaml", "http://127.0.0.1:1")


def policy(job: Shipped, role: str, *words: str) -> list[dict[str, Any]]:
    """The statements of a role's policy."""
    ended = job.run("export", "--as", "iam", "job.yaml", "--role", role, *words)
    assert ended.code == 0, ended.err
    statements: list[dict[str, Any]] = json.loads(ended.out)["Statement"]
    return statements


def test_cfn_lint_knows_every_right_of_every_role(tmp_path: Path) -> None:
    resources = {}
    for job in all_shipped(tmp_path, "http://127.0.0.1:1"):
        assert job.run("export", "--as", "iam", "job.yaml", "--out", "iam").code == 0
        for path in sorted((job.folder / "iam").iterdir()):
            name = re.sub(r"[^0-9A-Za-z]", "", f"{job.table}{path.stem}")
            document = json.loads(path.read_text())
            resources[name] = {"Type": "AWS::IAM::ManagedPolicy", "Properties": {"PolicyDocument": document}}
    template = tmp_path / "policies.json"
    template.write_text(json.dumps({"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources}))
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--", str(template)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    # A template may have 500 resources, and these are no template of anybody's.
    said = [
        line for line in ended.stdout.splitlines() if line and not line.startswith(("E3010", str(tmp_path)))
    ]
    assert said == []


def test_service_policy_allows_only_the_queries_of_its_patterns(job: Shipped) -> None:
    path = job.folder / "job.yaml"
    path.write_text(path.read_text().replace("region:", "account: '123456789012', region:"))
    table, indexes = policy(job, "service-reading")
    arn = f"arn:aws:dynamodb:eu-central-1:123456789012:table/{job.table}"
    assert (table["Action"], table["Resource"]) == (["dynamodb:GetItem", "dynamodb:Query"], [arn])
    assert indexes["Action"] == ["dynamodb:Query"]
    assert indexes["Resource"] == [f"{arn}/index/GSI{number}" for number in (1, 2, 3)]
    assert re.fullmatch(r"MigratorTableServiceReading[0-9a-f]{12}", table["Sid"])


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("us-east-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("eusc-de-east-1", "aws-eusc"),
    ],
)
def test_the_partition_follows_from_the_region(job: Shipped, region: str, partition: str) -> None:
    (table,) = policy(job, "relay", "--region", region)
    assert table["Resource"] == [f"arn:{partition}:dynamodb:{region}:*:table/{job.table}"]


def test_job_bucket_is_in_the_policies_of_writers_and_comparers(job: Shipped) -> None:
    path = job.folder / "job.yaml"
    path.write_text(path.read_text().replace("region:", "bucket: shop-objects, prefix: v1/, region:"))
    _, bucket, objects = policy(job, "verify")
    assert (bucket["Action"], bucket["Resource"]) == (["s3:ListBucket"], ["arn:aws:s3:::shop-objects"])
    assert (objects["Action"], objects["Resource"]) == (["s3:GetObject"], ["arn:aws:s3:::shop-objects/v1/*"])
    assert len(policy(job, "report")) == 1


def test_wrong_use_names_what_to_do(job: Shipped, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    path = job.folder / "job.yaml"
    text = path.read_text()
    path.write_text(text.replace("region:", "account: '12', region:"))
    assert "12 digits" in job.run("export", "--as", "iam", "job.yaml").err
    path.write_text(text.replace(", region: eu-central-1", ""))
    unknown = job.run("export", "--as", "iam", "job.yaml")
    assert (unknown.code, "give --region" in unknown.err) == (2, True)
