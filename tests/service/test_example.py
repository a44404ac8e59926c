"""The example of docs/service.md runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.journey.in_process import run_here

HOUSE = Path(__file__).parents[2]
_FILE = re.compile(r"^`(?P<name>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_example_runs(tmp_path: Path) -> None:
    page = (HOUSE / "docs" / "service.md").read_text()
    for found in _FILE.finditer(page):
        (tmp_path / found["name"]).write_text(found["text"])
    assert {"mapping.yaml", "notes.yaml", "service.py"} <= {one.name for one in tmp_path.iterdir()}
    bin_ = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "MIGRATOR_HOME": str(tmp_path / "home"),
    }
    said = {}
    try:
        for line in _CONSOLE.findall(page)[0].splitlines():
            command, *words = shlex.split(line.removeprefix("$ "))
            if command == "migrator":
                ended = run_here(words, tmp_path, environment)
                code, out = ended.code, ended.out + ended.err
            else:
                done = subprocess.run(
                    [command, *words],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                code, out = done.returncode, done.stdout + done.stderr
            assert code == 0, f"{line}\n{out}"
            said[words[0]] = out
    finally:
        run_here(["local", "stop"], tmp_path, environment)
    # An author's mark and two notes'; a rename touches both notes.
    assert "3 stored items" in said["verify"]
    assert "clean" in said["verify"]
