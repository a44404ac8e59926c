"""Text of rows on a page: nothing in it is obeyed, and what nobody would see is written out."""

from __future__ import annotations

import unicodedata
from itertools import groupby

from markupsafe import Markup, escape

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Controls, marks of direction, halves of characters, separators of lines: each could change how the rest is read."""


def inert(text: object) -> Markup:
    """The text as markup, escaped; what is not to be seen stands as its code, set apart. Markup stays as it is."""
    if isinstance(text, Markup):
        return text
    pieces = groupby(str(text), key=lambda one: unicodedata.category(one) in _UNSEEN)
    return Markup("").join(_code("".join(run)) if unseen else escape("".join(run)) for unseen, run in pieces)


def plain(text: object) -> str:
    """The text for an attribute or a terminal, with the same codes."""
    return "".join(_escaped(one) if unicodedata.category(one) in _UNSEEN else one for one in str(text))


def _code(run: str) -> Markup:
    return Markup('<span class="code">{}</span>').format("".join(map(_escaped, run)))


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
