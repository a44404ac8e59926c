"""Every file that git knows, or would add: nothing in it belongs to one machine or to one index of packages."""

from __future__ import annotations

import re
import runpy
import subprocess
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
def test_no_file_holds_what_belongs_to_one_machine(what: str) -> None:
    found = [
        f"{path}:{number}"
        for path in _files()
        for number, line in enumerate(_lines(path), start=1)
        if UNWANTED[what].search(line)
    ]
    assert not found


def test_the_tree_and_the_arrows_of_the_page_are_those_of_the_code() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "generate_architecture.py"))
    assert made["written"](made["PAGE"].read_text()) == made["PAGE"].read_text(), "run .ci/pages"
