"""Findings counted, in memory; it passes the contract of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from migrator.model.journal import Finding, FindingGroup, Run


class FakeFindingGroups:
    """model.journal.FindingGroups of findings that a test gives, by the run's id."""

    def __init__(self) -> None:
        self.found: dict[int, list[Finding]] = {}

    def add(self, run: Run, found: Sequence[Finding]) -> None:
        self.found.setdefault(run.id, []).extend(found)

    def groups(self, run: Run) -> list[FindingGroup]:
        counted = Counter((one.kind, one.entity, one.attribute) for one in self.found.get(run.id, []))
        found = [FindingGroup(*key, count) for key, count in counted.items()]
        return sorted(found, key=lambda one: (-one.count, one.kind, one.entity, one.attribute))

    def some(self, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        wanted = (group.kind, group.entity, group.attribute)
        return [one for one in self.found.get(run.id, []) if (one.kind, one.entity, one.attribute) == wanted][
            :limit
        ]
