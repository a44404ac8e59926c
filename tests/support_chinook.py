"""The golden runs of Chinook's access patterns, as the data's README gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PATTERN = re.compile(r"^\d+\. \*\*(\w+)\*\*.*?SQL: `(.*?)`.*?Golden: (.*?)$", re.MULTILINE | re.DOTALL)
_GOLDEN = re.compile(r"([^>;]+?) -> (\d+) rows(?: / (\d+) items)? \((\w{12})\)")


def snake_case(name: str) -> str:
    """A name of the other scripts as PostgreSQL's has it: TrackId is track_id."""
    return _WORD_END.sub("_", name).lower()


@dataclass(frozen=True)
class Golden:
    """One run of a pattern as the README has it: its rows of SQL, its items, and a digest of the rows."""

    pattern: str
    sql: str
    params: dict[str, str]
    rows: int
    items: int
    digest: str

    @property
    def values(self) -> dict[str, int | str]:
        """The parameters, numbers as numbers."""
        return {name: int(text) if text.isdecimal() else text for name, text in self.params.items()}


def golden_runs(readme: str) -> Iterator[Golden]:
    """All runs of all patterns, in the README's order; patterns under their names in snake case."""
    for name, sql, golden in _PATTERN.findall(readme):
        for text, rows, items, digest in _GOLDEN.findall(golden):
            params = dict(pair.strip().split("=", 1) for pair in text.split(","))
            yield Golden(snake_case(name), sql, params, int(rows), int(items or rows), digest)
