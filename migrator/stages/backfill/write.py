"""How a backfill writes a page: unconditionally, or conditionally while other writers run."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from migrator.mapping.difference.difference import EntityDifference
from migrator.mapping.items.encoder import (
    Encoder,
    PutTexts,
    compile_encoder,
    encode_page,
    encode_puts,
    sizes_of,
)
from migrator.mapping.items.items import CompiledEntity, items_for, row_key
from migrator.mapping.items.wire import units_of_writes
from migrator.mapping.model.edges import ObjectStore, RawPage, Receipt, RootFinder, Rows
from migrator.mapping.model.journal import Finding, Page
from migrator.mapping.model.live import KeyRequest, Memory, OpenFindings, Outcome, OwnStore, Root
from migrator.mapping.model.results import Refreshed
from migrator.mapping.model.table import EncodedItem, ItemKey, item_key_text, source_named, split_source
from migrator.runtime.errors import RowError
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.send import LiveEntity, TransactionGroups, UnwrittenError, send, sorted_out, waves

RootKeys = Mapping[Root, set[ItemKey]]


def none_had() -> RootKeys:
    """For rows without keys in an older mapping."""
    return {}


class Only(Struct, frozen=True):
    """`types`: of the items to send; None for all.
    `is_new`: their keys are expected to be free.
    `had`: reads the page's keys by an older mapping; those no longer made become tombstones.
    """

    types: frozenset[str] | None
    is_new: bool
    had: Callable[[], RootKeys]

    def of(self, items: Sequence[EncodedItem]) -> Sequence[EncodedItem]:
        return items if self.types is None else [item for item in items if item.type in self.types]


WHOLE = Only(None, is_new=True, had=none_had)
"""All of it: every backfill but one that brings a table to another mapping."""


# ── changes of an entity by a new revision of a mapping ──


def only_changed(
    changed: EntityDifference,
    together: frozenset[str],
    former: CompiledEntity | None,
    source: Rows,
    *,
    is_first: bool,
) -> Callable[[Page], Only]:
    """Return the part to write for each page of the entity.

    `former`: the entity in the older mapping; None for a new one. If it was renamed, tombstones replace its
      old items before the new ones are put.
    `together`: item types written in one transaction.
    `is_first`: the job never used the newer mapping. If it did, it left tombstones, so that inserts would fail.
    """
    effects = {difference.type: difference.effect for difference in changed.types}
    types = frozenset(type_ for type_, effect in effects.items() if effect != "gone")
    is_renamed = former is not None and former.name != changed.name
    is_new = is_first and not is_renamed and all(effects[type_] in ("new", "moved") for type_ in types)
    types |= together if types & together else frozenset()
    if former is None or not (is_renamed or may_give_up(changed)):
        return lambda page: Only(types, is_new, none_had)
    encoder = compile_encoder(former, source.raw_places(former.plan))
    return lambda page: Only(types, is_new, partial(former_keys, encoder, source, page))


def may_give_up(changed: EntityDifference) -> bool:
    types = changed.types
    return bool(changed.rows) or any(type_.effect in ("gone", "moved") or type_.some for type_ in types)


def former_keys(former: Encoder, source: Rows, page: Page) -> RootKeys:
    """Return the older mapping's keys of a page's rows; none for a refused row."""
    rows = source.read_raw(former.entity.plan, former.raw, page.after, page.upto)
    encoded = encode_page(former, rows, 0, 0.0)
    return keys_by_root([*encoded.items, *encoded.expired])


# ── keys by the root that each is of ──


def keys_by_root(items: Sequence[EncodedItem]) -> dict[Root, set[ItemKey]]:
    keys: dict[Root, set[ItemKey]] = defaultdict(set)
    for item in items:
        keys[item.root].add(item.key)
    return keys


def stale_keys(had: RootKeys, *now: RootKeys) -> dict[Root, list[ItemKey]]:
    left = {root: keys.difference(*(side.get(root, ()) for side in now)) for root, keys in had.items()}
    return {root: sorted(keys, key=repr) for root, keys in left.items() if keys}


def united(*sides: RootKeys) -> dict[Root, set[ItemKey]]:
    roots = dict.fromkeys(root for side in sides for root in side)
    return {root: set[ItemKey]().union(*(side.get(root, ()) for side in sides)) for root in roots}


Made = TypeVar("Made")

# ── A page of rows written while other writers run: the conditional path of a backfill ──

_BEFORE_TICKETS = 0
"""Rows are read without a ticket here. Who draws them, and may withdraw a request, begins when that has ended."""
_SETTLED = ("stored", "newer", "unwritten")
"""Outcomes that another reading would not change."""


@dataclass
class Copied:
    """Outcome of one page."""

    rows: int
    expired: int
    """How many items were left out because their TTL has passed."""
    receipt: Receipt
    findings: Sequence[Finding]
    """Of refused rows, and of rows with too many items for one transaction."""
    written: Sequence[EncodedItem] = field(default=(), repr=False)
    """The items now in the table."""
    tickets: Callable[[], Mapping[Root, int]] = field(default=dict, repr=False, compare=False)
    """Reads the ticket of each row's last read."""


