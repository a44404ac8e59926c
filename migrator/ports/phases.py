"""The phases of a job's access patterns, as services and operators share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.errors import DIFFERENT, SettingsError
from migrator.phase import OFF, State
from migrator.ports.control import KeptPhase


class MovedError(SettingsError):
    """Somebody else has moved the pattern meanwhile."""

    exit_code = DIFFERENT


@dataclass(frozen=True, slots=True)
class PatternPhase:
    """`version`: 0 where nobody ever moved the pattern, and one more with each move. `since`: seconds of the journal's
    clock.

    `fault`: '' for nothing, else why nobody may go by what the journal holds (it was edited by hand), and what to do;
    state and version are those that the audit ends with then.
    """

    pattern: str
    state: State = OFF
    version: int = 0
    since: float = 0.0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the audit. `evidence`: the lines that the move was judged by, as JSON text; `override`: whether it was
    made although they said no. `at`: seconds of the journal's clock."""

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

    Raises, from every method: StoppedError where the journal cannot be asked.
    """

    def all(self) -> Mapping[str, PatternPhase]:
        """The phases of all patterns that were ever moved, by name; every other one is off. One that was edited by hand
        says so, and stands in nobody else's way."""

    def move(self, move: Move, version: int) -> PatternPhase:
        """The pattern's new phase. `version`: what the mover saw.

        Raises: MovedError where the pattern's version is another one by now; of two movers one wins. SettingsError where
        its phase was edited by hand.
        """

    def mend(self, pattern: str) -> PatternPhase:
        """The pattern's phase, written anew as the audit ends with where it was edited by hand.

        Raises: SettingsError where the audit was edited, too.
        """

    def take_over(self, pattern: str, kept: KeptPhase, who: str, reason: str) -> PatternPhase:
        """The pattern is in the kept phase from now on, whatever was known of it; its version is the kept one, or higher.

        Raises: SettingsError where the kept phase is none.
        """

    def history(self, pattern: str | None = None) -> Sequence[Move]:
        """The audit, oldest first. Raises: SettingsError where it was edited by hand."""

    def confirm(self, instance: str, versions: Mapping[str, int]) -> None:
        """The instance acts by these versions of patterns from now on."""

    def confirmed(self) -> Mapping[str, Mapping[str, int]]:
        """What instances confirmed last: versions by pattern, by the instance's id."""
