"""Figures of the repository's size, as a table: run `python tools/figures.py [--run]`. No test pins them.

Code lines are those of statements: no blanks, comments or docstrings. With --run also the functions that a
backfill, a mark and a move call, on SQLite and the embedded DynamoDB.
"""

from __future__ import annotations

import ast
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType

import click

ROOT = Path(__file__).resolve().parent.parent
_EDGES = ("source", "dynamodb", "journal")
_OURS = str(ROOT / "migrator")
_MAPPING = """\
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
entities: {customer: {items: {Customer: {key: ["C#{id}", META], keep: [name]}}}}
access_patterns:
  customer_by_id:
    params: {id: integer}
    get: {key: ["C#{id}", META]}
    returns: [name]
    sql: SELECT name FROM customer WHERE id = :id
"""
_JOB = "job: 1\nmapping: mapping.yaml\nsource: {url: 'sqlite:///shop.db'}\ntarget: {endpoint: embedded, region: eu-central-1}\n"


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
    """Lines of a statement, without those of the statements in its body."""
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
    structs = {"Struct"}
    while (
        more := {
            one.name for one in found if structs & {ast.unparse(base).split("[")[0] for base in one.bases}
        }
        - structs
    ):
        structs |= more
    data = [
        one
        for one in found
        if one.name in structs or any("dataclass" in ast.unparse(mark) for mark in one.decorator_list)
    ]
    ports = [one for one in found if any("Protocol" in ast.unparse(base) for base in one.bases)]
    top = {path.relative_to(ROOT / "migrator").parts[0] for path in code}
    yield "code lines", f"{sum(map(code_lines, code.values())):,}"
    yield "modules / top-level names", f"{len(code)} / {len(top)}"
    yield (
        "structs and dataclasses / of them made at <= 1 place",
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
    commands = list(_leaves())
    options = {param.opts[-1] for one in commands for param in one.params if isinstance(param, click.Option)}
    yield "leaf commands / names of options", f"{len(commands)} / {len(options)}"
    tests = trees("tests/*.py")
    yield "test code lines / modules", f"{sum(map(code_lines, tests.values())):,} / {len(tests)}"
    yield "lines of tests, as in the files", f"{sum(len(path.read_text().splitlines()) for path in tests):,}"
    pages = [path for path in files("*.md") if path.name != "CHANGELOG.md"]
    yield "words of pages", f"{sum(len(path.read_text(encoding='utf-8').split()) for path in pages):,}"


def _leaves() -> Iterator[click.Command]:
    sys.path.insert(0, str(ROOT))
    from migrator.main import cli

    groups: list[click.Group] = [cli]
    for group in groups:
        groups += [one for one in group.commands.values() if isinstance(one, click.Group)]
        yield from (one for one in group.commands.values() if not isinstance(one, click.Group))


def _tables(code: dict[Path, ast.Module]) -> int:
    return sum(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "Table"
        for path, tree in code.items()
        if path.is_relative_to(ROOT / "migrator" / "journal")
        for node in ast.walk(tree)
    )


def _imports_an_edge(path: Path, tree: ast.Module) -> bool:
    """A feature may use the journal, which holds its own tables."""
    part = path.relative_to(ROOT / "migrator").parts[0]
    edges = [edge for edge in _EDGES if part != "features" or edge != "journal"]
    return part in ("cli", "commands", "features") and any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(tuple(f"migrator.{edge}" for edge in edges))
        for node in ast.walk(tree)
    )


# ── what runs ──


@dataclass
class Calls:
    """Our code that was run, within calls of the function `root` if set, and the number of calls of
    `counted`."""

    root: CodeType | None
    counted: CodeType | None
    found: set[CodeType] = field(default_factory=set)
    count: int = 0
    _inside: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call":
            self._inside.depth = getattr(self._inside, "depth", 0) + (code is self.root)
            if (self._inside.depth or self.root is None) and code.co_filename.startswith(_OURS):
                self.found.add(code)
                self.count += code is self.counted
        elif event == "return" and code is self.root:
            self._inside.depth -= 1

    def __str__(self) -> str:
        return f"{len(self.found):,}, {len({code.co_filename for code in self.found})}"


@contextmanager
def calls(root: CodeType | None = None, counted: CodeType | None = None) -> Iterator[Calls]:
    found = Calls(root, counted)
    threading.setprofile(found)
    sys.setprofile(found)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def run_figures(folder: Path) -> Iterator[tuple[str, str]]:
    os.environ |= {"MIGRATOR_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    os.chdir(folder)
    (folder / "mapping.yaml").write_text(_MAPPING)
    (folder / "shop.yaml").write_text(_JOB)
    sql("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")
    sql("INSERT INTO customer VALUES (1, 'Ann'), (2, 'Bob')")
    subprocess.run([sys.executable, "-m", "migrator", "table", "create", "shop.yaml"], check=True)
    try:
        with calls() as whole:
            command("backfill", "shop.yaml")
        from migrator.journal.database import Database
        from migrator.stages.live.relay import Relay
        from migrator.stages.session.evidence import EvidenceGatherer

        command("capture", "install", "shop.yaml")
        sql("UPDATE customer SET name = 'Cid' WHERE id = 1")
        with calls(Relay.once.__code__) as mark:
            command("relay", "shop.yaml", "--once")
        begin = Database._begun.__wrapped__.__code__  # type: ignore[attr-defined]
        with calls(EvidenceGatherer.lines.__code__, begin) as evidence:
            command("cutover", "advance", "shop.yaml", "customer_by_id", "--dry-run")
    finally:
        from migrator.dynamodb import embedded

        embedded.stop(embedded.folder("embedded"))
    yield "a command of two rows: functions run, files", str(whole)
    yield "one mark: functions, files", str(mark)
    yield "evidence of a move: functions, files", str(evidence)
    # A generator is entered twice: to begin the transaction and to end it.
    yield "evidence of a move: journal transactions", str(evidence.count // 2)


def sql(statements: str) -> None:
    with closing(sqlite3.connect("shop.db")) as shop:
        shop.executescript(statements)


def command(*words: str) -> None:
    from migrator.main import run

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as printed:
        code = run(list(words))
    # A move that the evidence does not allow yet ends with 1.
    if code > ("--dry-run" in words):
        sys.exit(f"{' '.join(words)}: exit code {code}: {printed.getvalue()}")


if __name__ == "__main__":
    rows = list(figures())
    if "--run" in sys.argv:
        sys.path.insert(0, str(ROOT))
        with tempfile.TemporaryDirectory() as made:
            rows += run_figures(Path(made))
    for name, value in rows:
        print(f"{name:<52} {value:>16}")
