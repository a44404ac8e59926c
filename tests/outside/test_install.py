"""The lines that install migrator for production, run in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.pages.site import ROOT

DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
PLACE = "/opt/migrator"


def copied() -> list[str]:
    """What the image is built from."""
    listed = re.findall(
        r"(?m)^COPY (?!--from)(.+)$", DOCKERFILE.partition("AS build\n")[2].partition("FROM")[0]
    )
    return [name for line in listed for name in line.split()[:-1]]


def lines() -> list[str]:
    """The commands of the build stage."""
    run = re.search(r"(?m)^RUN (python -m venv (?:.*\\\n)*.*)$", DOCKERFILE)
    assert run is not None
    return [line.strip() for line in run[1].replace("\\\n", "").split("&&")]


@pytest.mark.nightly
def test_image_lines_install_migrator_in_an_empty_folder(tmp_path: Path) -> None:
    source, place = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    for name in copied():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name)
    for line in lines():
        words = [word.replace(PLACE, str(place)) for word in shlex.split(line)]
        words = [sys.executable if word == "python" else word for word in words if word != "--no-cache-dir"]
        ended = subprocess.run(words, cwd=source, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{line}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
    assert version(place) == "native"
    (installed,) = place.glob("lib/python*/site-packages/migrator")
    listed = subprocess.run(
        ["git", "ls-files", "migrator"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    files = {line.removeprefix("migrator/") for line in listed.splitlines() if (ROOT / line).is_file()}
    assert [file for file in sorted(files) if not (installed / file).is_file()] == []
    # On a machine without a compiler.
    shutil.rmtree(source / "build")
    ended = subprocess.run(
        [*words[:1], "install", "--quiet", "--no-build-isolation", "--no-deps", "--force-reinstall", "."],
        cwd=source,
        env={**os.environ, "CC": "/bin/false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert version(place) == "Python"


def version(place: Path) -> str:
    """The executor that `migrator --version` names."""
    command = [str(place / "bin" / "migrator"), "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"items by the (\w+) executor", told)
    assert found is not None, told
    return found[1]


def test_the_systemd_page_installs_by_the_same_lines() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for line in lines()[1:]:
        assert line.replace(" --no-cache-dir", "") in page
