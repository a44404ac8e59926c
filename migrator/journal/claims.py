"""Claimed keys: digests with the row that was first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from sqlalchemy import Connection, bindparam, delete, select

from migrator.journal.dialect import insert_or_ignore
from migrator.journal.schema import claim, claimed_table

Piece = TypeVar("Piece")
_CHUNK = 400


def take(connection: Connection, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
    """Claims what is free; the owner of each digest that any of its claimants here does not own.

    Of two claims of one digest the first wins. Answers go by digest: who asks for one twice cannot see which was it.
    """
    others: dict[bytes, str] = {}
    number = _number(connection, table_id)
    # In the order of digests, so that two takers never deadlock; in equal digests the caller's order stays.
    for chunk in _chunks(sorted(claims, key=_digest)):
        stored = _stored(connection, number, chunk)
        others.update({digest: stored[digest] for digest, owner in chunk if stored[digest] != owner})
    return others


def release(connection: Connection, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None:
    """Frees each digest that this owner has; one that another has taken meanwhile stays."""
    here = claim.c.table_number == _number(connection, table_id)
    gone = delete(claim).where(here, claim.c.digest == bindparam("freed"), claim.c.owner == bindparam("by"))
    for chunk in _chunks(sorted(given_up, key=_digest)):
        connection.execute(gone, [{"freed": digest, "by": owner} for digest, owner in chunk])


def _number(connection: Connection, table_id: str) -> int:
    """The number that stands for the table's id; the first asker gives it one."""
    known = select(claimed_table.c.number).where(claimed_table.c.table_id == table_id)
    while (number := connection.execute(known).scalar()) is None:
        connection.execute(insert_or_ignore(connection, claimed_table), {"table_id": table_id})
    return int(number)


def _stored(connection: Connection, number: int, chunk: Sequence[tuple[bytes, str]]) -> dict[bytes, str]:
    """The owner of each digest after the free ones are taken."""
    stored: dict[bytes, str] = {}
    # On PostgreSQL a claim may be released between the two statements: then it is free, and taken the next time.
    while missing := [one for one in chunk if one[0] not in stored]:
        rows = [{"table_number": number, "digest": digest, "owner": owner} for digest, owner in missing]
        connection.execute(insert_or_ignore(connection, claim), rows)
        stored.update(_owners(connection, number, [digest for digest, _ in missing]))
    return stored


def _owners(connection: Connection, number: int, digests: list[bytes]) -> dict[bytes, str]:
    query = select(claim.c.digest, claim.c.owner).where(
        claim.c.table_number == number, claim.c.digest.in_(digests)
    )
    return {bytes(digest): owner for digest, owner in connection.execute(query)}


def _digest(one: tuple[bytes, str]) -> bytes:
    return one[0]


def _chunks(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), _CHUNK):
        yield pieces[start : start + _CHUNK]
