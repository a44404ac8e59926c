"""What journeys of `migrator init` share: a folder with a source, and the command in it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.command import ROOT, Project
from tests.journeys.in_process import Ended

FILES = {"shop.yaml", "shop.job.yaml", "shop.patterns.md"}


@pytest.fixture
def here(tmp_path: Path, dynamodb_url: str) -> Callable[[str], Project]:
    """Makes a project for a source, with the job that `migrator init` writes there."""

    def make(source: str) -> Project:
        environment = {
            **{name: os.environ[name] for name in ("PATH",) if name in os.environ},
            "MIGRATOR_SOURCE_URL": source,
            "MIGRATOR_ENDPOINT_URL": dynamodb_url,
            "PYTHONPATH": str(ROOT),
        }
        table = f"Init{secrets.token_hex(4)}"
        return Project(tmp_path, tmp_path / "shop.job.yaml", table, dynamodb_url, environment)

    return make


def proposed(project: Project, *words: str, prove: bool = False) -> Ended:
    """What `migrator init` says of the project's source."""
    source = project.environment["MIGRATOR_SOURCE_URL"]
    proof = () if prove else ("--no-prove",)
    return project.run("init", source, "--out", "shop.yaml", "--table", project.table, *proof, *words)
