"""Keys that the journal remembers of items, and claims on keys that two rows may make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, select, update

from migrator.journal.database import Database, insert_or_ignore, repeatable
from migrator.journal.schema import (
    claim,
    claimed_table,
    key_request,
    reached_ticket,
    remembered_key,
    remembered_root,
)
from migrator.mapping.heart.sizes import read_key, write_key
from migrator.model.keys import item_key_text
from migrator.model.live import KeyRequest, Remembered, Root
from migrator.model.table import ItemKey

# ── Remembered keys (those that no row gives again), and keys that two root rows claim ──

_CHUNK = 400
_NO_TICKET = -1
Piece = TypeVar("Piece")


class SqlMemory:
    """model.live.Memory of one table; rows are found by digests in which the table's id has a part.

    A root that was ever written stays, with its ticket, when its last key is gone: a late writer must see that it is late.
    It goes when its row is forgotten (see stages/forget.py), and no writer can be late any more.
    """

    def __init__(self, database: Database, table_id: str) -> None:
        self.database = database
        self.table_id = table_id

    @repeatable
    def remember(self, ticket: int, intended: Mapping[Root, Collection[ItemKey]]) -> dict[Root, Remembered]:
        found: dict[Root, Remembered] = {}
        roots = self._by_digest(intended)
        with self.database.begin() as connection:
            for chunk in _chunks(sorted(roots)):
                before = _remembered(connection, chunk)
                found.update({roots[digest]: before[digest] for digest in chunk})
                mine = [digest for digest in chunk if before[digest].ticket <= ticket]
                _raise(connection, mine, ticket)
                _insert(
                    connection,
                    remembered_key,
                    [self._key(d, key) for d in mine for key in intended[roots[d]]],
                )
        return {root: found[root] for root in intended}

    @repeatable
    def settle(self, ticket: int, current: Mapping[Root, Collection[ItemKey]]) -> None:
        roots = self._by_digest(current)
        with self.database.begin() as connection:
            for chunk in _chunks(sorted(roots)):
                held = _tickets(connection, chunk)
                stored = _stored_keys(connection, [one for one in chunk if held.get(one) == ticket])
                kept = {(one, self._digest(key)) for one in chunk for key in current[roots[one]]}
                gone = [place for place in sorted(stored) if place not in kept]
                _delete(connection, remembered_key, gone, ("root", "digest"))

    # ── tickets ──

    @repeatable
    def reached(self, ticket: int) -> None:
        mine = update(reached_ticket).where(reached_ticket.c.table_id == self.table_id)
        with self.database.begin() as connection:
            row = {"table_id": self.table_id, "ticket": ticket}
            connection.execute(insert_or_ignore(connection, reached_ticket), row)
            connection.execute(mine.where(reached_ticket.c.ticket < ticket).values(ticket=ticket))

    @repeatable
    def highest(self) -> int:
        mine = select(reached_ticket.c.ticket).where(reached_ticket.c.table_id == self.table_id)
        with self.database.begin() as connection:
            return int(connection.execute(mine).scalar() or 0)

    # ── key requests ──

    @repeatable
    def request_keys(self, contests: Sequence[KeyRequest]) -> None:
        rows = [
            {
                **self._key(self._root(one.root), one.key),
                "entity": one.root[0],
                "source_key": one.root[1],
            }
            for one in contests
        ]
        with self.database.begin() as connection:
            _insert(connection, key_request, rows)

    @repeatable
    def contests(self, keys: Sequence[ItemKey]) -> list[KeyRequest]:
        found: list[KeyRequest] = []
        with self.database.begin() as connection:
            for chunk in _chunks(sorted({self._digest(key) for key in keys})):
                query = select(key_request.c.item_key, key_request.c.entity, key_request.c.source_key)
                wanted = query.where(key_request.c.digest.in_(chunk)).order_by(
                    key_request.c.digest, key_request.c.root
                )
                rows = connection.execute(wanted)
                found += [KeyRequest(_read(text), (entity, key)) for text, entity, key in rows]
        return found

    @repeatable
    def withdraw(self, contests: Sequence[KeyRequest]) -> None:
        places = sorted({(self._digest(one.key), self._root(one.root)) for one in contests})
        with self.database.begin() as connection:
            _delete(connection, key_request, places, ("digest", "root"))

    # ── digests ──

    def _by_digest(self, roots: Iterable[Root]) -> dict[bytes, Root]:
        return {self._root(root): root for root in roots}

    def _root(self, root: Root) -> bytes:
        return root_digest(self.table_id, root)

    def _digest(self, key: ItemKey) -> bytes:
        return _blake([self.table_id, item_key_text(key)])

    def _key(self, root: bytes, key: ItemKey) -> dict[str, object]:
        return {"root": root, "digest": self._digest(key), "item_key": json.dumps(write_key(key))}


def root_digest(table_id: str, root: Root) -> bytes:
    """What a root of that table is found by."""
    return _blake([table_id, *root])


# ── statements ──


def _remembered(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, Remembered]:
    """What is remembered of each root, whose rows nobody else changes until the transaction ends."""
    rows = [{"root": digest, "ticket": _NO_TICKET} for digest in digests]
    connection.execute(insert_or_ignore(connection, remembered_root), rows)
    tickets = _tickets(connection, digests)
    keys: dict[bytes, set[ItemKey]] = {digest: set() for digest in digests}
    for (root, _), text in _stored_keys(connection, digests).items():
        keys[root].add(_read(text))
    return {digest: Remembered(tickets[digest], frozenset(keys[digest])) for digest in digests}


def _tickets(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
    """The highest ticket of each root. The rows are locked in the order of digests, so that nobody waits in a ring."""
    table = remembered_root
    query = select(table.c.root, table.c.ticket).where(table.c.root.in_(digests)).order_by(table.c.root)
    return {bytes(root): int(ticket) for root, ticket in connection.execute(query.with_for_update())}


def _stored_keys(connection: Connection, digests: Sequence[bytes]) -> dict[tuple[bytes, bytes], str]:
    table = remembered_key
    query = select(table.c.root, table.c.digest, table.c.item_key).where(table.c.root.in_(digests))
    return {(bytes(root), bytes(digest)): text for root, digest, text in connection.execute(query)}


def _raise(connection: Connection, digests: Sequence[bytes], ticket: int) -> None:
    if digests:
        mine = update(remembered_root).where(remembered_root.c.root.in_(digests))
        connection.execute(mine.values(ticket=ticket))


def _insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    # In one order, so that nobody waits in a ring.
    for chunk in _chunks(sorted(rows, key=lambda row: (row["digest"], row["root"]))):
        connection.execute(insert_or_ignore(connection, table), [dict(row) for row in chunk])


def _delete(
    connection: Connection, table: Table, places: Sequence[tuple[bytes, bytes]], names: tuple[str, str]
) -> None:
    first, second = names
    gone = delete(table).where(table.c[first] == bindparam("one"), table.c[second] == bindparam("other"))
    for chunk in _chunks(places):
        connection.execute(gone, [{"one": one, "other": other} for one, other in chunk])


def _blake(parts: Sequence[str]) -> bytes:
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(text: str) -> ItemKey:
    key = read_key(json.loads(text))
    assert key is not None
    return key


def _chunks(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for start in range(0, len(pieces), _CHUNK):
        yield pieces[start : start + _CHUNK]


# ── Claimed keys: digests with the row that was first ──


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
