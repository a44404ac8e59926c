"""Control and invisible characters escaped for terminals, HTML and GitHub; a mapping's faults as text; no rich needed."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from markupsafe import Markup, escape

from migrator.model.errors import Fault

# ── Control characters and escapes, shown as codes ──

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Controls, marks of direction, halves of characters, separators of lines: each could change how the rest is read."""
_LINES = "\n\t"
_LAST_OF_ONE = 0xFFFF
_LONGEST_PART = 16


def inert(text: object) -> Markup:
    """The text as markup, escaped; what is not to be seen stands as its code, set apart. Markup stays as it is."""
    if isinstance(text, Markup):
        return text
    pieces = groupby(str(text), key=_is_unseen)
    return Markup("").join(_code("".join(run)) if unseen else escape("".join(run)) for unseen, run in pieces)


def name_text(name: str) -> Markup:
    """A name that breaks after `_` and nowhere else; one with a long part breaks anywhere, or it would widen its page."""
    parts = re.split("(?<=_)", name)
    if max(len(plain(word)) for word in re.split("[_ ]", name)) > _LONGEST_PART:
        return inert(name)
    return Markup('<span class="name">{}</span>').format(Markup("<wbr>").join(map(inert, parts)))


def plain(text: object, *, lines: bool = False) -> str:
    """The text for an attribute or a terminal, with the same codes. `lines`: whether its lines and tabs stay.

    In JSON a code stands for what it shows, so that a document stays the same document.
    """
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return whole
    kept = _LINES if lines else ""
    return "".join(_escaped(char) if _is_unseen(char) and char not in kept else char for char in whole)


def _is_unseen(letter: str) -> bool:
    return unicodedata.category(letter) in _UNSEEN


def _code(run: str) -> Markup:
    return Markup('<span class="code">{}</span>').format("".join(map(_escaped, run)))


def _escaped(letter: str) -> str:
    """As JSON writes it: two codes where one has too few digits."""
    return json.dumps(letter)[1:-1] if ord(letter) > _LAST_OF_ONE else f"\\u{ord(letter):04x}"


# ── Faults of a mapping file as text, JSON and workflow commands of GitHub ──

_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = {**_ESCAPES, ":": "%3A", ",": "%2C"}


def as_text(faults: Sequence[Fault]) -> Iterator[str]:
    """One line a fault."""
    return (str(fault) for fault in faults)


def as_json(faults: Sequence[Fault]) -> Iterator[str]:
    """One JSON array: file, line, where (a path in the file), what, warning."""
    yield json.dumps([asdict(fault) for fault in faults], ensure_ascii=False, indent=2)


def as_github(faults: Sequence[Fault]) -> Iterator[str]:
    """Workflow commands that GitHub shows beside the lines of a pull request.

    Source: GitHub Actions, "Workflow commands", with the escapes of its toolkit.
    """
    for fault in faults:
        level = "warning" if fault.warning else "error"
        file, where = (
            _percent_escaped(fault.file, _PROPERTY_ESCAPES),
            _percent_escaped(fault.where, _PROPERTY_ESCAPES),
        )
        position = f"file={file},line={max(fault.line, 1)},title={where or 'mapping'}"
        yield f"::{level} {position}::{_percent_escaped(fault.what, _ESCAPES)}"


def _percent_escaped(text: str, escapes: dict[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)


FAULT_FORMS: dict[str, Callable[[Sequence[Fault]], Iterator[str]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
}
