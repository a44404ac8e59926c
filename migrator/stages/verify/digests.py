"""Stored items and what rows become, compared as JSON by digests: attributes are compared only where digests find no equal.

One scan leaves 64 bits of each stored item. An item that a row becomes is equal to a stored one where its digest is among
them; every other one is read by its key and compared attribute by attribute. Stored items whose digest no row has are
scanned once more and traced back to their rows.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import cached_property
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, runtime_checkable

import orjson

from migrator.mapping.heart.encoder import Encoder, encode_page
from migrator.mapping.heart.encoder_values import base64_text
from migrator.mapping.heart.items import CompiledEntity, index_keys, row_key
from migrator.mapping.heart.wire import decode, decode_item, encode, encode_item
from migrator.model.edges import Found, RawPage, ScannedPage, WiredItem
from migrator.model.errors import Interrupted, RowError
from migrator.model.facts import kept_columns
from migrator.model.journal import Finding
from migrator.model.mapping import ItemDesign
from migrator.model.table import OWN_TYPES, Item, ItemKey, RowTree
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.verify.scan import EXACT, ScanTotals, TableScan, summed

DIGESTS_AT_MOST = 2**24
"""Nine bytes are kept of each: 150 MB."""
_PARTS = 256


@runtime_checkable
class EncodedScans(Protocol):
    """A store that also gives items as they came. `takes_encoded`: whether they come by our own exchange."""

    @property
    def takes_encoded(self) -> bool: ...

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScannedPage[Found]]: ...


# ── Digests ──
#
# An item's JSON has its attributes in the order in which items_for() writes them. DynamoDB keeps none, so a stored item is
# written anew in that order; where maps are in it, all names are sorted on both sides.

_MAP = b'"M":{'


def digest_of_text(text: bytes) -> int:
    """64 bits of an item's JSON.

    Two items that differ have the same by a chance of 2^-64: it is SipHash with a key that each process draws for itself.
    Source: PEP 456.
    """
    return hash(_sorted(orjson.loads(text)) if _MAP in text else text)


def _sorted(item: WiredItem) -> bytes:
    return orjson.dumps(item, default=base64_text, option=orjson.OPT_SORT_KEYS)


class Canonical:
    """Digests of stored items of one type, as rows make them, whatever their ticket and revision."""

    def __init__(self, entity: CompiledEntity, design: ItemDesign) -> None:
        table, plan = entity.table, entity.plan
        written = {**plan.entity.attributes, **design.attributes}
        ttl = [table.ttl] if design.expiry is not None and table.ttl else []
        self._order = [
            *(attribute.name for attribute in table.key),
            *(table.type_attribute, table.revision_attribute, table.source_attribute),
            *(attribute.name for entry in design.entries for attribute in index_keys(table, entry)),
            *(name for name in kept_columns(plan, design) if name not in written),
            *written,
            *ttl,
            table.ticket_attribute,
        ]
        self._fixed = {
            table.revision_attribute: encode(entity.mapping.revision),
            table.ticket_attribute: encode(NO_TICKET),
        }
        self._ordered: dict[tuple[str, ...], tuple[tuple[str, ...], Callable[[WiredItem], Any]]] = {}
        self.summed = tuple(summed(plan, design))
        """The attributes that plain SQL adds up too."""

    def digest(self, item: WiredItem) -> int:
        """Of one with attributes that no row makes, a digest that no row has."""
        item |= self._fixed
        names = tuple(item)
        ordered = self._ordered.get(names) or self._order_of(names)
        text = orjson.dumps(dict(zip(ordered[0], ordered[1](item), strict=True)), default=base64_text)
        return hash(_sorted(item) if _MAP in text else text)

    def _order_of(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[WiredItem], Any]]:
        ordered = tuple(name for name in self._order if name in names)
        ordered += tuple(sorted(set(names) - set(ordered)))
        if len(self._ordered) < _ORDERS_AT_MOST:
            self._ordered[names] = (ordered, itemgetter(*ordered))
        return ordered, itemgetter(*ordered)


_ORDERS_AT_MOST = 10_000


class Digests:
    """Digests of stored items, and which of them an item has that a row becomes. Safe to share between threads."""

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._matched: list[bytearray] = []

    def add(self, digests: Iterable[int]) -> None:
        parts = self._parts
        for digest in digests:
            parts[digest % _PARTS].append(digest)

    def count(self) -> int:
        return sum(map(len, self._parts))

    def sort(self) -> None:
        """Between the last `add` and the first question."""
        self._parts = [array("q", sorted(part)) for part in self._parts]
        self._matched = [bytearray(len(part)) for part in self._parts]

    def match(self, digest: int) -> bool:
        """Whether a stored item has the digest; it is matched from now on."""
        place = self._place(digest)
        if place is None:
            return False
        self._matched[digest % _PARTS][place] = 1
        return True

    def is_matched(self, digest: int) -> bool:
        place = self._place(digest)
        return place is not None and self._matched[digest % _PARTS][place] == 1

    def are_all_matched(self) -> bool:
        return not any(part.count(0) for part in self._matched)

    def _place(self, digest: int) -> int | None:
        part = self._parts[digest % _PARTS]
        place = bisect_left(part, digest)
        return place if place < len(part) and part[place] == digest else None


# ── The scan ──

_Kind: TypeAlias = tuple[str | None, str]
"""A stored item's entity (None where no text names one) and type."""
_Seen: TypeAlias = tuple[_Kind, Sequence[str | None], Found]
"""Of a stored item its kind, the numbers that are added up, and what else is wanted of it."""
_NONE: dict[str, Any] = {}


