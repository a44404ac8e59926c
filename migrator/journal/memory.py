"""Keys that cannot be worked out again, and keys that two roots want, remembered in the journal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, Table, bindparam, delete, select, update

from migrator.journal.dialect import insert_or_ignore
from migrator.journal.engine import Database, repeatable
from migrator.journal.schema import contest, reached_ticket, remembered_key, remembered_root
from migrator.mapping.key_wire import read_key, write_key
from migrator.mapping.keys import item_key_text
from migrator.model import ItemKey
from migrator.ports.live import Contest, Remembered, Root

_CHUNK = 400
_NO_TICKET = -1
Piece = TypeVar("Piece")


class SqlMemory:
    """ports.live.Memory of one table; rows are found by digests in which the table's id has a part.

    A root that was ever written stays, with its ticket, when its last key is gone: who is late must see that he is. It
    goes when its row is forgotten (see stages/forget.py), and nobody is late any more.
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

    # ── contests ──

    @repeatable
    def contest(self, contests: Sequence[Contest]) -> None:
        rows = [
            {
                **self._key(self._root(one.root), one.key),
                "entity": one.root[0],
                "source_key": one.root[1],
            }
            for one in contests
        ]
        with self.database.begin() as connection:
            _insert(connection, contest, rows)

    @repeatable
    def contests(self, keys: Sequence[ItemKey]) -> list[Contest]:
        found: list[Contest] = []
        with self.database.begin() as connection:
            for chunk in _chunks(sorted({self._digest(key) for key in keys})):
                query = select(contest.c.item_key, contest.c.entity, contest.c.source_key)
                wanted = query.where(contest.c.digest.in_(chunk)).order_by(contest.c.digest, contest.c.root)
                rows = connection.execute(wanted)
                found += [Contest(_read(text), (entity, key)) for text, entity, key in rows]
        return found

    @repeatable
    def concede(self, contests: Sequence[Contest]) -> None:
        places = sorted({(self._digest(one.key), self._root(one.root)) for one in contests})
        with self.database.begin() as connection:
            _delete(connection, contest, places, ("digest", "root"))

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
