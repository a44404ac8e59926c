"""How a backfill writes a page: without conditions, with conditions beside other writers, or a dry run."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from migrator.mapping.heart.items import CompiledEntity, items_for
from migrator.mapping.heart.sizes import item_bytes, measure, write_units
from migrator.model.edges import ObjectStore, QueryPage, Receipt, ScanPage
from migrator.model.errors import RowError
from migrator.model.journal import Finding
from migrator.model.keys import item_key_text, source_named, split_source
from migrator.model.live import KeyRequest, Memory, OpenFindings, OwnStore, Root
from migrator.model.results import Refreshed
from migrator.model.table import BATCH_WRITE_ITEMS, Item, ItemKey, RowTree, TableDesign
from migrator.stages.live.refresh import (
    Refresh,
    RowReader,
    UnwrittenError,
    drawn,
    highest_above,
    refuse_above,
)
from migrator.stages.live.send import send, sorted_out, waves
from migrator.stages.projection import Projection, key_text, project, row_key, stamp

# ── A page of rows written beside other writers: the conditional path of a backfill ──

_SETTLED = ("stored", "newer", "unwritten")
"""Outcomes that another reading would not change."""


@dataclass
class ConcurrentWriter:
    """What one page came to; `refreshed`: of the rows whose keys another had, or of which somebody knew more; `apart`:
    findings of rows whose items were too many to be written together; `unwritten`: keys that the table did not take while
    it took others, with why; `tickets`: with which each row was last read."""

    projected: Projection
    stored: int
    refreshed: Refreshed | None = None
    apart: Sequence[Finding] = ()
    unwritten: Mapping[ItemKey, str] = field(default_factory=dict)
    tickets: Mapping[Root, int] = field(default_factory=dict)


def write_beside(
    refresh: Refresh, entity: CompiledEntity, read: Callable[[], list[RowTree]]
) -> ConcurrentWriter:
    """Reads a page with a ticket of its own and inserts what is not there yet (rules 2, 3 and 7)."""
    ticket = drawn(refresh.tickets, refresh.memory, refresh.control)
    rows = read()
    projected = project(entity, rows, refresh.clock())
    stamp(projected.items, refresh.table, ticket)
    intended = keys_by_root(refresh.table, projected.items)
    again = _known_better(refresh, entity.name, ticket, intended)
    if projected.objects and refresh.objects is not None:
        refresh.objects.put(projected.objects)
    wanted = [item for item in projected.items if _root(refresh, item) not in again]
    sending = sorted_out(wanted, refresh.table, refresh.together)
    outcomes = send(refresh.store, sending, refresh.table, refresh.check, fresh=True)
    refuse_above(highest_above(outcomes, ticket), refresh.tickets, refresh.memory)
    again |= {_root(refresh, one.item) for one in outcomes if one.verdict not in _SETTLED}
    # A row that is refused has no items (rule 4): what it had before is buried by its refresh.
    again |= {(entity.name, one.source_key) for one in projected.refused if one.source_key}
    stored = sum(one.verdict == "stored" for one in outcomes)
    unwritten = {refresh.table.key_of(one.item): one.why for one in outcomes if one.verdict == "unwritten"}
    refreshed = None
    try:
        refreshed = refresh({root: intended[root] for root in again}) if again else None
    except UnwrittenError as error:
        unwritten |= error.items
    tickets = {(entity.name, row_key(entity, row)): ticket for row in rows}
    tickets |= refreshed.tickets if refreshed is not None else {}
    return ConcurrentWriter(projected, stored, refreshed, sending.findings(), unwritten, tickets)


def keys_by_root(table: TableDesign, items: Sequence[Item]) -> dict[Root, set[ItemKey]]:
    """The item keys of each root that items are of."""
    found: dict[Root, set[ItemKey]] = defaultdict(set)
    for item in items:
        found[split_source(str(item[table.source_attribute]))].add(table.key_of(item))
    return found


def _known_better(refresh: Refresh, name: str, ticket: int, intended: dict[Root, set[ItemKey]]) -> set[Root]:
    """Roots of which somebody knew more, and those written together that have to bury something with what they put."""
    live = refresh.entities[name]
    before = refresh.memory.remember(ticket, intended) if live.remembered and intended else {}
    return {
        root
        for root, known in before.items()
        if known.ticket > ticket or (live.together and known.keys - intended[root])
    }


def _root(refresh: Refresh, item: Item) -> Root:
    return split_source(str(item[refresh.table.source_attribute]))


# ── Keys that nothing proves to be one row's alone: each is claimed before its item is written ──


class ClaimBook(Protocol):
    """The part of a journal in which keys are claimed."""

    def claim(self, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]: ...

    def release(self, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None: ...


class Claims:
    """Finds two rows that make one key before one overwrites the other."""

    def __init__(
        self,
        journal: ClaimBook,
        source: RowReader,
        entities: Mapping[str, CompiledEntity],
        unproved: Mapping[str, frozenset[str]],
        table_id: str,
        *,
        memory: Memory | None,
    ) -> None:
        self.journal = journal
        self.source = source
        self.entities = entities
        self.unproved = unproved
        self.table_id = table_id
        self.memory = memory

    def sift(self, entity: CompiledEntity, items: Sequence[Item]) -> tuple[list[Item], list[Finding]]:
        """(the items whose key is theirs, a finding for each other one). The first to claim a key keeps it."""
        types = self.unproved.get(entity.name, frozenset())
        doubtful = [item for item in items if item[entity.table.type_attribute] in types]
        if not doubtful:
            return list(items), []
        owners = self._owners(entity, doubtful)
        kept, findings, wishes = [], [], []
        for item in items:
            owner = owners.get(digest_of(entity, item))
            if owner is None or owner == item[entity.table.source_attribute]:
                kept.append(item)
            else:
                findings.append(_collision(entity, item, owner))
                wishes.append(KeyRequest(entity.table.key_of(item), (entity.name, findings[-1].source_key)))
        if wishes and self.memory is not None:
            # Whoever gives the key up later asks for those who want it.
            self.memory.request_keys(wishes)
        return kept, findings

    def _owners(self, entity: CompiledEntity, items: Sequence[Item]) -> dict[bytes, str]:
        """Who has each key that several rows claim."""
        claims: dict[bytes, str] = {}
        for item in items:
            claims.setdefault(digest_of(entity, item), str(item[entity.table.source_attribute]))
        owners = {**claims, **self.journal.claim(self.table_id, list(claims.items()))}
        stale = [
            digest
            for digest, owner in owners.items()
            if owner != claims[digest] and not self._holds(digest, owner)
        ]
        if stale:
            self.journal.release(self.table_id, [(digest, owners[digest]) for digest in stale])
            again = [(digest, claims[digest]) for digest in stale]
            owners.update(dict(again))
            owners.update(self.journal.claim(self.table_id, again))
        return owners

    def _holds(self, digest: bytes, owner: str) -> bool:
        """Whether the owner's row, as it is now, still makes the key; a row that moved on gives it up."""
        name, key = split_source(owner)
        entity = self.entities.get(name)
        if entity is None:
            return True
        for row in self.source.read_rows(entity.plan, [key]):
            try:
                return any(digest_of(entity, item) == digest for item in items_for(entity, row))
            except RowError:
                return False
        return False


