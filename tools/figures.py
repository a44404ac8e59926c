"""The figures of the repository's size, as a table: run `python tools/figures.py`. No test pins them.

Code lines are those on which a statement of the syntax tree begins or goes on: no blanks, comments or docstrings.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_EDGES = ("source", "target", "dynamodb", "journal")


def files(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def code_lines(tree: ast.Module) -> int:
    held: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            continue
        if isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            held.update(_own_lines(node))
    return len(held)


def _own_lines(node: ast.AST) -> Iterator[int]:
    """The lines of a statement, without those of the statements in its body."""
    body = getattr(node, "body", None)
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if isinstance(body, list) and body:
        decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
        first, last = min([body[0].lineno, *decorators, first or body[0].lineno]), body[0].lineno - 1
        last = max(last, first)
    yield from range(first or 0, (last or 0) + 1)


def trees(pattern: str) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files(pattern)}


def classes(all_trees: dict[Path, ast.Module]) -> Iterator[ast.ClassDef]:
    for tree in all_trees.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def figures() -> Iterator[tuple[str, str]]:
    code = trees("migrator/*.py")
    found = list(classes(code))
    names = Counter(one.name for one in found)
    calls = Counter(
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for tree in code.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    )
    bases = Counter(ast.unparse(base).split("[")[0].split(".")[-1] for one in found for base in one.bases)
    data = [one for one in found if any("dataclass" in ast.unparse(mark) for mark in one.decorator_list)]
    ports = [one for one in found if any("Protocol" in ast.unparse(base) for base in one.bases)]
    top = {path.relative_to(ROOT / "migrator").parts[0] for path in code}
    yield "code lines", f"{sum(map(code_lines, code.values())):,}"
    yield "modules / top-level names", f"{len(code)} / {len(top)}"
    yield (
        "dataclasses / of them made at <= 1 place",
        f"{len(data)} / {sum(calls[one.name] <= 1 for one in data)}",
    )
    yield (
        "protocols / with one named implementation or none",
        (f"{len(ports)} / {sum(bases[one.name] <= 1 for one in ports)}"),
    )
    yield "journal tables", str(_tables(code))
    yield "class names with two meanings", str(sum(count > 1 for count in names.values()))
    yield (
        "modules that start a ticker or heartbeat thread",
        str(
            sum(
                bool(re.search(r"\b(?:Ticker|Heartbeat)\(", path.read_text(encoding="utf-8")))
                for path in code
            )
        ),
    )
    yield (
        "commands and features that import an edge",
        str(sum(_imports_an_edge(path, tree) for path, tree in code.items())),
    )
    tests = trees("tests/*.py")
    yield "test code lines / modules", f"{sum(map(code_lines, tests.values())):,} / {len(tests)}"
    yield "lines of tests, as in the files", f"{sum(len(path.read_text().splitlines()) for path in tests):,}"
    pages = [path for path in files("*.md") if path.name != "CHANGELOG.md"]
    yield "words of pages", f"{sum(len(path.read_text(encoding='utf-8').split()) for path in pages):,}"


def _tables(code: dict[Path, ast.Module]) -> int:
    """Tables that the journal declares."""
    return sum(
        isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Table")
        for path, tree in code.items()
        if path.is_relative_to(ROOT / "migrator" / "journal")
        for node in ast.walk(tree)
    )


def _imports_an_edge(path: Path, tree: ast.Module) -> bool:
    part = path.relative_to(ROOT / "migrator").parts[0]
    return part in ("cli", "commands", "features") and any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(tuple(f"migrator.{edge}" for edge in _EDGES))
        for node in ast.walk(tree)
    )


if __name__ == "__main__":
    for name, value in figures():
        print(f"{name:<52} {value:>16}")
