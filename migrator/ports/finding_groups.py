"""Findings counted where they lie, so that a million of them can be told without being read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.ports.journal import Finding, Run


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one kind, entity and attribute ('' where they are of a whole row)."""

    kind: str
    entity: str
    attribute: str
    count: int


class FindingGroups(Protocol):
    """Every method is one transaction. A relay's findings are all that are open of its job and table, whichever relay found
    them. Raises, from every method: StoppedError where the journal cannot be asked."""

    def groups(self, run: Run) -> Sequence[FindingGroup]:
        """The largest first."""

    def some(self, run: Run, group: FindingGroup, limit: int) -> Sequence[Finding]:
        """The first ones of a group, as they were found."""
