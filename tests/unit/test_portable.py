"""The package on systems that are not Linux: nothing is imported, or looked up at import, that Unix alone has."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import migrator

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
for module in pkgutil.walk_packages(migrator.__path__, "migrator."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from migrator.runtime.retry import running_s
assert running_s() > 0
"""


def test_every_module_is_imported_without_what_unix_alone_has() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_UNIX], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(migrator.__file__).parent / "py.typed").is_file()


def test_no_library_that_must_be_compiled_stands_between_us_and_arm() -> None:
    """Of what a plain installation takes along, these have compiled parts; each has wheels for Linux, macOS and Windows on
    Intel and ARM (looked up on the index, 2026-11)."""
    compiled = {
        "sqlalchemy",
        "greenlet",
        "ruamel-yaml-clib",
        "pydantic-core",
        "pygeohash",
        "psutil",
        "markupsafe",
        "orjson",
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
