"""Every file that git knows, or would add: nothing in it belongs to one machine or to one index of packages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Spelled in pieces, so that this file does not find itself.
_FOLDERS = "|".join(["work", "tmp/v", "tmp/briefs", "root", "home/[a-z]+"])
UNWANTED = {
    "a machine path": re.compile(rf"(?<![\w./}}-])/(?:{_FOLDERS})/[\w.]"),
    "the address of a package registry": re.compile(
        r"https?://[\w.-]*(?:" + "|".join(["py" + "pi", "python" + "hosted", "npm" + "js"]) + ")|"
        r"--(?:extra-)?" + r"index-url\s*[= ]\s*\S"
    ),
}


def _files() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def _lines(path: str) -> list[str]:
    """The lines of a text file; none of a binary one."""
    content = (ROOT / path).read_bytes()
    return [] if b"\0" in content else content.decode("utf-8", "replace").splitlines()


@pytest.mark.parametrize("what", sorted(UNWANTED))
def test_no_file_contains_data_of_one_machine(what: str) -> None:
    found = [
        f"{path}:{number}"
        for path in _files()
        for number, line in enumerate(_lines(path), start=1)
        if UNWANTED[what].search(line)
    ]
    assert not found


def _named(text: str) -> set[str]:
    """ "MariaDB 10.11 and 11.8" as two."""
    found: set[str] = set()
    name = ""
    for word in re.findall(r"[A-Z]\w+|\d+(?:\.\d+)?", text):
        name, found = (name, found | {f"{name} {word}"}) if word[0].isdigit() else (word, found)
    return found


def test_engines_named_as_tested_are_those_of_the_table() -> None:
    """docs/tested.md, whose rows the runs write. Of capture from the log alone it speaks apart."""
    rows = [row for row in _lines("docs/tested.md") if row.startswith("| ") and "nightly-log" not in row]
    cells = [row.split(" | ")[3:5] for row in rows][1:]
    run = {f"PostgreSQL {one.partition('.')[0]}" for one, _ in cells} | {
        one.rpartition(".")[0] for _, one in cells
    }
    (said,) = re.findall(
        r"PostgreSQL 16 and 17: (.+?)\s+were run", "\n".join(_lines("docs/tested.md")), re.DOTALL
    )
    assert _named(said) == run - {"", "PostgreSQL –"}
    matrix = re.findall(r'postgres: "(.+)", mariadb: "(.+)"', (ROOT / ".github/workflows/ci.yml").read_text())
    assert {name for one, other in matrix for name in (f"PostgreSQL {one}", f"MariaDB {other}")} <= run


def test_installed_package_has_every_file_that_is_not_code() -> None:
    """Package data by the patterns of pyproject.toml; an installation is tried at night (tests/outside/test_install.py)."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "migrator"
    ]
    code = ROOT / "migrator"
    packed = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in code.glob(pattern)}
    files = [file for file in _files() if file.startswith("migrator/") and not file.endswith((".py", ".pyx"))]
    assert [file for file in files if file not in packed] == []
