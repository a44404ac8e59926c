"""Writes the tree and the arrows of docs/architecture.md from the packages and the contracts. Run: .ci/pages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
_TOP = ("main.py", "__main__.py", "spark.py", "api.py")


def tree() -> Iterator[str]:
    """A line for each package, and for each module at the top."""
    package = ROOT / "migrator"
    named = {name: _first_line(package / name) for name in _TOP}
    layers = [name for layer in contracts()[0]["layers"] for name in re.findall(r"\w+", layer)]
    for name in layers:
        for init in sorted((package / name).rglob("__init__.py")):
            named[f"{init.parent.relative_to(package)}/"] = _first_line(init)
    yield "| where | what |"
    yield "|---|---|"
    for name, line in named.items():
        escaped = line.replace("|", r"\|")
        yield f"| `{name}` | {escaped} |"


def arrows() -> Iterator[str]:
    layers, *others = contracts()
    yield "```"
    yield from (re.sub(r"[()]", "", layer).replace(" : ", "   ") for layer in layers["layers"])
    yield "```"
    yield ""
    yield "Each line imports only what stands below it. `make lint` proves it, and the rest of the contracts, with import-linter:"
    yield ""
    yield from (f"- {contract['name']}." for contract in others)


def contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return found


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def written(text: str) -> str:
    """The page with both parts as they are now."""
    for name, lines in (("tree", tree()), ("arrows", arrows())):
        part = "\n".join(lines)
        text = re.sub(
            rf"(?s)(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda found, part=part: f"{found[1]}{part}\n{found[2]}",
            text,
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
