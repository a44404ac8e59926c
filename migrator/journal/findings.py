"""Findings: stored in bulk, counted in groups, and kept open over runs while they hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select

from migrator.journal.database import Database, insert_or_ignore, insert_or_replace, repeatable
from migrator.journal.memory import root_digest
from migrator.journal.schema import finding, open_finding
from migrator.model.journal import Finding, FindingGroup, Run
from migrator.model.live import Root

# ── Findings: kept once each, whatever is repeated ──

NAMES = tuple(one.name for one in fields(Finding))
_CHUNK = 500


def add(connection: Connection, run_id: int, findings: Iterable[Finding]) -> None:
    """Writes the findings of a run that are not written yet."""
    rows = ({"run_id": run_id, "digest": _digest(one), **_columns(one)} for one in findings)
    while chunk := list(islice(rows, _CHUNK)):
        connection.execute(insert_or_ignore(connection, finding), chunk)


def read(connection: Connection, run_id: int, limit: int | None) -> list[Finding]:
    """Findings in the order in which they were made."""
    here = finding.c.run_id == run_id
    query = select(*columns_of(finding)).where(here).order_by(finding.c.id).limit(limit)
    return [Finding(*row) for row in connection.execute(query)]


def columns_of(table: Table) -> list[ColumnElement[Any]]:
    """What a Finding is made of, in its order."""
    return [func.coalesce(table.c[name], "") for name in NAMES]


def drop(connection: Connection, run_id: int, kind: str, item_keys: Sequence[str]) -> None:
    for start in range(0, len(item_keys), _CHUNK):
        chunk = item_keys[start : start + _CHUNK]
        here = (finding.c.run_id == run_id, finding.c.kind == kind, finding.c.item_key.in_(chunk))
        connection.execute(delete(finding).where(*here))


def counts(connection: Connection, run_id: int) -> dict[str, int]:
    """How many there are of each kind."""
    query = select(finding.c.kind, func.count()).where(finding.c.run_id == run_id).group_by(finding.c.kind)
    return {str(kind): int(number) for kind, number in connection.execute(query)}


def _columns(one: Finding) -> dict[str, str]:
    return {name: getattr(one, name) for name in NAMES}


def _digest(one: Finding) -> bytes:
    text = json.dumps(_columns(one), sort_keys=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# ── Findings counted by kind, entity and attribute ──

_BY = ("kind", "entity", "attribute")
_Place: TypeAlias = tuple[Table, ColumnElement[bool]]


class SqlFindingGroups:
    """model.journal.FindingGroups."""

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


# ──
# Findings of live change that still hold, over all relays: one for each row and item, however often it is
# refused.

_KEYS_AT_ONCE = 400
_NO_TICKET = 0
_OF_MARKS = "mark"
"""The kind that names a table, and no row: it holds while a mark is left that could not be worked."""


class SqlOpenFindings:
    """model.live.OpenFindings of one job and one table."""

    def __init__(self, database: Database, job: str, table_id: str) -> None:
        self.database = database
        self.job = job
        self.table_id = table_id

    @repeatable
    def settle(self, tickets: Mapping[Root, int], found: Sequence[Finding]) -> None:
        worked = {root_digest(self.table_id, root): ticket for root, ticket in tickets.items()}
        rows = {row["digest"]: row for row in (self._row(one, tickets) for one in found)}
        with self.database.begin() as connection:
            before = dict(self._known(connection, sorted(worked)))
            newer = {digest for digest, (root, ticket) in before.items() if ticket > worked[root]}
            if gone := before.keys() - newer - rows.keys():
                self._delete(connection, open_finding.c.digest.in_(sorted(gone)))
            # In one order, so that no two wait for each other.
            for digest in sorted(rows.keys() - newer):
                connection.execute(insert_or_replace(connection, open_finding), rows[digest])

    @repeatable
    def close_marks(self) -> None:
        with self.database.begin() as connection:
            self._delete(connection, open_finding.c.kind == _OF_MARKS)

    @repeatable
    def keep_entities(self, names: Collection[str]) -> None:
        others = open_finding.c.entity.not_in(sorted(names))
        with self.database.begin() as connection:
            self._delete(connection, others & (open_finding.c.kind != _OF_MARKS))

    @repeatable
    def counts(self, above: int = -1) -> dict[str, int]:
        kind = open_finding.c.kind
        query = select(kind, func.count()).where(*self._own(), open_finding.c.ticket > above).group_by(kind)
        with self.database.begin() as connection:
            return {str(name): int(number) for name, number in connection.execute(query)}

    @repeatable
    def read(self, limit: int | None = None) -> list[Finding]:
        by = (open_finding.c.ticket, open_finding.c.digest)
        query = select(*columns_of(open_finding)).where(*self._own()).order_by(*by).limit(limit)
        with self.database.begin() as connection:
            return [Finding(*row) for row in connection.execute(query)]

    @repeatable
    def roots(self) -> list[Root]:
        columns = (open_finding.c.entity, open_finding.c.source_key)
        here = (*self._own(), open_finding.c.source_key != "")
        with self.database.begin() as connection:
            found = connection.execute(select(*columns).where(*here).distinct().order_by(*columns))
            return [(str(entity), str(key)) for entity, key in found]

    # ── rows ──

    def _own(self) -> tuple[ColumnElement[bool], ...]:
        return (open_finding.c.job == self.job, open_finding.c.table_id == self.table_id)

    def _row(self, one: Finding, tickets: Mapping[Root, int]) -> dict[str, Any]:
        root = (one.entity, one.source_key)
        place = [self.table_id, one.kind, *root, one.item_key, one.attribute]
        text = json.dumps(place).encode("utf-8", "surrogatepass")
        return {name: getattr(one, name) for name in NAMES} | {
            "job": self.job,
            "digest": blake2b(text, digest_size=16).digest(),
            "table_id": self.table_id,
            "root": root_digest(self.table_id, root),
            "ticket": tickets.get(root, _NO_TICKET),
        }

    def _known(
        self, connection: Connection, roots: Sequence[bytes]
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """What is open of the roots (digest, (root, ticket)); nobody else changes it until the transaction ends."""
        columns = (open_finding.c.digest, open_finding.c.root, open_finding.c.ticket)
        for start in range(0, len(roots), _KEYS_AT_ONCE):
            here = (*self._own(), open_finding.c.root.in_(roots[start : start + _KEYS_AT_ONCE]))
            query = select(*columns).where(*here).order_by(open_finding.c.digest).with_for_update()
            for digest, root, ticket in connection.execute(query):
                yield bytes(digest), (bytes(root), int(ticket))

    def _delete(self, connection: Connection, which: ColumnElement[bool]) -> None:
        connection.execute(delete(open_finding).where(*self._own(), which))
