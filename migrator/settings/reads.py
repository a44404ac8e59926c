"""A job's `reads:`: how services read, and how much of it is compared with the other side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from migrator.settings.source import Duration, Form, Integer, Number


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """`sample`: the share of calls that are compared, 0 to 1. `at_once`: shadows under way in one process, `per_s`: begun
    in a second; what comes beyond is dropped. `deadline_s`: after that a shadow counts as an error. `max_rows`: of an answer
    with more nothing is compared. `breaker_after`: so many errors in a row of a pattern stop its shadows for
    `breaker_pause_s`. `settle_s`: how long both sides may take to come to the same answer.
    """

    sample: float = 1.0
    at_once: int = 4
    deadline_s: float = 2.0
    per_s: float = 20.0
    max_rows: int = 1000
    breaker_after: int = 10
    breaker_pause_s: float = 30.0
    settle_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """`phase_cache_s`: how old a phase may be that a service acts by. `connections`: to SQL, for the callers of one process.

    `patience_s`: how long a call waits for a side that fails in a way that can pass. `cursor_key`: what cursors are signed
    with, the same in all processes; `cursor_life_s`: after that one is refused.
    """

    phase_cache_s: float = 5.0
    connections: int = 10
    patience_s: float = 5.0
    cursor_key: str | None = field(default=None, repr=False)
    cursor_life_s: float = 86_400.0
    shadow: ShadowSettings = ShadowSettings()


class ShadowForm(Form):
    sample: Annotated[Number, Field(ge=0, le=1)] = 1.0
    at_once: Annotated[Integer, Field(ge=1, le=64)] = 4
    deadline_s: Annotated[Duration, Field(gt=0, le=300)] = 2.0
    per_s: Annotated[Number, Field(gt=0, le=10_000)] = 20.0
    max_rows: Annotated[Integer, Field(ge=1, le=100_000)] = 1000
    breaker_after: Annotated[Integer, Field(ge=1, le=1_000_000)] = 10
    breaker_pause_s: Annotated[Duration, Field(gt=0, le=86_400)] = 30.0
    settle_s: Annotated[Duration, Field(gt=0, le=3600)] = 10.0


class ReadsForm(Form):
    phase_cache_s: Annotated[Duration, Field(ge=0.05, le=3600)] = 5.0
    connections: Annotated[Integer, Field(ge=1, le=1000)] = 10
    patience_s: Annotated[Duration, Field(gt=0, le=300)] = 5.0
    cursor_key: Annotated[str, Field(min_length=16)] | None = None
    cursor_life_s: Annotated[Duration, Field(gt=0, le=31_536_000)] = 86_400.0
    shadow: ShadowForm = ShadowForm()

    def settings(self) -> ReadSettings:
        given = self.model_dump(exclude={"shadow"})
        return ReadSettings(**given, shadow=ShadowSettings(**self.shadow.model_dump()))
