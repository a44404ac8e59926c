"""What a move of a pattern was judged by: made by stages, shown by report, kept in the audit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

from migrator.phase import State

Verdict = Literal["ok", "no", "unknown"]
"""Of what is unknown nobody can say that it is right: it counts as a no."""


@dataclass(frozen=True, slots=True)
class Line:
    """One piece of evidence: what was asked, what was found, how many seconds old that is (None: of now).

    `name`: one word for programs. `mend`: what to do about it, '' where nothing is to be done.
    """

    name: str
    asked: str
    found: str
    verdict: Verdict
    age_s: float | None = None
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What speaks for a move and what against it. `version`: of the phase that was judged."""

    pattern: str
    before: State
    after: State
    version: int
    lines: Sequence[Line]

    @property
    def failing(self) -> list[Line]:
        return [line for line in self.lines if line.verdict != "ok"]

    @property
    def ok(self) -> bool:
        return not self.failing

    def as_json(self) -> str:
        """For the audit."""
        return json.dumps([asdict(line) for line in self.lines], ensure_ascii=False)


def lines_of(text: str) -> list[Line] | None:
    """The lines that an audit keeps; None where the text is none of ours. What a newer migrator keeps beside is left out."""
    known = {one.name for one in fields(Line)}
    try:
        return [
            Line(**{name: value for name, value in line.items() if name in known})
            for line in json.loads(text or "[]")
        ]
    except (ValueError, TypeError, AttributeError):
        return None
