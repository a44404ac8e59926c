"""Control and invisible characters escaped for terminals, HTML and GitHub; a mapping's faults as text.
Without rich."""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import groupby

from markupsafe import Markup, escape

# ── Control characters and escapes, shown as codes ──

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Controls, marks of direction, halves of characters, separators of lines: each could change how the rest is read."""
_LINES = "\n\t"
_LAST_OF_ONE = 0xFFFF
_LONGEST_PART = 16


def inert(text: object) -> Markup:
    """Escape the text as markup, with set-apart codes for invisible characters. Markup does not change."""
    if isinstance(text, Markup):
        return text
    pieces = groupby(str(text), key=_is_unseen)
    return Markup("").join(_code("".join(run)) if unseen else escape("".join(run)) for unseen, run in pieces)


def name_text(name: str) -> Markup:
    """A name that breaks only after `_`; one with a long part breaks anywhere, or it would widen its page."""
    parts = re.split("(?<=_)", name)
    if max(len(plain(word)) for word in re.split("[_ ]", name)) > _LONGEST_PART:
        return inert(name)
    return Markup('<span class="name">{}</span>').format(Markup("<wbr>").join(map(inert, parts)))


def plain(text: object, *, lines: bool = False) -> str:
    """The text for an attribute or a terminal, with the same codes. `lines`: keep its lines and tabs.

    In JSON a code escapes its character, so that the document does not change.
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
    return json.dumps(letter)[1:-1] if ord(letter) > _LAST_OF_ONE else f"\\u{ord(letter):04x}"