def digest_of(entity: CompiledEntity, item: Item) -> bytes:
    """16 bytes that stand for the item's key."""
    text = item_key_text(entity.table.key_of(item))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _collision(entity: CompiledEntity, item: Item, owner: str) -> Finding:
    name, key = split_source(owner)
    return Finding(
        kind="collision",
        entity=entity.name,
        reason=f"{name} {key} makes the same key and was first",
        source_key=split_source(str(item[entity.table.source_attribute]))[1],
        item_key=key_text(entity.table, item),
        item_type=entity.table.type_of(item),
        owner=owner,
    )


# ──
# The two ways in which a backfill writes a page: alone (fast), or beside other writers (every write has a
# condition).

Read: TypeAlias = Callable[[], list[RowTree]]

NO_TICKET = 0
"""The ticket of items read while nobody else writes: any ticket drawn later is higher."""


@dataclass(frozen=True)
class Copied:
    """What became of a page. `written`: the items that are in the table now, as far as this path knows."""

    projected: Projection
    receipt: Receipt
    findings: list[Finding]
    written: Sequence[Item] = field(default=(), repr=False)


class PagePath(Protocol):
    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        """Reads a page and writes its items; called from many threads."""


class Puts(Protocol):
    """What a path that writes alone needs of a table; an ItemStore is one."""

    def put(self, items: Sequence[Item]) -> Receipt: ...


@dataclass(frozen=True)
class PutsAmongOthers:
    """Puts over nothing of others': the table holds items that are not of this job."""

    store: OwnStore
    table: TableDesign

    def put(self, items: Sequence[Item]) -> Receipt:
        outcomes = [one for wave in waves(items, self.table) for one in self.store.write_own(wave)]
        stored = [one.item for one in outcomes if one.verdict == "stored"]
        left = {
            verdict: {self.table.key_of(one.item): one for one in outcomes if one.verdict == verdict}
            for verdict in ("unwritten", "taken")
        }
        sizes = [item_bytes(item) for item in stored]
        return Receipt(
            len(stored),
            sum(sizes),
            float(sum(map(write_units, sizes))),
            len(outcomes),
            {key: one.why for key, one in left["unwritten"].items()},
            {key: one.owner for key, one in left["taken"].items()},
        )


