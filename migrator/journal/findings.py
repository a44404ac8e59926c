"""Findings: kept once each, whatever is repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, select

from migrator.journal.dialect import insert_or_ignore
from migrator.journal.schema import finding
from migrator.ports import Finding

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
