"""Findings counted, in memory; it passes the contract of the real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from migrator.mapping.model.journal import Finding, FindingGroup, Run


class FakeFindingGroups:
    """model.journal.FindingGroups of findings that a test gives, by the run's id."""

    def __init__(self) -> None:
        self.by_run: dict[int, list[Finding]] = {}

    def add(self, run: Run, findings: Sequence[Finding]) -> None:
        self.by_run.setdefault(run.id, []).extend(findings)

    def groups(self, run: Run) -> list[FindingGroup]:
        counted = Counter(
            (finding.kind, finding.entity, finding.attribute) for finding in self.by_run.get(run.id, [])
        )
        groups = [FindingGroup(*key, count) for key, count in counted.items()]
        return sorted(
            groups, key=lambda finding: (-finding.count, finding.kind, finding.entity, finding.attribute)
        )

    def some(self, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        wanted = (group.kind, group.entity, group.attribute)
        return [
            finding
            for finding in self.by_run.get(run.id, [])
            if (finding.kind, finding.entity, finding.attribute) == wanted
        ][:limit]
