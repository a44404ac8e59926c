"""The package on systems that are not Linux: nothing is imported, or looked up at import, that Unix alone has."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import migrator
from migrator.runtime.system import how_to_install
from tests import pins

WITHOUT_UNIX = """
import importlib, os, pkgutil, sys, time, signal
# What is not ours knows by itself which system it runs on.
import asyncio, subprocess, boto3, filelock, prometheus_client, psutil, rich.progress, sqlalchemy.ext.asyncio, sqlglot, structlog
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty", "syslog", "posix_ipc"):
    sys.modules[name] = None
for home, names in ((os, ("register_at_fork", "killpg", "getuid", "geteuid", "fchmod", "WNOHANG")),
                    (time, ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC", "clock_gettime")),
                    (signal, ("SIGKILL", "SIGHUP", "SIGALRM"))):
    for name in names:
        delattr(home, name)
import migrator
from migrator.runtime.system import how_to_install
for module in pkgutil.walk_packages(migrator.__path__, "migrator."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from migrator.runtime.retry import running_s
assert running_s() > 0
"""


@pytest.mark.slow
def test_every_module_is_imported_without_unix_only_parts() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_UNIX], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_package_declares_its_types() -> None:
    assert (Path(migrator.__file__).parent / "py.typed").is_file()


def test_compiled_libraries_are_the_known_ones_with_arm_wheels() -> None:
    """Of what a plain installation takes along, these have compiled parts; each has wheels for Linux, macOS and Windows on
    Intel and ARM (looked up on the index, 2026-11)."""
    compiled = {
        "sqlalchemy",
        "greenlet",
        "pyyaml",
        "pydantic-core",
        "pygeohash",
        "psutil",
        "markupsafe",
        "orjson",
        "httptools",
        "msgspec",
        "ruff",
    }
    assert _with_compiled_parts("single-table-migrator", set()) <= compiled


def _with_compiled_parts(name: str, seen: set[str]) -> set[str]:
    """Names of the distributions below `name`, extras left out, that hold compiled code."""
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return set()
    plain = name.lower().replace("_", "-").replace(".", "-")
    if plain in seen:
        return set()
    seen.add(plain)
    own = {plain} if any(Path(str(file)).suffix == ".so" for file in found.files or ()) else set()
    needed = [text for text in found.requires or () if "extra ==" not in text]
    names = [
        text.partition(";")[0].split("[")[0].split("<")[0].split(">")[0].split("=")[0] for text in needed
    ]
    return own.union(*(_with_compiled_parts(one.split("!")[0].split("~")[0].strip(), seen) for one in names))


def test_install_of_an_extra_matches_the_packages_metadata() -> None:
    """The message names the library itself: that works from a clone and from an index."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra in ("postgres", "mysql", "local"):
        (library,) = project["optional-dependencies"][extra]
        assert how_to_install(extra) == pins.text(library=library)


def test_package_claims_only_tested_pythons_and_systems() -> None:
    root = Path(__file__).parents[2]
    claimed = tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]
    (newer,) = re.findall(r"set -- (.*)", (root / ".ci" / "versions").read_text())
    pythons = [text.rpartition(" :: ")[2] for text in claimed if "Programming Language" in text]
    assert pythons == ["3.11", *newer.split()]
    assert [text for text in claimed if "Operating System" in text] == ["Operating System :: POSIX :: Linux"]
