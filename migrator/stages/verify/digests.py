"""Stored items compared with the items of rows, by digest first, then by attribute.

One scan leaves 64 bits per stored item. An item of a row is equal if its digest is among them; any other is
read by its key and compared by attribute. Stored items whose digest no row has are scanned again and traced
to their rows.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from migrator.mapping.items.encoder import Encoder, PutTexts, compile_encoder, encode_puts, items_in
from migrator.mapping.items.items import row_key
from migrator.mapping.items.native import _native
from migrator.mapping.items.wire import base64_text, decode, decode_item, encode, encode_item
from migrator.mapping.model.edges import Found, ItemStore, RawPage, WiredItem
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.table import OWN_TYPES, EncodedItem, Item, ItemKey, RowTree, TableDesign
from migrator.runtime.errors import Interrupted, RowError
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.verify.scan import EXACT, ScanTotals, TableScan, exact_sum, summed

# ── Digests of items ──

KEY_BYTES = 16
_SETS = frozenset({"SS", "NS", "BS"})


class Digester:
    """64 bits of an item, regardless of its ticket and revision, and of the order of its names and of a set's members.

    Two different items collide by a chance of 2^-64. Processes with the same key and executor make the same digests.
    """

    def __init__(self, table: TableDesign, key: bytes) -> None:
        self.key = key
        self._left_out = table.ticket_attribute, table.revision_attribute
        self.native = _native.Digester(key, *map(orjson.dumps, self._left_out)) if _native else None

    def of(self, item: WiredItem) -> int:
        if self.native is not None:
            return self.native.item(orjson.dumps(item, default=base64_text))
        kept = {name: _in_order(wired) for name, wired in item.items() if name not in self._left_out}
        text = orjson.dumps(kept, default=base64_text, option=orjson.OPT_SORT_KEYS)
        return int.from_bytes(
            hashlib.blake2b(text, digest_size=8, key=self.key).digest(), "little", signed=True
        )

    def of_items(self, items: Sequence[EncodedItem]) -> Sequence[int]:
        if self.native is None:
            return [self.of(orjson.loads(item.json)) for item in items]
        if isinstance(items, PutTexts):
            return array("q", items.digests(self.native))
        return [self.native.item(item.json) for item in items]


def _in_order(wired: Any) -> Any:
    if not _SETS.isdisjoint(wired):
        return encode(decode(wired))
    if "L" in wired:
        return {"L": [_in_order(inner) for inner in wired["L"]]}
    if "M" in wired:
        return {"M": {name: _in_order(inner) for name, inner in wired["M"].items()}}
    return wired


DIGESTS_AT_MOST = 2**24
"""Nine bytes are kept of each: 150 MB."""
_PARTS = 256
_PIECE = 2**19
Places: TypeAlias = "array[int]"
"""Positions among the sorted digests, four bytes each; the same in all processes."""


class Digests:
    """Digests of stored items, and which of them rows match. Thread-safe."""

    def __init__(self) -> None:
        self._parts = [array("q") for _ in range(_PARTS)]
        self._begins: list[int] = []
        self._matched = bytearray()

    def add(self, digests: Iterable[int]) -> None:
        parts = self._parts
        for digest in digests:
            parts[digest % _PARTS].append(digest)

    def count(self) -> int:
        return sum(map(len, self._parts))

    def sort(self) -> None:
        """Call after the last `add` and before the first lookup."""
        self._parts = [array("q", sorted(part)) for part in self._parts]
        self._begins = [0, *accumulate(map(len, self._parts))]
        self._matched = bytearray(self.count())

    def is_matched(self, digest: int) -> bool:
        part = self._parts[digest % _PARTS]
        place = bisect_left(part, digest)
        is_there = place < len(part) and part[place] == digest
        return is_there and self._matched[self._begins[digest % _PARTS] + place] == 1

    def match_all(self, digests: Sequence[int], places: Places) -> list[int]:
        """Numbers of those that no stored item has; the others are now matched, and added to `places`."""
        parts, begins, matched, missing = self._parts, self._begins, self._matched, []
        for number, digest in enumerate(digests):
            which = digest % _PARTS
            part = parts[which]
            place = bisect_left(part, digest)
            if place < len(part) and part[place] == digest:
                place += begins[which]
                matched[place] = 1
                places.append(place)
            else:
                missing.append(number)
        return missing

    def match_places(self, places: Places) -> None:
        matched = self._matched
        for place in places:
            matched[place] = 1

    def are_all_matched(self) -> bool:
        return 0 not in self._matched

    # ── as bytes, for other processes ──

    def pieces(self) -> Iterator[bytes]:
        """Counts of each part, then all digests, in order."""
        yield array("I", map(len, self._parts)).tobytes()
        whole = b"".join(array("q", sorted(part)).tobytes() for part in self._parts)
        yield from (whole[start : start + _PIECE] for start in range(0, len(whole), _PIECE))

    def add_pieces(self, pieces: Sequence[bytes]) -> None:
        whole, begin = memoryview(b"".join(pieces[1:])), 0
        for part, count in zip(self._parts, array("I", pieces[0]), strict=True):
            part.frombytes(whole[begin : begin + count * part.itemsize])
            begin += count * part.itemsize


# ── The scan ──

_Kind: TypeAlias = tuple[str | None, str]
"""A stored item's entity (None if no text names one) and type."""
_Seen: TypeAlias = tuple[_Kind, Sequence[str | None], Found]
"""Of a stored item its kind, its numbers to sum up, and another requested value."""
_NONE: dict[str, Any] = {}


