"""Page of the packages: their contents, and which may import which."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TOP = ("main.py", "__main__.py", "spark.py", "api.py")


def page() -> str:
    layers, *others = _contracts()
    lines = (re.sub(r"[()]", "", layer).replace(" : ", "   ") for layer in layers["layers"])
    return "\n".join(
        [
            "# Packages\n\nFrom the packages of `migrator/` and the contracts in `pyproject.toml`, which `make lint` proves.\n",
            "## Layers\n\nEach line imports only what is below it.\n",
            "```\n" + "\n".join(lines) + "\n```\n",
            *(f"- {contract['name']}." for contract in others),
            "\n## Contents\n\n| package | contents |\n|---|---|",
            *_contents(layers["layers"]),
            "",
        ]
    )


def _contents(layers: list[str]) -> Iterator[str]:
    package = ROOT / "migrator"
    files = [package / name for name in _TOP]
    for name in re.findall(r"\w+", " ".join(layers)):
        files += sorted((package / name).rglob("__init__.py"))
    for file in files:
        docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        name = file.relative_to(package).as_posix().removesuffix("__init__.py")
        yield f"| `{name}` | {docstring.partition(chr(10))[0].replace('|', chr(92) + '|')} |"


def _contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return found
