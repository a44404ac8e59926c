"""Findings counted by kind, entity and attribute."""

from __future__ import annotations

from sqlalchemy import func, select

from migrator.journal.engine import Database
from migrator.journal.schema import finding
from migrator.ports import Finding, Run
from migrator.ports.finding_groups import FindingGroup

_BY = (finding.c.kind, finding.c.entity, finding.c.attribute)
_TOLD = (*_BY[:2], finding.c.reason, finding.c.source_key, finding.c.item_key, finding.c.attribute)


class SqlFindingGroups:
    """ports.finding_groups.FindingGroups."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def groups(self, run: Run) -> list[FindingGroup]:
        query = select(*_BY, func.count()).where(finding.c.run_id == run.id).group_by(*_BY)
        with self.database.begin() as connection:
            found = [FindingGroup(*row) for row in connection.execute(query)]
        return sorted(found, key=lambda one: (-one.count, one.kind, one.entity, one.attribute))

    def some(self, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        here = (
            finding.c.run_id == run.id,
            finding.c.kind == group.kind,
            finding.c.entity == group.entity,
            finding.c.attribute == group.attribute,
        )
        query = select(*_TOLD).where(*here).order_by(finding.c.id).limit(limit)
        with self.database.begin() as connection:
            return [Finding(*row) for row in connection.execute(query)]
