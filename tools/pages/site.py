"""Makes a site of these pages with Sphinx, in build/docs/html: run `make docs`.

The pages keep their repository paths in build/docs/pages, so that the same links work; docs/README.md has
their order. A broken link is an error, and so is a page named nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.pages.designs import pictures
from tools.pages.reference import pages

ROOT = Path(__file__).resolve().parents[2]
FRONT = "README.md"
CONTENTS = "docs/README.md"
GENERATED = "docs/reference"
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_LISTED = re.compile(r"^- \[(.+)\]\((.+)\)$", re.MULTILINE)
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>$', re.MULTILINE)
_SECTION = re.compile(
    r"^## (Tutorial|How to|Reference|Explanation|Records)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)


def staged(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages().items():
        _write(folder / GENERATED / f"{name}.md", _ANCHOR.sub(r"(\1)=", text))
    left, done = [FRONT, CONTENTS, *pages_of("docs")], set()
    while left:
        name = left.pop()
        if name in done or not (ROOT / name).is_file():
            continue
        done.add(name)
        if not name.endswith(".md"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        left += _linked(name, text)
        _write(folder / _place(name), _for_the_site(name, text))


def pages_of(folder: str) -> Iterator[str]:
    yield from (file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob("*.md"))


def _linked(name: str, text: str) -> list[str]:
    """Files of the repository that the page links to. Links to missing files are left for Sphinx to report."""
    linked = (_file(name, link[1]) for link in _LINK.finditer(text))
    return [file for file in linked if not file.startswith("..")]


def _place(name: str) -> str:
    return "index.md" if name == FRONT else name


def _for_the_site(name: str, text: str) -> str:
    """The page in Sphinx's syntax; the front page lists all others, and a folder's README.md those of its folder."""
    text = _ANCHOR.sub(r"(\1)=", text)
    if name not in (FRONT, CONTENTS) and name.endswith("/README.md"):
        folder = Path(name).parent
        beside = [link[1].removesuffix(".md") for link in _LINK.finditer(text) if "/" not in link[1]]
        text += "\n" + _tree("", [one for one in beside if (ROOT / folder / f"{one}.md").is_file()])
    if name != FRONT:
        return _LINK.sub(lambda link: _to_front(name, link), text)
    trees, generated = [_tree("", [CONTENTS])], [f"{GENERATED}/{one}" for one in pages()]
    for title, section in sections().items():
        entries = [f"{said.replace('`', '')} <{page.removesuffix('.md')}>" for said, page in section.items()]
        trees.append(_tree(title, entries + (generated if title == "Reference" else [])))
    return text + "\n" + "\n".join(trees)


def sections() -> dict[str, dict[str, str]]:
    """Pages of the side bar, by their titles in it, by section."""
    found = _SECTION.findall((ROOT / CONTENTS).read_text(encoding="utf-8"))
    return {
        title: {said: _file(CONTENTS, page) for said, page in _LISTED.findall(section)}
        for title, section in found
    }


def _file(name: str, link: str) -> str:
    return os.path.normpath(Path(name).parent / link)


def _to_front(name: str, link: re.Match[str]) -> str:
    """The link, or one to the front page instead of the repository's README.md."""
    return link[0].replace(FRONT, "index.md") if _file(name, link[1]) == FRONT else link[0]


def _tree(title: str, names: list[str]) -> str:
    caption = f":caption: {title}\n" if title else ""
    entries = "\n".join(name.removesuffix(".md") for name in names)
    return f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n{caption}\n{entries}\n```\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """Output of Sphinx; its exit code is not 0 if a page has a fault."""
    staged(folder / "pages")
    for name, text in pictures().items():
        _write(folder / "extra" / "pictures" / f"{name}.html", text)
    words = [
        "-c",
        str(ROOT / "docs"),
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "-D",
        f"html_extra_path={folder / 'extra'}",
    ]
    places = ["-d", str(folder / "doctrees"), str(folder / "pages"), str(folder / "html")]
    command = [sys.executable, "-m", "sphinx", *words, *places]
    return subprocess.run(command, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    ended = built(ROOT / "build" / "docs")
    told = ended.stderr.replace(f"{ROOT / 'build' / 'docs' / 'pages'}/", "").replace("index.md:", f"{FRONT}:")
    print(told, end="", file=sys.stderr)
    sys.exit(ended.returncode)
