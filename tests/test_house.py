"""The rules of the house that a machine can check, over every file that git knows or would take up."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parent.parent
MODULE_LINES = 450
FUNCTION_LINES = 40

LONG_ON_PURPOSE: dict[str, str] = {}

# Spelled in pieces, so that this file does not find itself.
_FOLDERS = "|".join(["work", "tmp/v", "tmp/briefs", "root", "home/[a-z]+"])
UNWANTED = {
    "a machine path": re.compile(rf"(?<![\w./}}-])/(?:{_FOLDERS})/[\w.]"),
    "the address of a package registry": re.compile(
        r"https?://[\w.-]*(?:" + "|".join(["py" + "pi", "python" + "hosted", "npm" + "js"]) + ")|"
        r"--(?:extra-)?" + r"index-url\s*[= ]\s*\S"
    ),
}


def _files(*suffixes: str) -> list[str]:
    """Paths below the repository's root: tracked ones, and new ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(
        {name for name in listed if name and name.endswith(suffixes or "") and (HOUSE / name).is_file()}
    )


def _functions(name: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((HOUSE / name).read_text(encoding="utf-8"), name)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def test_no_module_is_longer_than_the_house_allows() -> None:
    long = [
        f"{path}: {lines} lines"
        for path in _files(".py")
        if path not in LONG_ON_PURPOSE
        and (lines := len((HOUSE / path).read_text(encoding="utf-8").splitlines())) > MODULE_LINES
    ]
    assert not long


def test_no_function_is_longer_than_the_house_allows() -> None:
    long = [
        f"{path}:{function.lineno}: {function.name} takes {lines} lines"
        for path in _files(".py")
        for function in _functions(path)
        if (lines := (function.end_lineno or 0) - function.lineno + 1) > FUNCTION_LINES
    ]
    assert not long


@pytest.mark.parametrize("what", sorted(UNWANTED))
def test_no_file_holds_what_belongs_to_one_machine_only(what: str) -> None:
    found = [
        f"{path}:{number}"
        for path in _files()
        for number, line in enumerate(_lines(path), start=1)
        if UNWANTED[what].search(line)
    ]
    assert not found


def _lines(path: str) -> list[str]:
    """The lines of a text file; none of a binary one."""
    content = (HOUSE / path).read_bytes()
    return [] if b"\0" in content else content.decode("utf-8", "replace").splitlines()


def test_every_package_re_exports_only() -> None:
    busy = [
        path
        for path in _files("__init__.py")
        if path.startswith("migrator/")
        and any(
            not isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign))
            for node in ast.parse((HOUSE / path).read_text(encoding="utf-8")).body
        )
    ]
    assert not busy


def test_no_word_of_the_house_is_a_room_for_everything() -> None:
    rooms_for_everything = {"utils.py", "helpers.py", "manager.py", "data.py", "process.py", "common.py"}
    assert not [path for path in _files(".py") if Path(path).name in rooms_for_everything]
