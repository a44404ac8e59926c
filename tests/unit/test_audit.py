"""What `make lint` says of known vulnerabilities: told where there are some, and where none could be looked up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pins
from tools.audit_packages import judged

CLEAN = {"name": "click", "version": "8.1", "vulns": []}
FAULTY = {"name": "six", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"]}]}
UNKNOWN = {"name": "rich", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "is_clean", "lines"),
    [
        ([CLEAN], True, []),
        ([CLEAN, FAULTY], False, ["six 1.0: PYSEC-1, mended in 1.1, 2.0"]),
        (
            [CLEAN, UNKNOWN],
            True,
            ["audit of packages: skipped for 1 of 2 packages, which this index tells nothing of"],
        ),
    ],
)
def test_what_is_known_is_reported(packages: list[object], is_clean: bool, lines: list[str]) -> None:
    assert judged(json.dumps({"dependencies": packages}), "") == (is_clean, lines)


def test_audit_without_an_index_reports_that_it_was_skipped() -> None:
    command = [sys.executable, "-m", "tools.audit_packages"]
    away = {
        "HTTPS_PROXY": "http://127.0.0.1:1",
        "https_proxy": "http://127.0.0.1:1",
        "NO_PROXY": "",
        "HOME": "/nonexistent",
    }
    ended = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=away, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == pins.text()
