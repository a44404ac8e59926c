"""Claimed keys: digests with the row that was first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, delete, select

from migrator.journal.dialect import insert_or_ignore
from migrator.journal.schema import claim

Piece = TypeVar("Piece")
_CHUNK = 400


def take(connection: Connection, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
    """Claims what is free; the owner of each digest that another row has. Sorted, so that two takers never deadlock."""
    others: dict[bytes, str] = {}
    for chunk in _chunks(sorted(claims)):
        rows = [{"table_id": table_id, "digest": digest, "owner": owner} for digest, owner in chunk]
        connection.execute(insert_or_ignore(connection, claim), rows)
        stored = _owners(connection, table_id, [digest for digest, _ in chunk])
        others.update({digest: stored[digest] for digest, owner in chunk if stored[digest] != owner})
    return others


def release(connection: Connection, table_id: str, digests: Sequence[bytes]) -> None:
    for chunk in _chunks(sorted(digests)):
        connection.execute(delete(claim).where(claim.c.table_id == table_id, claim.c.digest.in_(chunk)))


def forget(connection: Connection, table_id: str) -> None:
    connection.execute(delete(claim).where(claim.c.table_id == table_id))


def _owners(connection: Connection, table_id: str, digests: list[bytes]) -> dict[bytes, str]:
    query = select(claim.c.digest, claim.c.owner).where(
        claim.c.table_id == table_id, claim.c.digest.in_(digests)
    )
    return {bytes(digest): owner for digest, owner in connection.execute(query)}


def _chunks(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), _CHUNK):
        yield pieces[start : start + _CHUNK]
