"""Names of tables and columns as a mapping writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

NameRule = Literal["exact", "snake_case"]

_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTERS = re.compile(r"\W+")


def snake_case(name: str) -> str:
    """`name` in lower case, words joined by '_': TrackId is track_id, HTTPServer http_server."""
    words = _NO_LETTERS.sub(" ", name).strip().replace(" ", "_")
    return _WORD_END.sub("_", words).lower() or name


def written_names(real: Iterable[str], rule: NameRule) -> dict[str, str]:
    """The written name of each real name, in the order given."""
    return {name: snake_case(name) if rule == "snake_case" else name for name in real}


def clashes(written: dict[str, str]) -> list[str]:
    """One sentence for every written name that more than one real name has."""
    owners: dict[str, list[str]] = {}
    for real, name in written.items():
        owners.setdefault(name, []).append(real)
    return [
        f"{' and '.join(repr(real) for real in reals)} are all written {name}"
        for name, reals in owners.items()
        if len(reals) > 1
    ]
