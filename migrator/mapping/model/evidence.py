"""Phases of an access pattern, and the evidence by which it moves: windows, samples, differences, judged moves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

from msgspec import Struct

from migrator.mapping.model.edges import KeptPhase
from migrator.runtime.errors import DIFFERENT, SettingsError
from migrator.runtime.values import asdict

# ── Phases: which side answers, which one is compared, which moves are allowed ──

Phase = Literal["off", "shadow", "ramp", "live", "complete"]
Side = Literal["table", "sql"]
SIDES: tuple[Side, Side] = ("table", "sql")
"""The side that answers: DynamoDB's table, or SQL."""
PHASES: tuple[Phase, ...] = get_args(Phase)
Member: TypeAlias = tuple[str, str]
"""A parameter's name, and its value as text: one of a ramp's audience."""


class Route(Struct, frozen=True):
    """`answers`: the side of a call outside the ramp's share.
    `in_share`: of one inside.
    `compares`: whether the other side runs after the answer is out.
    """

    answers: Side
    in_share: Side
    compares: bool


ROUTES: Mapping[Phase, Route] = {
    "off": Route("sql", "sql", compares=False),
    "shadow": Route("sql", "sql", compares=True),
    "ramp": Route("sql", "table", compares=True),
    # Watching a pattern after its move also needs differences; DESIGN requires them in shadow and ramp alone.
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
"""From `complete` a move alone is not enough: rows must first become the truth again (stages/cutover/rollback.py)."""


class State(Struct, frozen=True):
    """A pattern's phase; `percent` of its calls that the table answers: 1 to 100 in a ramp, else 0.

    `audience`: of a ramp, calls that the table always answers: parameters with a value as text, in order; one
    is enough. A ramp with an audience may have 0 percent.
    """

    phase: Phase = "off"
    percent: int = 0
    audience: tuple[Member, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"{param}={text}" for param, text in self.audience)
        return f"{self.word} for {named}" if named else self.word

    @property
    def word(self) -> str:
        return f"{self.phase} {self.percent} %" if self.phase == "ramp" else self.phase

    @property
    def masked(self) -> str:
        return f"{self.word} for an audience of {len(self.audience)}" if self.audience else self.word


OFF = State()
_RAMP = re.compile(r"ramp (0|[1-9]\d{0,2}) %")


def state_named(text: str) -> State | None:
    if text in PHASES and text != "ramp":
        return State(cast("Phase", text))
    ramp = _RAMP.fullmatch(text)
    percent = int(ramp[1]) if ramp else -1
    return State("ramp", percent) if 0 <= percent <= 100 else None


Params: TypeAlias = Mapping[str, str]
"""Parameters of a call as texts; the same call has the same ones."""


def is_back(before: State, after: State) -> bool:
    """Whether more calls move to SQL: nothing has to be proven."""
    smaller = (
        before.phase == after.phase == "ramp"
        and after.percent <= before.percent
        and set(after.audience) <= set(before.audience)
        and after != before
    )
    return smaller or after.phase in BACK.get(before.phase, ())


def answering(state: State, share: float, params: Params) -> Side:
    route = ROUTES[state.phase]
    is_named = any(params.get(name) == text for name, text in state.audience)
    return route.in_share if is_named or share < state.percent / 100 else route.answers


def share_of(pattern: str, params: Params) -> float:
    """A call's place between 0 and 1: the same for the same parameters, so that a ramp is sticky."""
    call = repr((pattern, sorted(params.items()))).encode()
    return int.from_bytes(blake2b(call, digest_size=8).digest()) / 2**64


SHARE_FAULT = "a ramp has 1 to 100 percent, or an audience (--for); other phases have neither"
AUDIENCE_AT_MOST = 100


def share_fits(state: State) -> bool:
    if state.phase != "ramp":
        return state.percent == 0 and not state.audience
    return (0 if state.audience else 1) <= state.percent <= 100


def move_fault(before: State, after: State) -> str:
    """Why this move is not allowed, '' if it is. Its evidence is another question."""
    old, new = before.phase, after.phase
    if not share_fits(after):
        return SHARE_FAULT
    if before == after:
        return f"it is in {before} already"
    if old == "complete":
        return "complete is the last phase; only `migrator cutover rollback JOB PATTERN` leaves it"
    allowed = {FORWARD[old], *BACK.get(old, ()), *(["ramp"] if old == "ramp" else [])}
    if new in allowed:
        return ""
    return f"from {old} it can move to {' or '.join(sorted(allowed, key=PHASES.index))}, not to {new}"


# ──
# What was compared, and how it went: counted by minute, kept in the journal for reports and for cutover.

Origin = Literal["service", "replay"]
"""Whether a service's own reads were compared, or parameters drawn by `shadow replay`."""
SAMPLES_KEPT = 20
"""The newest samples of each kind of difference of a pattern."""
WINDOWS_KEPT_S = 90 * 86_400.0
"""Older windows are dropped now and then, when new ones are kept."""


class DiffKey(Struct, frozen=True, order=True):
    """The key of counted differences. `kind`: as in Diff, or error. `attribute` of an error: the side that failed."""

    kind: str
    part: str = ""
    attribute: str = ""


class Window(Struct, frozen=True):
    """One minute of one pattern in one process, with growing counts.

    `begun_at`: seconds since 1970 by the journal's clock: a whole minute, the second after a move of the
    pattern, or the begin of a replay.
    `writer`: id of the instance or the replay.
    `answered`, `errors`: by side, of callers and shadows.
    `compared`: `same`, `transient` and `different` together.
    `dropped`: by reason.
    `kinds`: compared calls by optional parameters that were set, joined by commas.
    `found`: differences, of which one call may have many.
    `latency`: by side, as stages/patterns/latencies.py writes it, in microseconds.
    `answer`: the digest of the pattern's answer (mapping/difference/difference.py).
    """

    pattern: str
    begun_at: int
    writer: str
    service: str
    revision: str
    origin: Origin
    answered: Mapping[Side, int] = {}
    errors: Mapping[Side, int] = {}
    compared: int = 0
    same: int = 0
    transient: int = 0
    different: int = 0
    dropped: Mapping[str, int] = {}
    kinds: Mapping[str, int] = {}
    found: Mapping[DiffKey, int] = {}
    latency: Mapping[Side, str] = {}
    answer: str = ""


class Sample(Struct, frozen=True):
    """One difference as texts, redacted already.

    `attributes`: of `row` (SQL's) and `item` (the table's), None if missing.
    `why`: an error's message.
    `at`: seconds since 1970.
    `subject`: a stable mark of its row in the pattern; '' if the row's key is unknown.
    """

    pattern: str
    key: DiffKey
    at: float
    writer: str
    revision: str
    params: Mapping[str, str] = {}
    attributes: tuple[str, ...] = ()
    row: tuple[str, ...] | None = None
    item: tuple[str, ...] | None = None
    why: str = ""
    subject: str = ""


class Evidence(Protocol):
    """Comparisons of one job. Each method is one transaction.

    Raises, from every method: StoppedError if the journal is unreachable; SettingsError naming the pattern,
    if its content cannot be read.
    """

    def keep(self, windows: Sequence[Window], samples: Sequence[Sample]) -> None:
        """Replace windows of the same pattern, minute and writer; keep the newest SAMPLES_KEPT samples of each
        kind.
        """

    def windows(self, since: float, pattern: str | None = None) -> Sequence[Window]: ...

    def samples(self, pattern: str | None = None) -> Sequence[Sample]: ...

    def now_s(self) -> float: ...


# ── The phases of a job's access patterns, as services and operators share them ──


class MovedError(SettingsError):
    """Another process moved the pattern meanwhile."""

    exit_code = DIFFERENT


class PatternPhase(Struct, frozen=True):
    """`version`: 0 before the first move, and higher with each one.
    `since`: seconds of the journal's clock.
    `fault`: why the journal's phase must not be used (it was edited by hand), and what to do; state and
    version are then the audit's last ones.
    """

    pattern: str
    state: State = OFF
    version: int = 0
    since: float = 0.0
    fault: str = ""


class Move(Struct, frozen=True):
    """One line of the audit.

    `evidence`: lines as JSON text.
    `override`: against the evidence.
    `at`: seconds of the journal's clock.
    """

    pattern: str
    before: State
    after: State
    who: str
    reason: str = ""
    evidence: str = ""
    override: bool = False
    revision: str = ""
    version: int = 0
    at: float = 0.0


class Phases(Protocol):
    """The phases of one job. Every method is one transaction.

    Raises, from every method: StoppedError if the journal is unreachable.
    """

    def all(self) -> Mapping[str, PatternPhase]:
        """Phases of all moved patterns; the others are off. One that was edited by hand is flagged, and does not
        stop the others.
        """

    def move(self, move: Move, version: int) -> PatternPhase:
        """Move the pattern from the `version` that the mover read.

        Raises: MovedError if the version has changed; SettingsError if its phase was edited by hand.
        """

    def mend(self, pattern: str) -> PatternPhase:
        """Restore a phase that was edited by hand from the audit.

        Raises: SettingsError if the audit was edited as well.
        """

    def take_over(self, pattern: str, kept: KeptPhase, who: str, reason: str) -> PatternPhase:
        """Move the pattern to the kept phase, at its version or a higher one.

        Raises: SettingsError if the kept phase is invalid.
        """

    def history(self, pattern: str | None = None) -> Sequence[Move]:
        """The audit, oldest first. Raises: SettingsError if it was edited by hand."""

    def confirm(self, instance: str, versions: Mapping[str, int]) -> None: ...

    def confirmed(self) -> Mapping[str, Mapping[str, int]]: ...


# ── The evidence for a move of a pattern: made by stages, shown by report, kept in the audit ──

Verdict = Literal["ok", "no", "unknown"]
"""`unknown` is not proven, and counts as a no."""


class Line(Struct, frozen=True):
    """One piece of evidence: the check, its result, and its age in seconds (None: current).

    `name`: one word for programs.
    `mend`: what to do, '' for nothing.
    """

    name: str
    asked: str
    found: str
    verdict: Verdict
    age_s: float | None = None
    mend: str = ""


class Judgement(Struct, frozen=True):
    """The evidence for and against a move. `version`: of the judged phase; of a move back the new one, with a `reason`."""

    pattern: str
    before: State
    after: State
    version: int
    lines: Sequence[Line]
    reason: str = ""

    @property
    def failing(self) -> list[Line]:
        return [line for line in self.lines if line.verdict != "ok"]

    @property
    def ok(self) -> bool:
        return not self.failing

    def as_json(self) -> str:
        return json.dumps([asdict(line) for line in self.lines], ensure_ascii=False)


def lines_of(text: str) -> list[Line] | None:
    names = set(Line.__struct_fields__)
    try:
        return [
            Line(**{name: value for name, value in line.items() if name in names})
            for line in json.loads(text or "[]")
        ]
    except (ValueError, TypeError, AttributeError):
        return None


Row: TypeAlias = tuple[Any, ...]
"""Values of one row of an answer, in the order of its attributes."""


DiffClass = Literal["missing", "unexpected", "value", "type", "order"]


@dataclass(frozen=True, slots=True)
class Diff:
    """One difference.

    `missing`: the table has no item for the row.
    `unexpected`: SQL has no row.
    `attribute`: '' for a whole row, or the order.
    `row`: SQL's, `item`: the table's.
    `sign`: an identity that is stable while the rest of the row changes: the row's key, and both values; None
    if the key is unknown.
    `key`: of the row; () if an answer has one row at most.
    """

    kind: DiffClass
    attribute: str = ""
    row: Row | None = None
    item: Row | None = None
    sign: Row | None = None
    key: Row | None = field(default=None, compare=False)