def write_concurrently(refresh: Refresh, name: str, read: RawRead, only: Only) -> Copied:
    """Read a page with its own ticket, and insert missing items (rules 2, 3 and 7)."""
    live = refresh.entities[name]
    entity, encoder = live.compiled, live.encoder
    ticket = refresh.draw()
    # Before the rows: a key that they do not have then must not be given up because of an older read.
    had = only.had()
    rows = read(encoder.raw)
    as_texts = only is WHOLE and not live.remembered and refresh.store.sends_texts
    page = (encode_puts if as_texts else encode_page)(encoder, rows, ticket, refresh.clock())
    again = _roots_to_refresh(refresh, live, ticket, page.items) | roots_refused(entity, page.refused)
    stale = stale_keys(had, keys_by_root(page.items), keys_by_root(page.expired)) if had else {}
    if page.objects and refresh.objects is not None:
        refresh.objects.put(page.objects)
    sent, fresh = only.of(page.items), set[str]()
    if isinstance(sent, PutTexts):
        # Of no row in `again`: those have no items.
        sending = TransactionGroups(texts=sent)
    else:
        tombstones = [refresh.tombstone(root, key, ticket) for root, keys in stale.items() for key in keys]
        wanted = [item for item in (*tombstones, *sent) if not again or item.root not in again]
        sending = sorted_out(wanted, refresh.together)
        fresh = {item.source for item in sent} if only.is_new else fresh
    outcomes = send(refresh.store, sending, refresh.check, fresh=fresh)
    last, unwritten = follow(refresh, ticket, outcomes, again, lambda: united(keys_by_root(page.items), had))
    findings = [*page.refused, *sending.findings()]
    last_tickets = {} if last is None else last.tickets
    if last is not None:
        findings = [one for one in findings if (one.entity, one.source_key) not in last_tickets]
        findings += last.findings

    def tickets() -> Mapping[Root, int]:
        return {(entity.name, row_key(entity, row)): ticket for row in rows.rows} | last_tickets

    kept = [item for item in sent if item.key not in unwritten] if unwritten else sent
    sizes = sizes_of(kept)
    receipt = Receipt(len(kept), sum(sizes), float(units_of_writes(sizes)), len(kept), unwritten)
    return Copied(len(rows.rows), len(page.expired), receipt, findings, kept, tickets)


def follow(
    refresh: Refresh,
    ticket: int,
    outcomes: Sequence[Outcome],
    again: Collection[Root],
    intended: Callable[[], Mapping[Root, set[ItemKey]]],
) -> tuple[Refreshed | None, dict[ItemKey, str]]:
    """Read again the rows of unsettled outcomes and of `again`.

    Returns their result, if any, and keys that the table did not take while it took others, with why.
    `intended`: keys of the page's items by root; called only if a row is read again.
    """
    refresh.refuse_newer(outcomes, ticket)
    left = (outcome.item.root for outcome in outcomes if outcome.verdict not in _SETTLED)
    # A tombstone of an entity's former name that is refused has met what another writer put there by the new one.
    roots = {*again, *(root for root in left if root[0] in refresh.entities)}
    unwritten = {outcome.item.key: outcome.why for outcome in outcomes if outcome.verdict == "unwritten"}
    if not roots:
        return None, unwritten
    keys = intended()
    try:
        return refresh({root: keys.get(root, set()) for root in roots}), unwritten
    except UnwrittenError as error:
        return None, unwritten | error.items


