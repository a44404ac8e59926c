"""Lines of help, messages and pages that use a construction of the old dialect: run `python tools/english.py`.

    python tools/english.py             counts by construction, in pages, in help and messages, and in docstrings
    python tools/english.py --changed   lines that have one: of pages, help and messages, and added to docstrings since
                                        MIGRATOR_LINT_BASE (main)
    python tools/english.py --long      sentences of pages with more than 30 words

Code in fences or backticks does not count, nor does a text without a space: a key of JSON, a name of a column.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRUCTIONS = {
    "says so / says that": r"\bsays (?:so|that|which|what|it)\b",
    "tells / is told": r"\b(?:tells|is told)\b",
    "is asked / is held": r"\bis (?:asked|told|said|held|looked)\b",
    "beside": r"\bbeside\b",
    "anew": r"\banew\b",
    "way back": r"\bway back\b",
    "mend": r"\bmend(?:s|ed|ing)?\b(?! = )",
    "is no / has no": r"\b(?:is|are) no (?!longer\b)",
    "any more / no more": r"\b(?:any|no) more\b(?! than)",
    "whoever": r"\b(?:whoever|whatever|whichever)\b",
    "in vain": r"\bin vain\b",
    "goodbye, sign of life": r"\b(?:goodbye|signs? of life|fell silent)\b",
    "a mark is worked": r"\bworks a mark\b|\bputs a mark away\b",
    "nobody": r"\bnobody\b",
    "alike, by itself, as ever": r"\b(?:alike|by itself|for itself|as ever)\b",
    ", too": r", too\b(?! (?:few|many|much|long|late|large|short))",
    "where there is (for if)": r"\bwhere (?:there|nothing|something)\b",
    "say --option": r"\bsay --",
    "the same command goes on": r"\bcommand goes on\b",
    "give the command again": r"\bgive (?:the|this) (?:same )?command\b|\bgiven again\b",
    "there is no": r"\bthere is no such\b|\bthis is no\b",
    "(s)": r"\w\(s\)",
}
NAMES = {"way back"}
"""Texts that are names: a line of evidence, which JSON and the audit have."""
LONGEST = 30
_PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in CONSTRUCTIONS.items()}
_NOT_OURS = ("docs/decisions/", "docs/licences.md", "tests/")


def texts(path: str) -> Iterator[tuple[int, str]]:
    content = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        fenced = False
        for number, line in enumerate(content.splitlines(), start=1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and (not path.endswith(".md") or not line.startswith("    ")):
                yield number, re.sub(r"`[^`]*`", "", line)
        return
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in NAMES:
            for number, line in enumerate(node.value.splitlines(), start=node.lineno):
                if " " in line.strip():
                    yield number, re.sub(r"`[^`]*`", "", line)


def docstring_lines(path: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        helps = any(
            re.search(r"\b(?:command|group)\(", ast.unparse(one))
            for one in getattr(node, "decorator_list", ())
        )
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) and not helps else ():
            if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                lines.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    return lines


def long_sentences() -> Iterator[str]:
    for path in files():
        if path.endswith(".md"):
            prose = re.sub(
                r"(?ms)^```.*?^```\s*$|^(?:[#|]|    ).*?$", "\n", (ROOT / path).read_text(encoding="utf-8")
            )
            for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", re.sub(r"\]\([^)]*\)", "]", prose)):
                for sentence in re.split(r"(?<=[.!?:;])\s+", re.sub(r"`[^`]*`", "code", part)):
                    if (words := len(sentence.split())) > LONGEST:
                        yield f"{path}: {words} words: {' '.join(sentence.split())[:100]}"


def found(path: str) -> Iterator[tuple[int, str]]:
    for number, line in texts(path):
        yield from ((number, name) for name, pattern in _PATTERNS.items() if pattern.search(line))


def files() -> list[str]:
    kinds = (
        "*.md",
        "*.yaml",
        "migrator/*.py",
        "migrator/*.html",
        "migrator/*.j2",
        "migrator/*.txt",
        "migrator/*.toml",
    )
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", *kinds)
    return [
        path for path in listed.splitlines() if not path.startswith(_NOT_OURS) and (ROOT / path).is_file()
    ]


def added() -> dict[str, set[int]]:
    """Numbers of the lines added to each file since the base.

    Lines that were only moved, or in which only a name of a file or a piece of code changed, are not new.
    """
    base = os.environ.get("MIGRATOR_LINT_BASE") or _base()
    lines: dict[str, set[int]] = {}
    changes = _git("diff", "--unified=0", "--find-renames", base).splitlines() if base else []
    gone = {_words(line[1:]) for line in changes if line.startswith("-")}
    path, number = "", 0
    for line in changes:
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif change := re.match(r"@@ -\S+ \+(\d+)", line):
            number = int(change[1])
        elif line.startswith("+"):
            if _words(line[1:]) not in gone:
                lines.setdefault(path, set()).add(number)
            number += 1
    return lines


def _words(line: str) -> str:
    return re.sub(r"`[^`]*`|\S*[/_]\S*|\W+", " ", line).strip()


def _base() -> str:
    """Where this branch left main on the server; one commit back if it is that commit, or without a server."""
    merged = _git("merge-base", "HEAD", "origin/main").strip()
    return (
        merged
        if merged and merged != _git("rev-parse", "HEAD").strip()
        else _git("rev-parse", "-q", "--verify", "HEAD~1").strip()
    )


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def main() -> int:
    if sys.argv[1:] == ["--long"]:
        print(*long_sentences(), sep="\n")
        return 0
    counts: dict[str, Counter[str]] = {
        "pages": Counter(),
        "help and messages": Counter(),
        "docstrings": Counter(),
    }
    new = added()
    wrong: list[str] = []
    for path in files():
        inner = docstring_lines(path) if path.endswith(".py") else set()
        for number, name in found(path):
            area = (
                "docstrings" if number in inner else "help and messages" if path.endswith(".py") else "pages"
            )
            counts[area][name] += 1
            if area != "docstrings" or number in new.get(path, ()):
                wrong.append(f"{path}:{number}: {name}")
    if sys.argv[1:] == ["--changed"]:
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return 1 if wrong else 0
    for area, counted in counts.items():
        print(area, *(f"  {count:>5}  {name}" for name, count in counted.most_common()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
