"""Phases of an access pattern: which side answers, which one is compared, which moves are allowed. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, TypeAlias, cast, get_args

Phase = Literal["off", "shadow", "ramp", "live", "complete"]
Side = Literal["table", "sql"]
SIDES: tuple[Side, Side] = ("table", "sql")
"""Who answers: DynamoDB's table, or SQL."""
PHASES: tuple[Phase, ...] = get_args(Phase)


@dataclass(frozen=True, slots=True)
class Route:
    """`answers`: the side of a call that is not in the ramp's share; `in_share`: of one that is. `compares`: whether the
    other side runs after the answer is out."""

    answers: Side
    in_share: Side
    compares: bool


ROUTES: Mapping[Phase, Route] = {
    "off": Route("sql", "sql", compares=False),
    "shadow": Route("sql", "sql", compares=True),
    "ramp": Route("sql", "table", compares=True),
    # Who watches a pattern after its move needs differences, too; DESIGN asks for them in shadow and ramp alone.
    "live": Route("table", "table", compares=True),
    "complete": Route("table", "table", compares=False),
}

FORWARD: Mapping[Phase, Phase] = {"off": "shadow", "shadow": "ramp", "ramp": "live", "live": "complete"}
"""Each of these moves needs evidence, but the first."""
BACK: Mapping[Phase, tuple[Phase, ...]] = {
    "shadow": ("off",),
    "ramp": ("shadow", "off"),
    "live": ("ramp", "shadow", "off"),
}
"""From `complete` nobody goes back: SQL may no longer be written."""


@dataclass(frozen=True, slots=True)
class State:
    """A pattern's phase; `percent` of its calls that the table answers: 1 to 100 in a ramp, else 0."""

    phase: Phase = "off"
    percent: int = 0

    def __str__(self) -> str:
        return f"{self.phase} {self.percent} %" if self.phase == "ramp" else self.phase


OFF = State()
_RAMP = re.compile(r"ramp ([1-9]\d{0,2}) %")


def state_named(text: str) -> State | None:
    """The state that a word of an audit means, such as 'ramp 5 %'; None where it means none."""
    if text in PHASES and text != "ramp":
        return State(cast("Phase", text))
    ramp = _RAMP.fullmatch(text)
    percent = int(ramp[1]) if ramp else 0
    return State("ramp", percent) if 1 <= percent <= 100 else None


Params: TypeAlias = Mapping[str, str]
"""Parameters of a call as texts; the same call has the same ones."""


def is_back(before: State, after: State) -> bool:
    """Whether a move goes back: more calls are SQL's, and nothing has to be proven."""
    smaller = before.phase == after.phase == "ramp" and after.percent < before.percent
    return smaller or after.phase in BACK.get(before.phase, ())


def answering(state: State, share: float) -> Side:
    """The side that answers a call whose parameters stand at `share` (see `share_of`)."""
    route = ROUTES[state.phase]
    return route.in_share if share < state.percent / 100 else route.answers


def share_of(pattern: str, params: Params) -> float:
    """Where a call stands between 0 and 1: always the same for the same parameters, so that a ramp is sticky."""
    said = repr((pattern, sorted(params.items()))).encode()
    return int.from_bytes(blake2b(said, digest_size=8).digest()) / 2**64


def move_fault(before: State, after: State) -> str:
    """Why this move is not allowed, '' where it is. What evidence it needs is another question."""
    one, other = before.phase, after.phase
    if (other == "ramp") != (1 <= after.percent <= 100):
        return "a ramp has 1 to 100 percent, and no other phase has any"
    if before == after:
        return f"it is in {before} already"
    if one == "complete":
        return "complete is the end: SQL may no longer be written, so nothing goes back from it"
    allowed = {FORWARD[one], *BACK.get(one, ()), *(["ramp"] if one == "ramp" else [])}
    if other in allowed:
        return ""
    return f"from {one} it goes to {' or '.join(sorted(allowed, key=PHASES.index))}, not to {other}"
