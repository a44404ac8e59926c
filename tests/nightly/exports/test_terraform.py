"""What `migrator export --as terraform` writes, applied by Terraform itself to the embedded server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import pins
from tests import support_services as services
from tests.exports.shipped import Shipped, all_shipped

_PROVIDER = """
provider "aws" {
  region                      = "eu-central-1"
  access_key                  = "test"
  secret_key                  = "test"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  endpoints {
    dynamodb = "%s"
  }
}
"""


@pytest.fixture
def terraform(tmp_path: Path) -> Path | None:
    """Terraform's settings, with the AWS provider of this machine; None where one of both is missing."""
    mirror = services.terraform_mirror()
    if mirror is None:
        return None
    settings = tmp_path / "terraform.rc"
    settings.write_text(f'provider_installation {{ filesystem_mirror {{ path = "{mirror}" }} }}\n')
    return settings


def test_shipped_mappings_apply_and_a_second_plan_is_empty(
    terraform: Path | None, tmp_path: Path, dynamodb_url: str
) -> None:
    jobs = all_shipped(tmp_path, dynamodb_url, "stream: new_image, tags: {team: shop}")
    if terraform is None:
        # No part that a machine must have; the last lines of the run say that files were read alone.
        _parse(jobs)
        return
    root = tmp_path / "root"
    for job in jobs:
        assert job.run("export", "--as", "terraform", "job.yaml", "--out", str(root / job.table)).code == 0
    modules = "".join(f'module "{job.table}" {{\n  source = "./{job.table}"\n}}\n' for job in jobs)
    (root / "main.tf").write_text(_PROVIDER % dynamodb_url + modules)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"TF_CLI_CONFIG_FILE": str(terraform), "TF_IN_AUTOMATION": "1"}
        command = ["terraform", *words, "-no-color"]
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)

    assert run("init").returncode == 0
    applied = run("apply", "-auto-approve")
    assert applied.returncode == 0, applied.stderr
    for job in jobs:
        checked = job.run("table", "check", "job.yaml")
        assert checked.code == 0, checked.out
    again = run("plan", "-detailed-exitcode")
    assert again.returncode == 0, again.stdout + again.stderr


def test_every_shipped_mapping_is_parsed(tmp_path: Path, dynamodb_url: str) -> None:
    options = "stream: new_image, warm_throughput: {read: 12000, write: 4000}, tags: {'a b': c}"
    _parse(all_shipped(tmp_path, dynamodb_url, options))


def _parse(jobs: Sequence[Shipped]) -> None:
    for job in jobs:
        (table,) = json.loads(job.exported("terraform"))["resource"]["aws_dynamodb_table"].values()
        assert table["name"] == job.table


def test_a_run_without_terraform_reports_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert services.terraform_mirror() is None
    assert services.terraform_source() == pins.text()
