"""The rules of the house that a machine can check, over every file that git knows or would take up."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import grimp
import pytest

from migrator.mapping.heart.filters import FILTERS, UNITS
from migrator.mapping.patterns.param_sources import Role
from migrator.model.facts import KindName
from migrator.model.mapping import Normaliser

HOUSE = Path(__file__).resolve().parent.parent
MODULE_LINES = (60, 450)
FUNCTION_LINES = 40
FOLDER_MODULES = 14

TOP = {
    *(
        "__init__",
        "__main__",
        "api",
        "testing",
        "cli",
        "processes",
        "spark",
        "wiring",
        "stages",
        "output",
        "source",
        "documents",
        "target",
        "journal",
        "documents",
    ),
    *("mapping", "model", "settings", "runtime", "py.typed"),
}
LONG_ON_PURPOSE: dict[str, str] = {}
SHORT_ON_PURPOSE = {
    "__main__": "`python -m migrator`, nothing else",
    "spark": "`python -m migrator.spark`, and the file that spark-submit is given: nothing else",
    "testing/fixtures": "a plugin of pytest's: nothing but its fixture, and pytest imported nowhere else",
    "cli/local": "imported when it is asked for, and nothing with it",
    "cli/commands/local": "one declaration a group",
    "output/export/file": "what every kind of export begins with",
    "mapping/language/expression_reader": "the three parsers above it share it",
}

APART = ("source/engines/", "output/export/python")

CHOICES_OF_WIRING = {
    "job": (
        6,
        "what a job may leave out: a replica, a journal of its own, a bucket, a role; the embedded S3; which source it is of",
    ),
    "live": (
        3,
        "whose connections look at capture; nothing is captured, so that no mark is waited for; which source it is of",
    ),
    "operations": (1, "what a job may leave out: a limit of the source's load, or of its replicas' lag"),
    "service": (4, "what a service asks for: strict mode, flush, either of them; a bucket may be left out"),
}
"""Each `if` of wiring/ chooses what is built from what a setting or an argument leaves out: how many there are, and why."""

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


def test_the_top_is_the_fourteen_entries_of_the_house() -> None:
    found = {path.split("/")[1] for path in _files() if path.startswith("migrator/")}
    assert {name.removesuffix(".py") for name in found} == TOP


def test_no_folder_is_too_full_to_be_read_at_a_glance() -> None:
    full = Counter(path.rpartition("/")[0] for path in _modules())
    assert not {folder: count for folder, count in full.items() if count > FOLDER_MODULES}


def test_a_module_that_one_other_alone_imports_is_part_of_it() -> None:
    """Where both fit into one. Those of an engine are apart on purpose: one capability a module, so that two engines can be
    read side by side; so is what generated modules carry a copy of."""
    graph, lines = grimp.build_graph("migrator", cache_dir=None), _modules()
    alone = set()
    for module in graph.modules:
        path, importers = _path(module), graph.find_modules_that_directly_import(module)
        if path not in lines or len(importers) != 1:
            continue
        other = _path(importers.pop())
        folder = path.rpartition("/")[0]
        beside = folder == other.rpartition("/")[0] and not folder.startswith(APART)
        if beside and other in lines and lines[path] + lines[other] <= MODULE_LINES[1]:
            alone.add(path)
    assert not alone


def _path(module: str) -> str:
    return module.removeprefix("migrator.").replace(".", "/")


def test_wiring_decides_nothing() -> None:
    choices, refusals = {}, []
    for module in _modules():
        if module.startswith("wiring/"):
            path = f"migrator/{module}.py"
            ifs, raises = _decisions((HOUSE / path).read_text(encoding="utf-8"))
            choices[module.removeprefix("wiring/")] = len(ifs)
            refusals += [f"{path}:{line}" for line in raises]
    assert not refusals
    assert {name: count for name, count in choices.items() if count} == {
        name: count for name, (count, _) in CHOICES_OF_WIRING.items()
    }


def test_no_stage_asks_which_kind_of_source_it_has() -> None:
    asks = re.compile(r"\.dynamodb\b|\.documents\b|DIALECT|[\"']dynamodb[\"']")
    for module in _modules():
        if module.startswith("stages/"):
            path = f"migrator/{module}.py"
            found = [
                ast.unparse(node.test)
                for node in ast.walk(ast.parse((HOUSE / path).read_text(encoding="utf-8")))
                if isinstance(node, (ast.If, ast.IfExp)) and asks.search(ast.unparse(node.test))
            ]
            assert not found, path


def test_every_form_of_a_decision_is_seen() -> None:
    sample = """
