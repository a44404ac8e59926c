"""What was compared, and how it went: counted by minute, kept in the journal for reports and for cutover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from migrator.phase import Side

Origin = Literal["service", "replay"]
"""Whether a service's own reads were compared, or parameters drawn by `shadow replay`."""
SAMPLES_KEPT = 20
"""Of each kind of difference of a pattern; the newest."""
WINDOWS_KEPT_S = 90 * 86_400.0
"""Older windows are dropped now and then, by whoever keeps new ones."""


@dataclass(frozen=True, slots=True, order=True)
class DiffKey:
    """What differences are counted by. `kind`: as in mapping.diff.Diff, or error; `attribute` of an error: the side
    that failed."""

    kind: str
    part: str = ""
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """One minute of one pattern in one process, its counts growing until the minute is over.

    `begun_at`: seconds since 1970 by the journal's clock, a whole minute, the second after a move of the
    pattern, or that in which a replay began.
    `writer`: the instance's id, or the replay's. `answered`, `errors`: by side, of calls that a caller waited for and of
    shadows; `compared`: both sides answered and were compared; `same`, `transient`, `different` add up to it. `dropped`:
    shadows that did not run, by why. `kinds`: compared calls by the optional parameters that were set, joined by commas.
    `found`: differences, of which one call may have many. `latency`: by side, how many answers took how many
    microseconds, as stages/latencies.py writes it.
    """

    pattern: str
    begun_at: int
    writer: str
    service: str
    revision: str
    origin: Origin
    answered: Mapping[Side, int] = field(default_factory=dict)
    errors: Mapping[Side, int] = field(default_factory=dict)
    compared: int = 0
    same: int = 0
    transient: int = 0
    different: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[DiffKey, int] = field(default_factory=dict)
    latency: Mapping[Side, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One difference, as texts with the pattern's redaction already done: nothing in it has to be hidden any more.

    `attributes` name the values of `row` (SQL's) and `item` (the table's), None where there is none. `why`: an error's
    message. `at`: seconds since 1970. `subject`: a mark of the row that it is of, the same for the same row of the pattern;
    '' where its key is not known.
    """

    pattern: str
    key: DiffKey
    at: float
    writer: str
    revision: str
    params: Mapping[str, str] = field(default_factory=dict)
    attributes: Sequence[str] = ()
    row: Sequence[str] | None = None
    item: Sequence[str] | None = None
    why: str = ""
    subject: str = ""


class Evidence(Protocol):
    """What was compared for one job. Every method is one transaction.

    Raises, from every method: StoppedError where the journal cannot be asked; SettingsError where what it holds cannot
    be read, naming the pattern.
    """

    def keep(self, windows: Sequence[Window], samples: Sequence[Sample]) -> None:
        """Each window takes the place of the one with the same pattern, minute and writer; of each kind of difference
        of a pattern the newest SAMPLES_KEPT samples stay."""

    def windows(self, since: float, pattern: str | None = None) -> Sequence[Window]:
        """Those that began at `since` or later, oldest first."""

    def samples(self, pattern: str | None = None) -> Sequence[Sample]:
        """The newest first."""

    def now_s(self) -> float:
        """The journal's time, in seconds since 1970."""