class _KindTexts(Struct, frozen=True):
    """`type`, `source`: JSON of the type's value, and the beginning of that of the source.
    `summed`: the attributes that plain SQL adds up too.
    """

    type: bytes
    source: bytes
    summed: tuple[str, ...]


@dataclass(frozen=True)
class DigestScan(TableScan):
    """Scan of items in DynamoDB JSON. Traces only those that `digests` does not match.

    `totals`: of each segment that was looked at.
    `is_shared`: the run's other processes have the same digests, and receive the matches.
    """

    store: ItemStore = field(kw_only=True)
    digests: Digests = field(default_factory=Digests, kw_only=True)
    digester: Digester = field(kw_only=True)
    is_shared: bool = field(default=False, kw_only=True)
    totals: dict[int, ScanTotals] = field(default_factory=dict, init=False)

    def look(self, number: int, into: Digests) -> ScanTotals:
        """Add one segment's digests and return its totals, without tracing. Ends early if there are too many."""
        totals = ScanTotals()
        for page in self.store.scan_text(number, self.walk.segments, self._seen_page):
            if self.walk.stop.is_set():
                raise Interrupted(self.walk.stopped)
            for totals_seen, digests in page.items[:1]:
                totals = totals + totals_seen
                into.add(digests)
            if into.count() > DIGESTS_AT_MOST:
                break
        return totals

    def ready(self) -> DigestScan | None:
        """The scan once all segments were looked at, for rows to be compared; None if there are too many items."""
        if self.digests.count() > DIGESTS_AT_MOST:
            return None
        self.digests.sort()
        _ = self.encoders  # before threads ask for them
        return self

    @cached_property
    def encoders(self) -> dict[str, Encoder]:
        """By entity, if it has a program."""
        made = {
            name: compile_encoder(entity, self.source.raw_places(entity.plan))
            for name, entity in self.entities.items()
        }
        return {name: encoder for name, encoder in made.items() if not isinstance(encoder.program, str)}

    def has(self, item: Item, places: Places) -> bool:
        """Whether a stored item equals this one, and is now matched."""
        try:
            digest = self.digester.of(encode_item(item))
        except (RowError, TypeError):
            return False  # the comparison by attributes reports the fault
        return not self.digests.match_all([digest], places)

    def match_others(self) -> None:
        """Match what the run's other processes have matched."""
        for name in self.entities if self.is_shared else ():
            for _, data in self.journal.page_parts(self.run, name):
                places = array("I")
                places.frombytes(data)
                self.digests.match_places(places)

    def _seen_page(self, text: bytes) -> list[Any]:
        """Totals and digests of items as JSON, with a place for each item, as an answer has.

        Totals count a row's items by type: they only matter if each equals one of a row. Raises: ValueError for
        text that is no JSON.
        """
        native, tallies, left = self.digester.native, self._tallies(), list[bytes]()
        items: Iterable[WiredItem]
        if native is None:
            items = list(items_in(text))
            count, digests = len(items), b""
        else:
            of_types = {self._kinds[kind].type: tally for kind, tally in tallies.items()}
            source_name, type_name = map(orjson.dumps, self._names)
            count, digests = native.page(text, type_name, source_name, of_types, left)
            items = map(orjson.loads, left)
        read = (self._seen(item, self.digester.of) for item in items)
        seen = [item for item in read if item is not None]
        totals = sum((_tallied(*one) for one in tallies.items()), self._totals(seen))
        made = array("q", digests)
        made.extend(digest for _, _, digest in seen)
        return [(totals, made), *[None] * (count - 1)] if count else []

    def _tallies(self) -> dict[_Kind, _native.Tally]:
        made = self._kinds.items() if self.digester.native else ()
        return {kind: _native.Tally(one.source, tuple(map(orjson.dumps, one.summed))) for kind, one in made}

    def _pages(
        self, number: int, start: ItemKey | None
    ) -> Iterator[tuple[ScanTotals, Sequence[Item], ItemKey | None]]:
        for seen, next_start in self._scanned(number, start, self._left):
            yield self._totals(seen), [item for _, _, item in seen if item is not None], next_start

    def _left(self, item: WiredItem) -> Item | None:
        return None if self.digests.is_matched(self.digester.of(item)) else decode_item(item)

    def _scanned(
        self, number: int, start: ItemKey | None, wanted: Callable[[WiredItem], Found]
    ) -> Iterator[tuple[list[_Seen[Found]], ItemKey | None]]:
        """Per page: the results for its items, without those that verify ignores, and the next page's start."""

        see = partial(self._seen, wanted=wanted)
        for page in self.store.scan_encoded(number, self.walk.segments, see, start):
            if self.walk.stop.is_set():
                raise Interrupted(self.walk.stopped)
            yield [seen for seen in page.items if seen is not None], page.next_start

    def _seen(self, item: WiredItem, wanted: Callable[[WiredItem], Found]) -> _Seen[Found] | None:
        kind = self._kind(item)
        known = self._kinds.get(kind)
        if known is None and self._is_another_writers(item, *kind):
            return None
        names = () if known is None else known.summed
        return kind, [item.get(name, _NONE).get("N") for name in names], wanted(item)

    def _kind(self, item: WiredItem) -> _Kind:
        owner = item.get(self._names[0], _NONE).get("S")
        type_ = item.get(self._names[1], _NONE)
        entity = None if owner is None else owner.partition(":")[0]
        return entity, type_["S"] if "S" in type_ else str(decode(type_)) if type_ else ""

    def _is_another_writers(self, item: WiredItem, entity: str | None, type_: str) -> bool:
        if type_ in OWN_TYPES or entity is not None:
            return type_ in OWN_TYPES or entity in self.direct.entities
        key = item.get(self.table.key[0].name, _NONE).get("S")
        return type_ in self.direct.types or self.direct.is_left(key)

    def _totals(self, items: Sequence[_Seen[Any]]) -> ScanTotals:
        by_kind: dict[_Kind, list[Sequence[str | None]]] = defaultdict(list)
        for kind, numbers, _ in items:
            by_kind[kind].append(numbers)
        sums: dict[tuple[str, str, str], Decimal] = {}
        for kind, rows in by_kind.items():
            names = self._kinds[kind].summed if kind in self._kinds else ()
            for name, column in zip(names, zip(*rows, strict=True), strict=False):
                if texts := [text for text in column if text is not None]:
                    sums[kind[0] or "", kind[1], name] = exact_sum([text.encode() for text in texts])
        counts = Counter({(entity or "", type_): len(rows) for (entity, type_), rows in by_kind.items()})
        return ScanTotals(len(items), counts, sums)

    @cached_property
    def _names(self) -> tuple[str, str]:
        return self.table.source_attribute, self.table.type_attribute

    @cached_property
    def _kinds(self) -> dict[_Kind, _KindTexts]:
        return {
            (name, design.type): _KindTexts(
                b'{"S":%b}' % orjson.dumps(design.type),
                b'{"S":%b' % orjson.dumps(f"{name}:")[:-1],
                tuple(summed(entity.plan, design)),
            )
            for name, entity in self.entities.items()
            for design in entity.plan.entity.items
        }


