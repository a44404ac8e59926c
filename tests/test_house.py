"""The rules of the house that a machine can check, over every file that git knows or would take up."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

HOUSE = Path(__file__).resolve().parent.parent
MODULE_LINES = (60, 450)
FUNCTION_LINES = 40
FOLDER_MODULES = 17

TOP = {
    *("__init__", "__main__", "api", "cli", "wiring", "stages", "output", "source", "target", "journal"),
    *("mapping", "model", "settings", "runtime", "py.typed"),
}
LONG_ON_PURPOSE: dict[str, str] = {}
SHORT_ON_PURPOSE = {
    "__main__": "`python -m migrator`, nothing else",
    "cli/completion": "imported when it is asked for, and nothing with it",
    "cli/local": "imported when it is asked for, and nothing with it",
    "cli/mapping": "a check of a mapping's form loads no SQL: what does is in mapping_source",
    "cli/commands/local": "one declaration a group",
    "cli/commands/relay": "one declaration a group",
    "mapping/language/expression_reader": "the three parsers above it share it",
    "output/faults": "a check of a mapping's form loads no terminal library",
    "output/inert": "every error goes through it, and none of them loads a page",
    "runtime/logs": "what a command without a line pays for lines",
    "runtime/tracing": "loads OpenTelemetry where it is installed, which no command's start waits for",
    "source/engines/table": "the one table that a new engine stands in",
    "wiring/removal": "the edges of one group of commands",
    "wiring/verify": "the edges of one group of commands",
}
FOR_ONE_ALONE: dict[str, str] = {
    "runtime/log_lines": "loads structlog, which a command without a log line does without",
}
"""Modules that one other of their folder alone imports, though both would fit into one. Those of an engine are apart on
purpose: one capability a module, so that two engines can be read side by side."""

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


def _modules() -> dict[str, int]:
    """Modules of migrator/ by their path in it, with their lines; no package's own."""
    return {
        path.removeprefix("migrator/").removesuffix(".py"): len(_lines(path))
        for path in _files(".py")
        if path.startswith("migrator/") and not path.endswith("__init__.py")
    }


def test_no_module_is_longer_than_the_house_allows() -> None:
    long = [
        f"{path}: {lines} lines"
        for path in _files(".py")
        if path not in LONG_ON_PURPOSE and (lines := len(_lines(path))) > MODULE_LINES[1]
    ]
    assert not long


def test_no_module_is_too_short_for_one_of_its_own() -> None:
    short = {path for path, lines in _modules().items() if lines < MODULE_LINES[0]}
    assert short == set(SHORT_ON_PURPOSE)


def test_the_top_is_the_twelve_entries_of_the_house() -> None:
    found = {path.split("/")[1] for path in _files() if path.startswith("migrator/")}
    assert {name.removesuffix(".py") for name in found} == TOP


def test_no_folder_is_too_full_to_be_read_at_a_glance() -> None:
    full = Counter(path.rpartition("/")[0] for path in _modules())
    assert not {folder: count for folder, count in full.items() if count > FOLDER_MODULES}


def test_a_module_that_one_other_alone_imports_is_part_of_it() -> None:
    graph, lines = grimp.build_graph("migrator", cache_dir=None), _modules()
    alone = set()
    for module in graph.modules:
        path, importers = _path(module), graph.find_modules_that_directly_import(module)
        if path not in lines or len(importers) != 1:
            continue
        other = _path(importers.pop())
        folder = path.rpartition("/")[0]
        beside = folder == other.rpartition("/")[0] and not folder.startswith("source/engines/")
        if beside and other in lines and lines[path] + lines[other] <= MODULE_LINES[1]:
            alone.add(path)
    assert alone == set(FOR_ONE_ALONE)


def _path(module: str) -> str:
    return module.removeprefix("migrator.").replace(".", "/")


def test_the_tree_of_the_architecture_is_the_real_one() -> None:
    text = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    block = re.search(r"^## The tree$.*?^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    told = [line.split()[0] for line in block[1].splitlines()]
    packages = {f"{path.rpartition('/')[0]}/" for path in _modules() if "/" in path}
    assert sorted(told) == sorted(packages | {f"{path}.py" for path in _modules() if "/" not in path})


def test_unit_tests_stand_in_folders_like_those_of_the_code() -> None:
    folders = {path.rpartition("/")[0] for path in _modules()} | {
        folder for path in _modules() if (folder := path.split("/")[0])
    }
    tests = {path.removeprefix("tests/unit/") for path in _files(".py") if path.startswith("tests/unit/")}
    assert not {path for path in tests if "/" in path and path.rpartition("/")[0] not in folders}


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
