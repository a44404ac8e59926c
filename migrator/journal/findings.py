"""Findings of runs: stored in bulk, and counted in groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, and_, func, select

from migrator.journal.database import InDatabase, insert_or_ignore, repeatable
from migrator.journal.schema import finding, open_finding
from migrator.mapping.model.journal import Finding, FindingGroup, Run

# ── Findings: kept once each, whatever is repeated ──

NAMES = Finding.__struct_fields__
_CHUNK = 500


def add(connection: Connection, run_id: int, findings: Iterable[Finding]) -> None:
    """Writes the findings of a run that are not written yet."""
    rows = ({"run_id": run_id, "digest": _digest(entry), **_columns(entry)} for entry in findings)
    while chunk := list(islice(rows, _CHUNK)):
        connection.execute(insert_or_ignore(connection, finding), chunk)


def columns_of(table: Table) -> list[ColumnElement[Any]]:
    """What a Finding is made of, in its order."""
    return [table.c[name] for name in NAMES]


def _columns(entry: Finding) -> dict[str, str]:
    return {name: getattr(entry, name) for name in NAMES}


def _digest(entry: Finding) -> bytes:
    text = json.dumps(_columns(entry), sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# ── Findings counted by kind, entity and attribute ──

_BY = ("kind", "entity", "attribute")
_Rows: TypeAlias = tuple[Table, ColumnElement[bool]]


class SqlFindingGroups(InDatabase):
    """model.journal.FindingGroups."""

    @repeatable
    def groups(self, connection: Connection, run: Run) -> list[FindingGroup]:
        table, here = _rows_of(run)
        by = [table.c[name] for name in _BY]
        query = select(*by, func.count()).where(here).group_by(*by)
        counted = [FindingGroup(*row[:3], count=row[3]) for row in connection.execute(query)]
        return sorted(counted, key=lambda group: (-group.count, group.kind, group.entity, group.attribute))

    @repeatable
    def some(self, connection: Connection, run: Run, group: FindingGroup, limit: int) -> list[Finding]:
        table, here = _rows_of(run)
        of_group = (table.c[name] == getattr(group, name) for name in _BY)
        order = table.c.ticket if table is open_finding else table.c.id
        query = select(*columns_of(table)).where(here, *of_group).order_by(order).limit(limit)
        return [Finding(*row) for row in connection.execute(query)]


def _rows_of(run: Run) -> _Rows:
    """Where its findings are: a relay's are all that are open of its job and table, whichever relay found them."""
    if run.identity.kind == "relay":
        of_job, of_table = (
            open_finding.c.job == run.identity.job,
            open_finding.c.table_id == run.identity.table_id,
        )
        return open_finding, and_(of_job, of_table)
    return finding, finding.c.run_id == run.id