def _tallied(kind: _Kind, tally: _native.Tally) -> ScanTotals:
    entity, type_ = kind
    sums: dict[tuple[str, str, str], Decimal] = {}
    numbers = [(name, EXACT.scaleb(Decimal(whole), -scale)) for (name, scale), whole in tally.sums.items()]
    for name, number in [*numbers, *((name, Decimal(text.decode())) for name, text in tally.others)]:
        key = entity or "", type_, orjson.loads(name)
        sums[key] = EXACT.add(sums.get(key, Decimal(0)), number)
    return ScanTotals(tally.items, Counter({(entity or "", type_): tally.items} if tally.items else {}), sums)


# ── Rows ──

_ROWS_A_CHECK = 256
"""One in so many rows is also made by items_for(): a fault of the native executor would be the same on both sides."""


class Matched(Struct, frozen=True):
    """`left`: rows with an item without an equal stored one, and some for items_for()."""

    items: int
    expired: int
    refused: list[Finding]
    left: list[RowTree]


def match_rows(encoder: Encoder, rows: RawPage, scan: DigestScan, now_s: float, places: Places) -> Matched:
    """Match the rows' items. Those past their TTL are matched but not required. `places`: of the matched ones."""
    entity, digester, digests = encoder.entity, scan.digester, scan.digests
    page = encode_puts(encoder, rows, NO_TICKET, now_s)
    digests.match_all(digester.of_items(page.expired), places)
    missing = digests.match_all(digester.of_items(page.items), places)
    keys = {page.items[number].source.partition(":")[2] for number in missing}
    whole = map(rows.whole, rows.rows) if keys else ()
    left = [row for row in whole if row_key(entity, row) in keys]
    some = map(rows.whole, rows.rows[::_ROWS_A_CHECK])
    left += [row for row in some if row_key(entity, row) not in keys]
    return Matched(len(page.items), len(page.expired), page.refused, left)
