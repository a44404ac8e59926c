"""Findings of live change that still hold, over all relays: one for each row and item, however often it is refused."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select

from migrator.journal.dialect import insert_or_replace
from migrator.journal.engine import Database, repeatable
from migrator.journal.findings import NAMES, columns_of
from migrator.journal.memory import root_digest
from migrator.journal.schema import open_finding
from migrator.ports import Finding
from migrator.ports.live import Root

_CHUNK = 400
_NO_TICKET = 0
_OF_MARKS = "mark"
"""The kind that names a table, and no row: it holds while a mark is left that could not be worked."""


class SqlOpenFindings:
    """ports.live.OpenFindings of one job and one table."""

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
        for start in range(0, len(roots), _CHUNK):
            here = (*self._own(), open_finding.c.root.in_(roots[start : start + _CHUNK]))
            query = select(*columns).where(*here).order_by(open_finding.c.digest).with_for_update()
            for digest, root, ticket in connection.execute(query):
                yield bytes(digest), (bytes(root), int(ticket))

    def _delete(self, connection: Connection, which: ColumnElement[bool]) -> None:
        connection.execute(delete(open_finding).where(*self._own(), which))
