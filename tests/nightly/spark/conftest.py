"""PySpark, which is in no lock of ours: installed once for all tests of the group `spark`, as a cluster has its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "3.5.4"
"""AWS Glue 5.0's, and that of EMR Serverless 7.8."""


@pytest.fixture(scope="session")
def pyspark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with PySpark alone, for PYTHONPATH; MIGRATOR_TEST_PYSPARK names one that is there already."""
    if named := os.environ.get("MIGRATOR_TEST_PYSPARK"):
        return Path(named)
    folder = tmp_path_factory.mktemp("pyspark")
    words = ["install", "--quiet", "--disable-pip-version-check", "--target", str(folder)]
    command = [sys.executable, "-m", "pip", *words, f"pyspark=={VERSION}"]
    subprocess.run(command, check=True, timeout=600)
    return folder


@pytest.fixture
def spark_environment(pyspark: Path, tmp_path: Path) -> dict[str, str]:
    """What a command needs to start Spark, and its executors to find this package."""
    root = Path(__file__).parents[3]
    return {
        "PYTHONPATH": f"{root}:{pyspark}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(tmp_path / "spark"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
