"""What all tests of exports share: Node.js with what exported TypeScript needs, and a DynamoDB that checks policies."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support_services as services

NODE = Path(__file__).with_name("node")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the TypeScript compiler, the CDK and ElectroDB, for the tests of the group `node`."""
    folder = tmp_path_factory.mktemp("node")
    for file in NODE.iterdir():
        shutil.copy(file, folder)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def auth_dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded server that asks IAM, for the tests of the group `iam`."""
    with services.embedded_dynamodb(tmp_path_factory.mktemp("auth"), AUTH="true") as url:
        yield url