def opened(job):
    if job.is_late:
        raise SettingsError("it is late")
    elif job.name:
        match job.name:
            case "shop":
                return [one for one in job.tables if one.is_wanted]
    while job.waits:
        assert job.name
    return job.a if job.b else None
"""
    ifs, raises = _decisions(sample)
    assert (ifs, raises) == ([3, 5, 6, 8, 9, 11], [4, 10])


def _decisions(source: str) -> tuple[list[int], list[int]]:
    """Lines of every choice (`if` in all its forms, `match`, `while`), and of every refusal (`raise`, `assert`)."""
    choices, refusals = [], []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.If, ast.IfExp, ast.Match, ast.While)):
            choices.append(node.lineno)
        elif isinstance(node, ast.comprehension):
            choices += [one.lineno for one in node.ifs]
        elif isinstance(node, (ast.Raise, ast.Assert)):
            refusals.append(node.lineno)
    return sorted(choices), sorted(refusals)


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


def test_only_the_table_of_filters_knows_a_filter_by_its_name() -> None:
    """What a filter takes and promises is a field of its `FilterSpec`; how it is undone stands in a table beside it."""
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)}"
        for path in _files(".py")
        if path.startswith("migrator/mapping/")
        and not path.endswith(("/heart/filters.py", "/inverse/filters.py"))
        for node in ast.walk(ast.parse((HOUSE / path).read_text(encoding="utf-8")))
        if isinstance(node, (ast.Constant, ast.Compare, ast.Call)) and _names_a_filter(node)
    ]
    assert not found


def _names_a_filter(node: ast.Constant | ast.Compare | ast.Call) -> bool:
    """Whether it is a name that filters alone have, or compares any, or makes a filter of one."""
    if isinstance(node, ast.Constant):
        others = {*get_args(KindName), *get_args(Normaliser), *get_args(Role), *UNITS, "at"}
        return node.value in FILTERS.keys() - others
    if isinstance(node, ast.Call):
        return re.match(r"Filter\(['\"]", ast.unparse(node)) is not None
    sides = map(ast.unparse, [node.left, *node.comparators])
    return any(re.fullmatch(r"(used|.*\bfilters\[[^]]*\])\.name", side) for side in sides)


def test_one_walk_goes_over_expressions() -> None:
    """What can stand in what, `uses_in` and `rewritten` know, and what compiles them, which makes something else of each."""
    known = {
        "migrator/model/mapping.py",
        *(f"migrator/mapping/{name}.py" for name in ("heart/rows", "heart/encoder_text", "inverse/given")),
        "migrator/mapping/difference/meaning.py",
        *(f"migrator/output/export/{name}.py" for name in ("model", "python/expressions", "python/rows")),
    }
    own = re.compile(r"isinstance\([^()]*\(?[^()]*\b(MapOf|Each)\b|\.refs\s+for \w+ in \w+\.paths")
    walks = [
        path
        for path in _files(".py")
        if path.startswith("migrator/") and own.search((HOUSE / path).read_text(encoding="utf-8"))
    ]
    assert set(walks) <= known


def test_a_setting_is_one_class() -> None:
    """A frozen model is the form and the value; a job alone is more than its file says: where that is, what it is called."""
    copies = [
        f"{path}: {node.name}"
        for path in _files(".py")
        if path.startswith("migrator/settings/")
        for node in ast.walk(ast.parse((HOUSE / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and [ast.unparse(base) for base in node.bases] != ["Settings"]
    ]
    assert copies == ["migrator/settings/job.py: Job", "migrator/settings/source.py: Settings"]


def test_the_words_of_a_choice_stand_in_one_place() -> None:
    """Of what a mapping may say and what code goes by: a second list of the same words is a second language."""
    choices = Counter(
        ast.unparse(node)
        for path in _files(".py")
        if path.startswith(("migrator/mapping/", "migrator/model/", "migrator/source/reflect"))
        for node in ast.walk(ast.parse((HOUSE / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Subscript) and re.match(r"Literal\[.*,", ast.unparse(node))
    )
    assert [words for words, times in choices.items() if times > 1] == []


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
