"""Shell completion: the script, and what it asks of the command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.forking import run_python
from tests.journeys.command import ROOT


def migrator(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return run_python(["-m", "migrator", *words], env=surroundings)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_asks_the_command(shell: str) -> None:
    done = migrator(_MIGRATOR_COMPLETE=f"{shell}_source")
    assert done.returncode == 0, done.stderr
    assert f"_MIGRATOR_COMPLETE={shell}_complete" in done.stdout


def test_a_shell_completes_commands_and_options() -> None:
    asked = {"_MIGRATOR_COMPLETE": "bash_complete", "COMP_WORDS": "migrator cl", "COMP_CWORD": "1"}
    assert migrator(**asked).stdout.split() == ["plain,clean"]
    asked |= {"COMP_WORDS": "migrator backfill --max-c", "COMP_CWORD": "2"}
    assert migrator(**asked).stdout.split() == ["plain,--max-cost"]


def test_a_completion_waits_for_neither_sql_nor_aws() -> None:
    code = (
        "import sys; from migrator.main import run; assert run([]) == 0; "
        "assert not {'sqlalchemy', 'sqlglot', 'boto3', 'pydantic'} & set(sys.modules)"
    )
    asked = {"_MIGRATOR_COMPLETE": "bash_complete", "COMP_WORDS": "migrator cl", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | asked,
    )
    assert done.returncode == 0, done.stderr


def test_the_version_is_printed() -> None:
    assert migrator("--version").stdout.startswith("migrator, version ")
