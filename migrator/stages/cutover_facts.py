"""What is known of one pattern when a move of it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.cutover_results import Verdict
from migrator.cutover_settings import CutoverSettings
from migrator.model import Pattern
from migrator.ports.activity import Looked
from migrator.ports.evidence import Window
from migrator.ports.instances import Instance, Roster
from migrator.ports.live import MarksState
from migrator.ports.phases import PatternPhase
from migrator.stages.counted import Counted, counted


@dataclass(frozen=True, slots=True)
class Unknown:
    """An edge that could not be asked, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The last full verify of this mapping's revision into this table. `findings`: of the pattern's entities.

    `age_s`: since it began; None where it has not ended. `look`: what the source counted of changes when it began, None
    where nobody looked.
    """

    run: int
    findings: int
    age_s: float | None
    look: Looked | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one pattern at one moment, all times by the journal's clock.

    `table_fault`, `capture_fault`: what is wrong there, '' for nothing. `verified` None: there was none. `relays`: those
    that live. `confirmed`: versions by instance.
    """

    pattern: Pattern
    revision: str
    phase: PatternPhase
    now_s: float
    windows: Sequence[Window]
    roster: Roster
    confirmed: Mapping[str, int]
    table_fault: str | Unknown = ""
    capture_fault: str | Unknown = ""
    marks: MarksState | Unknown = field(default_factory=MarksState)
    relays: int | Unknown = 0
    verified: Verified | None | Unknown = None

    @property
    def readers(self) -> list[Instance]:
        return [one for one in self.roster.living if one.reads]

    def counts(self, limits: CutoverSettings, *, since_move: bool) -> Counted:
        """Of this mapping's windows that are young enough; `since_move`: that began after the last one, too.

        Before a pattern answers from the table, a replay's questions are as good as a service's; then they are not.
        """
        since = self.now_s - limits.evidence_max_age_s
        if since_move:
            since = max(since, self.phase.since)
        origins = ("service",) if since_move and self.phase.state.phase in ("ramp", "live") else None
        return counted(
            one
            for one in self.windows
            if one.revision == self.revision
            and one.begun_at >= since
            and (origins is None or one.origin in origins)
        )


def verdict(is_ok: bool) -> Verdict:
    return "ok" if is_ok else "no"


def age_of(facts: Facts, counts: Counted) -> float | None:
    """Seconds since the newest of the counted windows began."""
    return None if counts.newest_at is None else max(0.0, facts.now_s - counts.newest_at)