def roots_refused(entity: CompiledEntity, refused: Sequence[Finding]) -> set[Root]:
    """Return the refused rows. They have no items (rule 4), so their next read leaves tombstones."""
    return {(entity.name, finding.source_key) for finding in refused if finding.source_key}


def _roots_to_refresh(
    refresh: Refresh, live: LiveEntity, ticket: int, items: Sequence[EncodedItem]
) -> set[Root]:
    if not live.remembered or not items:
        return set()
    intended = keys_by_root(items)
    before = refresh.memory.remember(ticket, intended)
    return {
        root
        for root, remembered in before.items()
        if remembered.ticket > ticket or (live.together and remembered.keys - intended[root])
    }


# ── Keys that nothing proves to be one row's alone: each is claimed before its item is written ──


class ClaimBook(Protocol):
    def claim(self, table_id: str, claims: Sequence[tuple[bytes, str]]) -> dict[bytes, str]: ...

    def release(self, table_id: str, given_up: Sequence[tuple[bytes, str]]) -> None: ...


class Claims:
    """Finds rows that make the same key before one overwrites the other."""

    def __init__(
        self,
        journal: ClaimBook,
        source: RootFinder,
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

    def types_of(self, entity: CompiledEntity) -> frozenset[str]:
        return self.unproved.get(entity.name, frozenset())

    def sift(
        self, entity: CompiledEntity, items: Sequence[EncodedItem]
    ) -> tuple[Sequence[EncodedItem], list[Finding]]:
        """Return (items that own their key, a finding for each other item). The first claim wins."""
        types = self.types_of(entity)
        claiming = [item for item in items if item.type in types] if types else []
        if not claiming:
            return items, []
        owners = self._owners(claiming)
        kept, findings, requests = [], [], []
        for item in items:
            owner = owners.get(key_digest(item.key))
            if owner is None or owner == item.source:
                kept.append(item)
            else:
                name, key = split_source(owner)
                findings.append(_collision(item, owner, f"{name} {key} makes the same key and was first"))
                requests.append(KeyRequest(item.key, item.root))
        if requests and self.memory is not None:
            # A row that gives the key up later looks for the requests.
            self.memory.request_keys(requests, _BEFORE_TICKETS)
        return kept, findings

    def _owners(self, items: Sequence[EncodedItem]) -> dict[bytes, str]:
        claims: dict[bytes, str] = {}
        for item in items:
            claims.setdefault(key_digest(item.key), item.source)
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
        """Return whether the owner's current row still makes the key; otherwise it gives up the key."""
        name, key = split_source(owner)
        entity = self.entities.get(name)
        if entity is None:
            return True
        for row in self.source.read_rows(entity.plan, [key]):
            try:
                items = items_for(entity, row)
                return any(key_digest(entity.table.key_of(item)) == digest for item in items)
            except RowError:
                return False
        return False


def key_digest(key: ItemKey) -> bytes:
    return hashlib.blake2b(item_key_text(key).encode(), digest_size=16).digest()


def _collision(item: EncodedItem, owner: str, reason: str) -> Finding:
    entity, source_key = item.root
    return Finding(
        kind="collision",
        entity=entity,
        reason=reason,
        source_key=source_key,
        item_key=item_key_text(item.key),
        item_type=item.type,
        owner=owner,
    )


# ──
# The two ways in which a backfill writes a page: alone (fast), or while other writers run (every write has a
# condition).


RawRead: TypeAlias = Callable[[frozenset[int]], RawPage]
"""Reads a page, with the server's own text at the places given."""

NO_TICKET = 0
"""The ticket of items read while no other writer is at work: any ticket drawn later is higher."""


class PagePath(Protocol):
    def copy(self, entity: CompiledEntity, page: Page, read: RawRead) -> Copied:
        """Read a page and write its items. Called from many threads."""


class Puts(Protocol):
    @property
    def sends_texts(self) -> bool:
        """Whether PutTexts are sent as they are, and no item of them is read."""

    def put(self, items: Sequence[EncodedItem]) -> Receipt: ...


class PutsAmongOthers(Struct, frozen=True):
    """Puts that never overwrite another job's items in a shared table."""

    store: OwnStore

    @property
    def sends_texts(self) -> bool:
        return self.store.sends_texts

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        distinct = [items] if isinstance(items, PutTexts) else waves(items)
        outcomes = [outcome for wave in distinct for outcome in self.store.write_own(wave)]
        left = [outcome.item.size_bytes for outcome in outcomes if outcome.verdict != "stored"]
        sizes = sizes_of(items)
        return Receipt(
            len(sizes) - len(left),
            sum(sizes) - sum(left),
            float(units_of_writes(sizes) - units_of_writes(left)),
            len(sizes),
            {outcome.item.key: outcome.why for outcome in outcomes if outcome.verdict == "unwritten"},
            {outcome.item.key: outcome.owner for outcome in outcomes if outcome.verdict == "owned_by_other"},
        )


class FastPath(Struct, frozen=True):
    """Unconditional writes of a single writer. Changes in the meantime leave marks.

    `store`: unconditional batches if the table belongs to this job, else PutsAmongOthers.
    `check`: called before each write; raises when the run must stop.
    `remembered`: entities whose intended keys are kept in `memory` (rule 7); none without capture.
    """

    store: Puts
    claims: Claims
    encoders: Mapping[str, Encoder]
    clock: Callable[[], float]
    check: Callable[[], None]
    objects: ObjectStore | None
    memory: Memory | None
    remembered: frozenset[str]

    def copy(self, entity: CompiledEntity, _: Page, read: RawRead) -> Copied:
        encoder = self.encoders[entity.name]
        is_remembered = self.memory is not None and entity.name in self.remembered
        as_texts = self.store.sends_texts and not is_remembered
        encoded = encode_puts if as_texts and not self.claims.types_of(entity) else encode_page
        page = encoded(encoder, read(encoder.raw), NO_TICKET, self.clock())
        items, collisions = self.claims.sift(entity, page.items)
        self.check()
        if self.memory is not None and is_remembered:
            self.memory.remember(NO_TICKET, keys_by_root(items))
        if page.objects and self.objects is not None:
            # Before the items: an item must never point to a missing object.
            self.objects.put(page.objects)
        receipt = self.store.put(items) if items else Receipt()
        findings = [*page.refused, *collisions]
        if others := receipt.owned_by_other:
            findings += [_owned_by_other(item, receipt) for item in items if item.key in others]
        written = [item for item in items if item.key not in others] if others else items
        return Copied(page.rows, len(page.expired), receipt, findings, written)


class ConditionalPath(Struct, frozen=True):
    """Conditional writes, while relays and strict services may write the same items.

    `only`: by entity, the part to write; other entities are written whole.
    """

    refresh: Refresh
    open_findings: OpenFindings
    only: Mapping[str, Callable[[Page], Only]]

    def copy(self, entity: CompiledEntity, page: Page, read: RawRead) -> Copied:
        only = self.only.get(entity.name)
        part = WHOLE if only is None else only(page)
        copied = write_concurrently(self.refresh, entity.name, read, part)
        if not copied.receipt.unwritten and self.open_findings.counts():
            # Relays' findings on rows that are fine now. Findings of this page belong to the run.
            with_findings = {(finding.entity, finding.source_key) for finding in copied.findings}
            tickets = copied.tickets()
            self.open_findings.settle({root: tickets[root] for root in tickets.keys() - with_findings}, [])
        return copied


def _owned_by_other(item: EncodedItem, receipt: Receipt) -> Finding:
    owner = source_named(receipt.owned_by_other[item.key])
    whose = f"{owner} has" if owner else "an item that is not migrator's has"
    return _collision(item, owner, f"{whose} the same key, and stays")


def encoders_of(
    source: RootFinder,
    entities: Iterable[CompiledEntity],
    compiled: Callable[[CompiledEntity, frozenset[int]], Made],
) -> dict[str, Made]:
    return {entity.name: compiled(entity, source.raw_places(entity.plan)) for entity in entities}
