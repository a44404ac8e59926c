"""Findings counted by kind, entity and attribute."""

from __future__ import annotations

from typing import TypeAlias

from sqlalchemy import ColumnElement, Table, and_, func, select

from migrator.journal.engine import Database, repeatable
from migrator.journal.findings import columns_of
from migrator.journal.schema import finding, open_finding
from migrator.ports import Finding, Run
from migrator.ports.finding_groups import FindingGroup

_BY = ("kind", "entity", "attribute")
_Place: TypeAlias = tuple[Table, ColumnElement[bool]]


class SqlFindingGroups:
    """ports.finding_groups.FindingGroups."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @repeatable
    def groups(self, run: Run) -> list[FindingGroup]:
        table, here = _place(run)
        by = [table.c[name] for name in _BY]
        query = select(*by, func.count()).where(here).group_by(*by)
        with self.database.begin() as connection:
            found = [FindingGroup(*row[:3], count=row[3]) for row in connection.execute(query)]
        return sorted(found, key=lambda one: (-one.count, one.kind, one.entity, one.attribute))

    @repeatable
    def some(self, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        table, here = _place(run)
        of_group = (table.c[name] == getattr(group, name) for name in _BY)
        order = table.c.ticket if table is open_finding else table.c.id
        query = select(*columns_of(table)).where(here, *of_group).order_by(order).limit(limit)
        with self.database.begin() as connection:
            return [Finding(*row) for row in connection.execute(query)]


def _place(run: Run) -> _Place:
    """Where its findings are: a relay's are all that are open of its job and table, whichever relay found them."""
    if run.identity.kind == "relay":
        of_job, of_table = (
            open_finding.c.job == run.identity.job,
            open_finding.c.table_id == run.identity.table_id,
        )
        return open_finding, and_(of_job, of_table)
    return finding, finding.c.run_id == run.id
