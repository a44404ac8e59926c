"""What the table itself keeps of a migration, so that it is known whatever becomes of the source and of the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

NameKind = Literal["table", "source"]


@dataclass(frozen=True, slots=True)
class KeptPhase:
    """A pattern's phase in words, and the version of its move (see ports/phases.py)."""

    phase: str
    version: int


@dataclass(frozen=True)
class Kept:
    """What a fresh journal of one job must not contradict. `journal`: the id of the journal that knows the rest; `phases`:
    of patterns that are, or were, live or complete; `direct`: entities that the service writes itself, as run `direct_run`
    of the journal put on record (0: none ever did)."""

    journal: str
    phases: Mapping[str, KeptPhase] = field(default_factory=dict)
    direct: frozenset[str] = frozenset()
    direct_run: int = 0


@dataclass(frozen=True)
class ControlState:
    """The control item. `ticket`: the highest known; `table_id`: of the table that it was written into, '' where nobody said
    so; `jobs`: what is kept, by job; `version`: counts the changes of it, 0 where none is kept; `is_there`: whether there is
    such an item."""

    ticket: int = 0
    table_id: str = ""
    jobs: Mapping[str, Kept] = field(default_factory=dict)
    version: int = 0
    is_there: bool = False


class Control(Protocol):
    """The table's control item (rule 8)."""

    def read_control(self) -> ControlState:
        """Raises: TargetError where its key is another's."""

    def raise_control(self, ticket: int) -> int:
        """The highest ticket is this one from now on, unless another one is as high: that one, or 0.

        Raises: TargetError where the item was seen before and is gone.
        """

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        """This is kept of the job from now on, in the table of that id; the ticket stays."""


UNREPAIRED = 2**62
"""Seen of a table that holds what a source has lost: no ticket is so high, so that nobody writes before it was repaired."""


class Identity(Protocol):
    """Which journal this is, and which tables it knows. Every method is one transaction."""

    def journal_id(self) -> str:
        """Drawn when the journal was made; a copy has the same."""

    def seen(self, table_id: str) -> int | None:
        """A ticket that the table's control item was seen to hold; None where this journal never wrote into it."""

    def see(self, table_id: str, table: str, ticket: int) -> None:
        """The control item of the table, which has that name, holds the ticket; a higher one that was seen stays."""

    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        """The same, whatever was seen of the table before it was repaired."""

    def tables_named(self, table: str) -> frozenset[str]:
        """Ids of tables that had that name when they were seen."""
