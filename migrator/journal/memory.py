"""Shared by concurrent writers: remembered keys, claims on keys that two rows may make, and open findings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Insert,
    Table,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)

from migrator.journal.database import (
    Database,
    InDatabase,
    OfJobTable,
    chunks,
    insert_or_ignore,
    insert_or_replace,
    once_only,
    reading,
    repeatable,
    upsert,
)
from migrator.journal.records import KeptRecords
from migrator.journal.runs import NAMES, columns_of
from migrator.journal.schema import (
    claim,
    claimed_table,
    finding,
    key_request,
    open_finding,
    page,
    remembered_key,
    remembered_root,
    run,
    sample,
)
from migrator.mapping.items.wire import read_key, write_key
from migrator.mapping.model.journal import Finding, Run
from migrator.mapping.model.live import KeyRequest, Remembered, Root
from migrator.mapping.model.table import ItemKey, item_key_text, source_text

# ── Remembered keys (not computable from a row), and keys that two root rows claim ──

_NO_TICKET = -1
REACHED = KeptRecords[int]("reached_ticket", int)


class SqlMemory(InDatabase):
    """Keys of one table; rows are found by digests that include the table's id.

    A root that was ever written stays, with its ticket, after its last key is gone: a late writer must notice
    that it is late. It goes when its row is forgotten (stages/session/forget.py), when no writer can be late.
    """

    def __init__(self, database: Database, table_id: str) -> None:
        super().__init__(database)
        self.table_id = table_id

    @repeatable
    def remember(
        self, connection: Connection, ticket: int, intended: Mapping[Root, Collection[ItemKey]]
    ) -> dict[Root, Remembered]:
        before_of: dict[Root, Remembered] = {}
        roots = self._by_digest(intended)
        for chunk in chunks(sorted(roots)):
            before = _remembered(connection, chunk)
            before_of.update({roots[digest]: before[digest] for digest in chunk})
            not_newer = [digest for digest in chunk if before[digest].ticket <= ticket]
            _raise(connection, not_newer, ticket)
            # Usually all of them exist, and inserting each again would cost more than the rest.
            new = [
                self._key(digest, key)
                for digest in not_newer
                for key in intended[roots[digest]]
                if key not in before[digest].keys
            ]
            _insert(connection, insert_or_ignore(connection, remembered_key), new)
        return {root: before_of[root] for root in intended}

    @repeatable
    def settle(
        self, connection: Connection, ticket: int, current: Mapping[Root, Collection[ItemKey]]
    ) -> None:
        roots = self._by_digest(current)
        for chunk in chunks(sorted(roots)):
            tickets = _tickets(connection, chunk)
            stored = _stored_keys(connection, [root for root in chunk if tickets.get(root) == ticket])
            current_keys = {(root, self._digest(key)) for root in chunk for key in current[roots[root]]}
            outdated = [stored_key for stored_key in sorted(stored) if stored_key not in current_keys]
            _delete(connection, remembered_key, outdated, ("root", "digest"))

    # ── tickets ──

    @repeatable
    def reached(self, connection: Connection, ticket: int) -> None:
        before = REACHED.lock(connection, self.table_id)
        if before is None or before < ticket:
            REACHED.put(connection, self.table_id, ticket)

    def highest(self) -> int:
        return REACHED.read(self.database, self.table_id) or 0

    # ── key requests ──

    @repeatable
    def request_keys(self, connection: Connection, requests: Sequence[KeyRequest], ticket: int) -> None:
        rows = [
            {
                **self._key(self._root(request.root), request.key),
                "entity": request.root[0],
                "source_key": request.root[1],
                "ticket": ticket,
            }
            for request in requests
        ]
        # One statement: an existing request cannot be withdrawn between a read and its newer ticket.
        _insert(connection, _insert_or_raise(connection.dialect.name, key_request, "ticket"), rows)

    @reading
    def requests_of(self, connection: Connection, keys: Sequence[ItemKey]) -> list[KeyRequest]:
        requests: list[KeyRequest] = []
        if not _has_rows(connection, key_request):
            return []
        for chunk in chunks(sorted({self._digest(key) for key in keys})):
            query = select(key_request.c.item_key, key_request.c.entity, key_request.c.source_key)
            ordered = query.where(key_request.c.digest.in_(chunk)).order_by(
                key_request.c.digest, key_request.c.root
            )
            rows = connection.execute(ordered)
            requests += [KeyRequest(_read(text), (entity, key)) for text, entity, key in rows]
        return requests

    @repeatable
    def withdraw(self, connection: Connection, requests: Sequence[KeyRequest], ticket: int) -> None:
        waiting = sorted({(self._digest(request.key), self._root(request.root)) for request in requests})
        not_later = key_request.c.ticket <= ticket
        _delete(connection, key_request, waiting, ("digest", "root"), not_later)

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
    return _blake([table_id, *root])


# ── statements ──


def _remembered(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, Remembered]:
    """No other writer changes these rows until the transaction ends."""
    # Read without locks first, then lock all in one order, new ones included.
    known = _known(connection, digests)
    new = [{"root": digest, "ticket": _NO_TICKET} for digest in digests if digest not in known]
    if new:
        connection.execute(insert_or_ignore(connection, remembered_root), new)
    tickets = _tickets(connection, digests)
    keys: dict[bytes, set[ItemKey]] = {digest: set() for digest in digests}
    for (root, _), text in _stored_keys(connection, digests).items():
        keys[root].add(_read(text))
    return {digest: Remembered(tickets[digest], frozenset(keys[digest])) for digest in digests}


def _known(connection: Connection, digests: Sequence[bytes]) -> set[bytes]:
    query = select(remembered_root.c.root).where(remembered_root.c.root.in_(digests))
    return {bytes(root) for (root,) in connection.execute(query)}


def _tickets(connection: Connection, digests: Sequence[bytes]) -> dict[bytes, int]:
    """Lock rows in the order of digests, which prevents deadlocks."""
    table = remembered_root
    query = select(table.c.root, table.c.ticket).where(table.c.root.in_(digests)).order_by(table.c.root)
    return {bytes(root): int(ticket) for root, ticket in connection.execute(query.with_for_update())}


def _stored_keys(connection: Connection, digests: Sequence[bytes]) -> dict[tuple[bytes, bytes], str]:
    table = remembered_key
    query = select(table.c.root, table.c.digest, table.c.item_key).where(table.c.root.in_(digests))
    return {(bytes(root), bytes(digest)): text for root, digest, text in connection.execute(query)}


def _raise(connection: Connection, digests: Sequence[bytes], ticket: int) -> None:
    if digests:
        of_roots = update(remembered_root).where(remembered_root.c.root.in_(digests))
        connection.execute(of_roots.values(ticket=ticket))


def _has_rows(connection: Connection, table: Table, *where: ColumnElement[bool]) -> bool:
    """Usually there are none, and a query per key or row would cost more than the rest of the transaction."""
    return connection.execute(select(1).select_from(table).where(*where).limit(1)).first() is not None


def _insert(connection: Connection, insertion: Insert, rows: Sequence[Mapping[str, object]]) -> None:
    # In one order, which prevents deadlocks.
    for chunk in chunks(sorted(rows, key=lambda row: (row["digest"], row["root"]))):
        connection.execute(insertion, [dict(row) for row in chunk])


@cache
def _insert_or_raise(dialect: str, table: Table, number: str) -> Insert:
    """INSERT that keeps an existing row, but raises this column to the higher number."""
    # No parameter: PyMySQL fills in none after the values of many rows.
    before = func.coalesce(table.c[number], literal_column("-1"))
    greatest = func.max if dialect == "sqlite" else func.greatest
    return upsert(dialect, table, lambda new: {number: greatest(before, new[number])})


def _delete(
    connection: Connection,
    table: Table,
    places: Sequence[tuple[bytes, bytes]],
    names: tuple[str, str],
    *where: ColumnElement[bool],
) -> None:
    first, second = names
    at_place = (table.c[first] == bindparam("one"), table.c[second] == bindparam("other"))
    deletion = delete(table).where(*at_place, *where)
    for chunk in chunks(places):
        connection.execute(deletion, [{"one": first_value, "other": other} for first_value, other in chunk])


def _blake(parts: Sequence[str]) -> bytes:
    text = json.dumps(parts, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _read(text: str) -> ItemKey:
    key = read_key(json.loads(text))
    assert key is not None
    return key


# Open findings of live change, over all relays: one per row and item, however often the row is refused.

_UNREAD = 0
_OF_MARKS = "mark"
"""Kind of a finding that names a table, not a row: open while a mark remains that could not be processed."""


class SqlOpenFindings(OfJobTable):
    @classmethod
    def of_relays(cls, database: Database, job: str, runs: Sequence[Run]) -> SqlOpenFindings:
        tables = [run.identity.table_id for run in runs if run.identity.kind == "relay"]
        return cls(database, job, tables[-1] if tables else "")

    def settle(self, tickets: Mapping[Root, int], new_findings: Sequence[Finding]) -> None:
        if new_findings or self._has_any():
            self._settle(tickets, new_findings)

    @reading
    def _has_any(self, connection: Connection) -> bool:
        return _has_rows(connection, open_finding, *self._own())

    @repeatable
    def _settle(
        self, connection: Connection, tickets: Mapping[Root, int], new_findings: Sequence[Finding]
    ) -> None:
        rows = {row["digest"]: row for row in (self._row(finding, tickets) for finding in new_findings)}
        worked = {root_digest(self.table, root): ticket for root, ticket in tickets.items()}
        before = dict(self._open_of(connection, sorted(worked)))
        newer = {digest for digest, (root, ticket) in before.items() if ticket > worked[root]}
        if closed := before.keys() - newer - rows.keys():
            self._delete(connection, open_finding.c.digest.in_(sorted(closed)))
        # In one order, which prevents deadlocks.
        for digest in sorted(rows.keys() - newer):
            connection.execute(insert_or_replace(connection, open_finding), rows[digest])

    @repeatable
    def close_marks(self, connection: Connection) -> None:
        self._delete(connection, open_finding.c.kind == _OF_MARKS)

    @repeatable
    def keep_entities(self, connection: Connection, names: Collection[str]) -> None:
        others = open_finding.c.entity.not_in(sorted(names))
        self._delete(connection, others & (open_finding.c.kind != _OF_MARKS))

    @reading
    def counts(self, connection: Connection, above: int = -1) -> dict[str, int]:
        kind = open_finding.c.kind
        query = select(kind, func.count()).where(*self._own(), open_finding.c.ticket > above).group_by(kind)
        return {str(name): int(number) for name, number in connection.execute(query)}

    @reading
    def read(self, connection: Connection, limit: int | None = None) -> list[Finding]:
        by = (open_finding.c.ticket, open_finding.c.digest)
        query = select(*columns_of(open_finding)).where(*self._own()).order_by(*by).limit(limit)
        return [Finding(*row) for row in connection.execute(query)]

    @reading
    def roots(self, connection: Connection) -> list[Root]:
        columns = (open_finding.c.entity, open_finding.c.source_key)
        here = (*self._own(), open_finding.c.source_key != "")
        rows = connection.execute(select(*columns).where(*here).distinct().order_by(*columns))
        return [(str(entity), str(key)) for entity, key in rows]

    # ── rows ──

    def _own(self) -> tuple[ColumnElement[bool], ...]:
        return (open_finding.c.job == self.job, open_finding.c.table_id == self.table)

    def _row(self, finding: Finding, tickets: Mapping[Root, int]) -> dict[str, Any]:
        root = (finding.entity, finding.source_key)
        parts = [self.table, finding.kind, *root, finding.item_key, finding.attribute]
        text = json.dumps(parts).encode("utf-8", "surrogatepass")
        return {name: getattr(finding, name) for name in NAMES} | {
            "job": self.job,
            "digest": hashlib.blake2b(text, digest_size=16).digest(),
            "table_id": self.table,
            "root": root_digest(self.table, root),
            "ticket": tickets.get(root, _UNREAD),
        }

    def _open_of(
        self, connection: Connection, roots: Sequence[bytes]
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        """Return (digest, (root, ticket)) of each; no other writer changes them until the transaction ends."""
        columns = (open_finding.c.digest, open_finding.c.root, open_finding.c.ticket)
        for chunk in chunks(roots):
            here = (*self._own(), open_finding.c.root.in_(chunk))
            query = select(*columns).where(*here).order_by(open_finding.c.digest).with_for_update()
            for digest, root, ticket in connection.execute(query):
                yield bytes(digest), (bytes(root), int(ticket))

    def _delete(self, connection: Connection, which: ColumnElement[bool]) -> None:
        connection.execute(delete(open_finding).where(*self._own(), which))


# ── All that a journal holds of single rows: counted, and deleted when a row is forgotten ──

_Rows: TypeAlias = tuple[Table, ColumnElement[bool]]


class SqlTraces(OfJobTable):
    """Everything that a journal stores about rows to be forgotten, for one job and one table.

    `kinds` for messages: findings, claims, contests, remembered keys, samples (all of the job: the rows of
    their values are unknown). `item_keys`: as in findings. Every method is one transaction.
    """

    @reading
    def count(
        self, connection: Connection, roots: Sequence[Root], item_keys: Collection[str] = ()
    ) -> dict[str, int]:
        return {
            kind: sum(_count(connection, *rows) for rows in places)
            for kind, places in self._places(roots, item_keys).items()
        }

    @once_only
    def forget(
        self,
        connection: Connection,
        roots: Sequence[Root],
        kinds: Collection[str],
        item_keys: Collection[str] = (),
        *,
        ticket: int,
    ) -> dict[str, int]:
        """Delete records of these kinds; returns their numbers. Keys remembered with a higher ticket stay."""
        places = self._places(roots, item_keys, ticket)
        if self.database.sqlite:
            # Overwrite deleted content in the file; a server does that in its own cleanup.
            connection.exec_driver_sql("PRAGMA secure_delete=ON").fetchall()
        return {kind: sum(_deleted(connection, *rows) for rows in places[kind]) for kind in kinds}

    @reading
    def page_bounds(self, connection: Connection, roots: Sequence[Root]) -> int:
        """Number of pages that begin or end at one of the rows; they stay, because runs need them."""
        count = 0
        for name, key in roots:
            bound = or_(page.c.after_key == key, page.c.upto_key == key)
            count += _count(
                connection, page, and_(page.c.entity == name, bound, page.c.run_id.in_(self._runs()))
            )
        return count

    # ── places ──

    def _places(
        self, roots: Sequence[Root], item_keys: Collection[str], ticket: int | None = None
    ) -> dict[str, list[_Rows]]:
        digests = [root_digest(self.table, root) for root in roots]
        texts = [source_text(*root) for root in roots]
        number = select(claimed_table.c.number).where(claimed_table.c.table_id == self.table)
        of_table = claim.c.table_number == number.scalar_subquery()
        opened = or_(open_finding.c.root.in_(digests), open_finding.c.owner.in_(texts))
        return {
            "findings": [
                *((finding, self._of_runs(self._of_row(root))) for root in roots),
                *((finding, self._of_item(roots, key)) for key in sorted(item_keys)),
                (open_finding, and_(open_finding.c.job == self.job, opened)),
            ],
            "claims": [(claim, and_(of_table, claim.c.owner == text)) for text in texts],
            "contests": [(key_request, key_request.c.root == digest) for digest in digests],
            "remembered keys": [place for root in roots for place in self._remembered(root, ticket)],
            # A sample does not name the rows of its values.
            "samples": [(sample, sample.c.job == self.job)],
        }

    def _runs(self) -> ColumnElement[int]:
        return select(run.c.id).where(run.c.job == self.job).scalar_subquery()

    def _of_runs(self, here: ColumnElement[bool]) -> ColumnElement[bool]:
        return and_(finding.c.run_id.in_(self._runs()), here)

    def _of_row(self, root: Root) -> ColumnElement[bool]:
        name, key = root
        own = and_(finding.c.entity == name, finding.c.source_key == key)
        return or_(own, finding.c.owner == source_text(*root))

    def _of_item(self, roots: Sequence[Root], key: str) -> ColumnElement[bool]:
        of_entity = finding.c.entity.in_([name for name, _ in roots])
        return self._of_runs(and_(of_entity, finding.c.source_key == "", finding.c.item_key == key))

    def _remembered(self, root: Root, ticket: int | None) -> list[_Rows]:
        """The row itself first: a writer that remembers more of it waits there. Then keys whose root is gone."""
        digest = root_digest(self.table, root)
        here = remembered_root.c.root == digest
        if ticket is None:
            return [(remembered_root, here), (remembered_key, remembered_key.c.root == digest)]
        root_stays = select(remembered_root.c.root).where(here).exists()
        return [
            (remembered_root, and_(here, remembered_root.c.ticket <= ticket)),
            (remembered_key, and_(remembered_key.c.root == digest, ~root_stays)),
        ]


def _count(connection: Connection, table: Table, here: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(here)).scalar_one())


def _deleted(connection: Connection, table: Table, here: ColumnElement[bool]) -> int:
    return int(connection.execute(delete(table).where(here)).rowcount)
