"""`migrator examples`: what it copies is whole, from a clone and from an installed wheel, and can be used where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import pins
from tests.journeys.command import ROOT
from tests.journeys.in_process import Ended, run_here

BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
BUILT_FROM = ("migrator", "mappings", "jobs", "pyproject.toml", "README.md", "LICENSE")


def ran(folder: Path, *words: str) -> Ended:
    return run_here(words, folder, {**os.environ, "MIGRATOR_HOME": str(folder / "home")})


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that finds our package as it is installed from a wheel, and no clone of it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    run = {"cwd": folder, "check": True, "capture_output": True}
    subprocess.run([sys.executable, "-c", BUILD, str(folder / "dist")], **run)  # type: ignore[call-overload]
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        "--prefix",
        str(folder / "prefix"),
    ]
    subprocess.run([*pip, str(wheel)], **run)  # type: ignore[call-overload]
    site = sysconfig.get_path("purelib", vars={"base": str(folder / "prefix")})
    return {**os.environ, "PYTHONPATH": site}


def test_an_installed_package_brings_every_example_along(installed: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "migrator", "examples", "shop"]
    subprocess.run(command, cwd=tmp_path, env=installed, check=True, capture_output=True)
    assert ran(tmp_path, "examples", "of_a_clone").code == 0
    copied = files_below(tmp_path / "shop")
    assert copied == files_below(tmp_path / "of_a_clone")
    assert copied["mappings/ecommerce.yaml"] == (ROOT / "mappings" / "ecommerce.yaml").read_bytes()
    assert {
        f"mappings/designs/{path.name}" for path in (ROOT / "mappings" / "designs").iterdir()
    } <= copied.keys()


SERVICE = """\
from migrator.api import Answer, Migration, Page


def total(migration: Migration, user: int) -> int:
    answer: Answer = migration.read("get_user", user_id=user)
    page: Page = migration.read_page("orders_of", user_id=user, size=10)
    first: str | None = page.next
    reveal_type(page.items)
    return len(page.items) + len(first or "")


def wrong(migration: Migration) -> Page:
    return migration.read("get_user", size=1)
"""


def test_service_is_type_checked_against_the_installed_package(
    installed: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "service.py"]
    ended = subprocess.run(command, cwd=tmp_path, env=installed, capture_output=True, text=True, check=False)
    told = [line for line in ended.stdout.splitlines() if line.startswith("service.py")]
    assert len(told) == 2, ended.stdout
    assert 'note: Revealed type is "' in told[0]
    assert "Any" not in told[0]
    assert told[1].startswith(
        'service.py:13: error: Incompatible return value type (got "Records | Parts", expected "Page")'
    )


def test_a_copied_job_finds_its_mapping(tmp_path: Path) -> None:
    ran(tmp_path, "examples", ".")
    ended = ran(tmp_path, "table", "create", "jobs/ecommerce.yaml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "AppTable" in ended.out


def test_nothing_is_replaced_unless_requested(tmp_path: Path) -> None:
    file = tmp_path / "examples" / "jobs" / "chinook.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    refused = ran(tmp_path, "examples")
    assert refused.code == 2
    assert pins.said(refused.err)
    assert files_below(tmp_path / "examples") == {"jobs/chinook.yaml": b"mine"}
    assert ran(tmp_path, "examples", "--force").code == 0
    assert file.read_text() != "mine"


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = ran(tmp_path, "examples", "file/below")
    assert ended.code == 2
    assert pins.said(ended.err)