@dataclass(frozen=True)
class DigestScan(TableScan):
    """The same over items in DynamoDB's form; only those that `digests` does not match are traced."""

    store: EncodedScans = field(kw_only=True)
    digests: Digests = field(kw_only=True)

    def look(self, number: int) -> ScanTotals:
        """The totals of one segment, whose digests are kept; nothing is traced. It ends early where they are too many."""
        totals = ScanTotals()
        for seen, _ in self._scanned(number, None, self.digest):
            totals = totals + self._totals(seen)
            self.digests.add(digest for _, _, digest in seen)
            if self.digests.count() > DIGESTS_AT_MOST:
                break
        return totals

    def digest(self, item: WiredItem) -> int:
        """Of an item that no row makes, a digest that no row has."""
        canonical = self._canonical.get(self._kind(item))
        return hash(orjson.dumps(item)) if canonical is None else canonical.digest(item)

    def _pages(
        self, number: int, start: ItemKey | None
    ) -> Iterator[tuple[ScanTotals, Sequence[Item], ItemKey | None]]:
        for seen, next_start in self._scanned(number, start, self._left):
            yield self._totals(seen), [item for _, _, item in seen if item is not None], next_start

    def _left(self, item: WiredItem) -> Item | None:
        return None if self.digests.is_matched(self.digest(item)) else decode_item(item)

    def _scanned(
        self, number: int, start: ItemKey | None, wanted: Callable[[WiredItem], Found]
    ) -> Iterator[tuple[list[_Seen[Found]], ItemKey | None]]:
        """Of each page what was seen of its items, but for those that verify leaves alone, and where the next one starts."""

        def see(item: WiredItem) -> _Seen[Found] | None:
            kind = self._kind(item)
            canonical = self._canonical.get(kind)
            if canonical is None and self._is_left_alone_kind(*kind):
                return None
            names = () if canonical is None else canonical.summed
            return kind, [item.get(name, _NONE).get("N") for name in names], wanted(item)

        for page in self.store.scan_encoded(number, self.walk.segments, see, start):
            if self.walk.stop.is_set():
                raise Interrupted(self.walk.stopped)
            yield [seen for seen in page.found if seen is not None], page.next_start

    def _kind(self, item: WiredItem) -> _Kind:
        owner = item.get(self._names[0], _NONE).get("S")
        type_ = item.get(self._names[1], _NONE)
        entity = None if owner is None else owner.partition(":")[0]
        return entity, type_["S"] if "S" in type_ else str(decode(type_)) if type_ else ""

    def _is_left_alone_kind(self, entity: str | None, type_: str) -> bool:
        is_direct = type_ in self.direct.types if entity is None else entity in self.direct.entities
        return type_ in OWN_TYPES or is_direct

    def _totals(self, items: Sequence[_Seen[Any]]) -> ScanTotals:
        by_kind: dict[_Kind, list[Sequence[str | None]]] = defaultdict(list)
        for kind, numbers, _ in items:
            by_kind[kind].append(numbers)
        sums: dict[tuple[str, str, str], Decimal] = {}
        for kind, rows in by_kind.items():
            names = self._canonical[kind].summed if kind in self._canonical else ()
            for name, column in zip(names, zip(*rows, strict=True), strict=False):
                if texts := [text for text in column if text is not None]:
                    sums[kind[0] or "", kind[1], name] = _sum(texts)
        counts = Counter({(entity or "", type_): len(rows) for (entity, type_), rows in by_kind.items()})
        return ScanTotals(len(items), counts, sums)

    @cached_property
    def _names(self) -> tuple[str, str]:
        return self.table.source_attribute, self.table.type_attribute

    @cached_property
    def _canonical(self) -> dict[_Kind, Canonical]:
        """By kind of those items that the entities' rows make."""
        return {
            (name, design.type): Canonical(entity, design)
            for name, entity in self.entities.items()
            for design in entity.plan.entity.items
        }


def _sum(numbers: Iterable[str]) -> Decimal:
    with localcontext(EXACT):
        return sum(map(Decimal, numbers), Decimal(0))


# ── Rows ──


@dataclass(frozen=True)
class Look:
    """What one scan of the table left: digests, and totals by segment. `encoders`: by entity, where there is one."""

    scan: DigestScan
    totals: Mapping[int, ScanTotals]
    encoders: Mapping[str, Encoder]

    def has(self, item: Item) -> bool:
        """Whether a stored item is equal to this one, which is matched then."""
        try:
            digest = self.scan.digest(encode_item(item))
        except (RowError, TypeError):
            return False  # the comparison by attributes says what is wrong with it
        return self.scan.digests.match(digest)


_ROWS_A_CHECK = 256
"""One in so many rows goes by items_for() all the same: what a generated function did wrong, it did wrong on both sides."""


@dataclass(frozen=True)
class Matched:
    """What a page's rows become. `left`: rows with an item that no stored one is equal to, and some for items_for()."""

    items: int
    expired: int
    refused: list[Finding]
    left: list[RowTree]


def match_rows(encoder: Encoder, rows: RawPage, digests: Digests, now_s: float) -> Matched:
    """Items whose TTL has passed are matched too, and none of them is missed."""
    entity, source = encoder.entity, encoder.entity.table.source_attribute
    page = encode_page(encoder, rows, NO_TICKET, -math.inf)
    expired, keys = 0, set()
    for _, text, _, expiry in page.items:
        has_expired = expiry is not None and expiry <= now_s
        expired += has_expired
        if not digests.match(digest_of_text(text)) and not has_expired:
            keys.add(orjson.loads(text)[source]["S"].partition(":")[2])
    whole = map(rows.whole, rows.rows) if keys else ()
    left = [row for row in whole if row_key(entity, row) in keys]
    some = map(rows.whole, rows.rows[::_ROWS_A_CHECK])
    left += [row for row in some if row_key(entity, row) not in keys]
    return Matched(len(page.items) - expired, expired, page.refused, left)
