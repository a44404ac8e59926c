"""The examples of docs/service.md and docs/reads.md run as they are there."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.journeys.in_process import run_here
from tests.support_waiting import until

pytestmark = pytest.mark.slow

HOUSE = Path(__file__).parents[2]
_FILE = re.compile(r"^`(?P<name>[\w.]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def page(tmp_path: Path) -> str:
    """Both pages; their files are written."""
    text = "".join((HOUSE / "docs" / f"{name}.md").read_text() for name in ("service", "reads"))
    for found in _FILE.finditer(text):
        (tmp_path / found["name"]).write_text(found["text"])
    assert {"mapping.yaml", "notes.yaml", "service.py"} <= {one.name for one in tmp_path.iterdir()}
    return text


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    bin_ = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "MIGRATOR_HOME": str(tmp_path / "home"),
        "PYTHONUNBUFFERED": "1",
    }


def test_the_example_runs(tmp_path: Path, page: str, environment: dict[str, str]) -> None:
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
                    timeout=120,
                )
                code, out = done.returncode, done.stdout + done.stderr
            assert code == 0, f"{line}\n{out}"
            said[words[0]] = out
    finally:
        run_here(["local", "stop"], tmp_path, environment)
    # An author's mark and two notes'; a rename touches both notes.
    assert "3 stored items" in said["verify"]
    assert "clean" in said["verify"]


@pytest.mark.usefixtures("page")
def test_its_tests_need_no_database_and_no_dynamodb(tmp_path: Path, environment: dict[str, str]) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_notes.py"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "notes.db").exists()
    assert not (tmp_path / "home").exists()


@contextmanager
def served(folder: Path, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The example under uvicorn, and what it says."""
    log = folder / "web.log"
    words = [sys.executable, "-m", "uvicorn", "--port", "0", "web_fastapi:app"]
    with log.open("w") as out:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=out, stderr=out)
    try:
        until(lambda: "running on http" in log.read_text())
        yield server, log
    finally:
        server.kill()
        server.wait(120)


@pytest.mark.usefixtures("page")
def test_fastapi_example_writes_reads_and_deregisters(tmp_path: Path, environment: dict[str, str]) -> None:
    def migrator(*words: str) -> str:
        ended = run_here(list(words), tmp_path, environment)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def python(program: str) -> str:
        words = [sys.executable, "-c", program]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        return done.stdout

    python("from service import *; Base.metadata.create_all(Session.kw['bind'])")
    try:
        migrator("table", "create", "notes.yaml")
        migrator("capture", "install", "notes.yaml", "--by", "services")
        python("from service import *; s = Session(); s.add(Author(name='Ada')); s.commit()")
        with served(tmp_path, environment) as (server, log):
            at = log.read_text().split("running on ")[1].split()[0] + "/authors/1/notes"
            ask = "from urllib.request import Request, urlopen; print(urlopen(Request({!r}, method={!r})).read())"
            python(ask.format(f"{at}?text=hello", "POST"))
            assert "hello" in python(ask.format(at, "GET"))
            assert '"role": "dual_write,read"' in migrator("status", "notes.yaml", "--json")
            server.send_signal(signal.SIGTERM)
            server.wait(120)
        assert '"instances": []' in migrator("status", "notes.yaml", "--json"), log.read_text()
    finally:
        run_here(["local", "stop"], tmp_path, environment)