@dataclass(frozen=True)
class FastPath:
    """Writes of who writes alone. Safe while nobody else writes: what changes meanwhile has left a mark.

    `store`: unconditional batches where the table is this job's, else PutsAmongOthers. `check` stands before each write and
    raises when the run must stop. `remembered`: entities whose intended keys are kept in `memory` (rule 7); none where no
    capture is installed.
    """

    store: Puts
    claims: Claims
    clock: Callable[[], float]
    check: Callable[[], None]
    objects: ObjectStore | None
    memory: Memory | None
    remembered: frozenset[str]

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        projected = project(entity, read(), self.clock())
        items, collisions = self.claims.sift(entity, projected.items)
        stamp(items, entity.table, NO_TICKET)
        self.check()
        if self.memory is not None and entity.name in self.remembered:
            self.memory.remember(NO_TICKET, keys_by_root(entity.table, items))
        if projected.objects and self.objects is not None:
            # Before the items: an item must never point to what is not there.
            self.objects.put(projected.objects)
        receipt = self.store.put(items) if items else Receipt()
        theirs = [item for item in items if entity.table.key_of(item) in receipt.taken]
        written = (
            [item for item in items if entity.table.key_of(item) not in receipt.taken] if theirs else items
        )
        taken = [_taken(entity, item, receipt) for item in theirs]
        return Copied(projected, receipt, [*projected.refused, *collisions, *taken], written)


@dataclass(frozen=True)
class ConditionalPath:
    """Inserts and conditional puts: relays and strict services may write the same items."""

    refresh: Refresh
    open_findings: OpenFindings

    def copy(self, entity: CompiledEntity, read: Read) -> Copied:
        beside = write_beside(self.refresh, entity, read)
        unwritten = beside.unwritten
        items = [item for item in beside.projected.items if entity.table.key_of(item) not in unwritten]
        sizes = [item_bytes(item) for item in items]
        units = float(sum(map(write_units, sizes)))
        receipt = Receipt(len(items), sum(sizes), units, len(items), unwritten)
        findings = [*beside.projected.refused, *beside.apart]
        if (last := beside.refreshed) is not None:
            findings = [one for one in findings if (one.entity, one.source_key) not in last.tickets]
            findings += last.findings
        self._close(beside.tickets, findings, unwritten)
        return Copied(beside.projected, receipt, findings, items)

    def _close(
        self, tickets: Mapping[Root, int], findings: Sequence[Finding], unwritten: Collection[ItemKey]
    ) -> None:
        """Closes what relays found of rows that are fine now. What is found here is the run's."""
        if not unwritten:
            found = {(one.entity, one.source_key) for one in findings}
            self.open_findings.settle({root: tickets[root] for root in tickets.keys() - found}, [])


def _taken(entity: CompiledEntity, item: Item, receipt: Receipt) -> Finding:
    owner = source_named(receipt.taken[entity.table.key_of(item)])
    whose = f"{owner} has" if owner else "an item that is not migrator's has"
    return Finding(
        kind="collision",
        entity=entity.name,
        reason=f"{whose} the same key, and stays",
        source_key=split_source(str(item[entity.table.source_attribute]))[1],
        item_key=key_text(entity.table, item),
        item_type=entity.table.type_of(item),
        owner=owner,
    )


# ── A store that stores nothing: it measures what a write would take ──


def sends_nothing() -> None:
    """The check of a dry run: it sends nothing that could come too late."""


class DryStore:
    """An ItemStore for --dry-run; its write units are those of a table with nothing in it, indexes included."""

    def __init__(self, design: TableDesign) -> None:
        self.design = design

    def put(self, items: Sequence[Item]) -> Receipt:
        sizes = [item_bytes(item) for item in items]
        units = measure(0, items, self.design).write_units
        return Receipt(len(items), sum(sizes), float(units), -(-len(items) // BATCH_WRITE_ITEMS))

    def delete(self, keys: Sequence[ItemKey]) -> None:
        return None

    def delete_own(self, items: Sequence[Item]) -> int:
        return 0

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        return {}

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage]:
        yield ScanPage([], None)

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        return QueryPage([])

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        return {}

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        return QueryPage([])

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        return QueryPage([])
