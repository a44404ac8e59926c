"""Stored items compared with the items of rows as JSON, by digest first, then by attribute.

One scan leaves 64 bits per stored item. An item of a row is equal if its digest is among them; any other is
read by its key and compared by attribute. Stored items whose digest no row has are scanned again and traced
to their rows.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, partial
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, islice
from threading import Lock
from typing import Any, TypeAlias

import orjson
from msgspec import Struct

from migrator.mapping.items.encoder import TextEncoder, compile_texts, encode_texts, text_in_order
from migrator.mapping.items.items import CompiledEntity, row_key
from migrator.mapping.items.program import Orders, parts_of
from migrator.mapping.items.wire import base64_text, decode, decode_item, encode, encode_item
from migrator.mapping.model.edges import Found, ItemStore, RawPage, WiredItem
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.mapping import ItemDesign
from migrator.mapping.model.table import OWN_TYPES, Item, ItemKey, RowTree
from migrator.runtime.errors import Interrupted, RowError
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.verify.scan import ScanTotals, TableScan, exact_sum, summed

# ── Digests of items by their JSON: stored ones ──


MAP = b'"M":{'
BACKSLASH = ord("\\")
_SETS = frozenset({"SS", "NS", "BS"})


def sorted_where_maps(text: bytes) -> bytes:
    """The text to digest (see `EncodedText`). Names are sorted if it contains maps in arbitrary order."""
    return _sorted(parsed(text)) if MAP in text else text


def parsed(text: bytes) -> WiredItem:
    item: WiredItem = orjson.loads(b'{"' + text + b"}}")
    return item


def _sorted(item: WiredItem) -> bytes:
    return orjson.dumps(item, default=base64_text, option=orjson.OPT_SORT_KEYS)


def _with_sets_in_order(wired: Any) -> Any:
    if not _SETS.isdisjoint(wired):
        return encode(decode(wired))
    if "L" in wired:
        return {"L": [_with_sets_in_order(inner) for inner in wired["L"]]}
    if "M" in wired:
        return {"M": {name: _with_sets_in_order(inner) for name, inner in wired["M"].items()}}
    return wired


class Canonical:
    """Digests of one type's stored items, as rows make them, regardless of ticket and revision. Thread-safe.

    `encoder`: of the entity's texts, in any order of names.
    `orders`: of names in the hashed text.
    `may_have_maps`: in addition to those of lists.
    """

    def __init__(self, entity: CompiledEntity, design: ItemDesign, encoder: TextEncoder | None) -> None:
        table, plan = entity.table, entity.plan
        names = (*parts_of(entity.mapping, plan, design).names, table.ticket_attribute)
        lists = {} if encoder is None else encoder.program.names_in_lists
        self._type = design.type
        self.orders: dict[tuple[str, ...], Sequence[str]] = {
            (design.type,): names,
            **{where: inner for where, inner in lists.items() if where[0] == design.type},
        }
        self.summed = tuple(summed(plan, design))
        """The attributes that plain SQL adds up too."""
        in_lists = {name for inner in lists.values() for name in inner}
        self.may_have_maps = (
            encoder is None or encoder.program.may_have_maps or not in_lists.isdisjoint(self.summed)
        )
        self.is_learned = False
        self._lock = Lock()
        self._fixed = {
            table.revision_attribute: encode(entity.mapping.revision),
            table.ticket_attribute: encode(NO_TICKET),
        }
        self.kind_text = _attribute(table.type_attribute, encode(design.type))
        """Attributes in the text of each item of the type, and `fixed_texts` those of most."""
        self.fixed_texts = [_attribute(name, value) for name, value in self._fixed.items()]

    def learn(self, items: Iterable[WiredItem]) -> None:
        """Take the order of names in the first items as that of all; none if they contradict each other."""
        with self._lock:
            if self.is_learned:
                return
            seen = list(items)
            self.orders = {
                where: _merged({names for item in seen for names in _names_at(item, where)}, order)
                for where, order in self.orders.items()
            }
            self.is_learned = True

    def is_in_order(self, item: WiredItem) -> bool:
        for where, order in self.orders.items():
            places = {name: place for place, name in enumerate(order)}
            for names in _names_at(item, where):
                found = [places.get(name, -1) for name in names]
                if found != sorted(found) or -1 in found:
                    return False
        return True

    def text(self, item: WiredItem) -> bytes:
        """Text of an item. Attributes that no row makes give a text that no row has."""
        item |= self._fixed
        # DynamoDB keeps no order of a set's members; of a row they are in order.
        item |= {name: _with_sets_in_order(wired) for name, wired in item.items()}
        text = text_in_order(item, self._type, self.orders)
        return _sorted(item) if self.may_have_maps and MAP in text else text


def _names_at(item: WiredItem, where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(where) == 1:
        yield tuple(item)
        return
    for child in item.get(where[1], {}).get("L", ()):
        if "M" in child:
            yield tuple(child["M"])


def _merged(seen: Iterable[tuple[str, ...]], names: Sequence[str]) -> Sequence[str]:
    """One order that fits all seen ones, followed by unseen names; just the names if no order fits."""
    after: TopologicalSorter[str] = TopologicalSorter()
    for order in seen:
        for name, before in zip(order, (None, *order), strict=False):
            after.add(name, *([] if before is None else [before]))
    try:
        found = [name for name in after.static_order() if name in names]
    except CycleError:
        return names
    return (*found, *(name for name in names if name not in found))


def _attribute(name: str, value: Any) -> bytes:
    return orjson.dumps({name: value})[1:-2]


# ── A page of texts ──

_LEARNED_FROM = 300
_LOOKED_AT = 256
"""One of so many items of a page shows whether they are in order."""


def learn_and_check(kinds: Sequence[tuple[Canonical, Sequence[bytes]]]) -> bool:
    """Whether items of these kinds are in the order that is known, or is learned from them."""
    for canonical, texts in kinds:
        if not canonical.is_learned:
            canonical.learn(map(parsed, texts[:: len(texts) // _LEARNED_FROM + 1]))
        if not all(canonical.is_in_order(parsed(text)) for text in texts[::_LOOKED_AT]):
            return False
    return True


DIGESTS_AT_MOST = 2**24
"""Nine bytes are kept of each: 150 MB."""
_PARTS = 256
_PIECE = 2**19
Places: TypeAlias = "array[int]"
"""Positions among the sorted digests, four bytes each; the same in all processes."""


class Digests:
    """Digests of stored items, and which of them rows match. Thread-safe.

    `key`: processes with the same key make the same digests. None: SipHash with a key of this process.
    Source: PEP 456.
    """

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self._keyed = hashlib.blake2b(digest_size=8, key=key) if key else None
        self._parts = [array("q") for _ in range(_PARTS)]
        self._begins: list[int] = []
        self._matched = bytearray()

    def empty(self) -> Digests:
        return Digests(self._key)

    def of(self, text: bytes) -> int:
        """64 bits of a text; two different texts collide by a chance of 2^-64."""
        return self.of_all([text])[0]

    def of_all(self, texts: Iterable[bytes]) -> Sequence[int]:
        if self._keyed is None:
            return list(map(hash, texts))
        digests = []
        for text in texts:
            begun = self._keyed.copy()
            begun.update(text)
            digests.append(begun.digest())
        return array("q", b"".join(digests))

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


@dataclass(frozen=True)
class DigestScan(TableScan):
    """Scan of items in DynamoDB JSON. Traces only those that `digests` does not match.

    `totals`: of each segment that was looked at.
    `is_shared`: the run's other processes have the same digests, and receive the matches.
    """

    store: ItemStore = field(kw_only=True)
    digests: Digests = field(kw_only=True)
    is_shared: bool = field(default=False, kw_only=True)
    totals: dict[int, ScanTotals] = field(default_factory=dict, init=False)

    def look(self, number: int, into: Digests) -> ScanTotals:
        """Add one segment's digests and return its totals, without tracing. Ends early if there are too many."""
        totals = ScanTotals()
        for page in self.store.scan_texts(number, self.walk.segments, self._seen_page):
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
    def encoders(self) -> dict[str, TextEncoder]:
        """By entity, if it has one."""
        made = {
            name: compile_texts(entity, self.source.raw_places(entity.plan), self._orders(name))
            for name, entity in self.entities.items()
        }
        return {name: encoder for name, encoder in made.items() if encoder}

    def has(self, item: Item, places: Places) -> bool:
        """Whether a stored item equals this one, and is now matched."""
        try:
            digest = self.digest(encode_item(item))
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

    def _seen_page(self, texts: list[bytes], whole: bytes) -> list[Any]:
        page = self._page_of(texts, whole)
        # A place for each item, as an answer has: it is checked for that before it counts.
        return [page, *[None] * (len(texts) - 1)] if texts else []

    def _page_of(self, texts: list[bytes], whole: bytes) -> tuple[ScanTotals, Sequence[int]]:
        """Result of a page. Totals count a row's items by type: they only matter if each equals one of
        a row."""
        ticket, begin, none = self._ticket
        if whole.count(begin) == len(texts) != whole.count(none):
            texts = [ticket.sub(none, text) for text in texts]
            whole = _whole(texts)
        kinds = self._kinds_of(whole, texts)
        if kinds is None:
            return self._page_one_by_one(texts)
        sums: dict[tuple[str, str, str], Decimal] = {}
        counts: Counter[tuple[str, str]] = Counter()
        for (entity, type_), own in kinds.items():
            text = whole if len(kinds) == 1 else _whole(own)
            counts[entity or "", type_] = len(own)
            for name in self._canonical[entity, type_].summed:
                if numbers := self._number(name).findall(text):
                    sums[entity or "", type_, name] = exact_sum(numbers)
        if BACKSLASH in whole:
            texts = [self._text(parsed(text)) if BACKSLASH in text else text for text in texts]
        digests = self.digests.of_all(texts)
        return ScanTotals(len(texts), counts, sums), digests

    def _kinds_of(self, whole: bytes, texts: list[bytes]) -> dict[_Kind, list[bytes]] | None:
        """Texts by kind; None if some must be parsed."""
        if len(self._canonical) != len({type_ for _, type_ in self._canonical}):
            return None
        found = {kind: whole.count(one.kind_text) for kind, one in self._canonical.items()}
        there = [kind for kind, count in found.items() if count]
        if sum(found.values()) != len(texts) or not there:
            return None
        if MAP in whole and any(self._canonical[kind].may_have_maps for kind in there):
            return None
        if any(whole.count(text) != len(texts) for text in self._canonical[there[0]].fixed_texts):
            return None
        kinds = dict.fromkeys(there, texts)
        if len(there) > 1:
            # Of the first attribute the quotation mark is cut off.
            kinds = {
                kind: [text for text in texts if self._canonical[kind].kind_text[1:] in text]
                for kind in there
            }
        pairs = [(self._canonical[kind], own) for kind, own in kinds.items()]
        return kinds if sum(map(len, kinds.values())) == len(texts) and learn_and_check(pairs) else None

    def _page_one_by_one(self, texts: list[bytes]) -> tuple[ScanTotals, Sequence[int]]:
        if not all(one.is_learned for one in self._canonical.values()):
            items = list(map(parsed, texts))
            for kind, one in self._canonical.items():
                if not one.is_learned and (own := [item for item in items if self._kind(item) == kind]):
                    one.learn(own)
        # Each is digested while it is in the processor's cache.
        read = (self._seen(parsed(text), self.digest) for text in texts)
        seen = [item for item in read if item is not None]
        return self._totals(seen), [digest for _, _, digest in seen]

    def _number(self, name: str) -> re.Pattern[bytes]:
        pattern = self._numbers.get(name)
        if pattern is None:
            pattern = self._numbers[name] = re.compile(re.escape(_begin_of_number(name)) + rb'([^"]*)"')
        return pattern

    @cached_property
    def _ticket(self) -> tuple[re.Pattern[bytes], bytes, bytes]:
        """Pattern of tickets, the start of each, and the ticket of rows here."""
        name = self.table.ticket_attribute
        begin = _begin_of_number(name)
        return self._number(name), begin, begin + f'{NO_TICKET}"'.encode()

    def digest(self, item: WiredItem) -> int:
        """Digest of the item; one that no row has if no row makes it."""
        return self.digests.of(self._text(item))

    def _text(self, item: WiredItem) -> bytes:
        canonical = self._canonical.get(self._kind(item))
        return orjson.dumps(item) if canonical is None else canonical.text(item)

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
        """Per page: the results for its items, without those that verify ignores, and the next page's start."""

        see = partial(self._seen, wanted=wanted)
        for page in self.store.scan_encoded(number, self.walk.segments, see, start):
            if self.walk.stop.is_set():
                raise Interrupted(self.walk.stopped)
            yield [seen for seen in page.items if seen is not None], page.next_start

    def _seen(self, item: WiredItem, wanted: Callable[[WiredItem], Found]) -> _Seen[Found] | None:
        kind = self._kind(item)
        canonical = self._canonical.get(kind)
        if canonical is None and self._is_another_writers(item, *kind):
            return None
        names = () if canonical is None else canonical.summed
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
            names = self._canonical[kind].summed if kind in self._canonical else ()
            for name, column in zip(names, zip(*rows, strict=True), strict=False):
                if texts := [text for text in column if text is not None]:
                    sums[kind[0] or "", kind[1], name] = exact_sum([text.encode() for text in texts])
        counts = Counter({(entity or "", type_): len(rows) for (entity, type_), rows in by_kind.items()})
        return ScanTotals(len(items), counts, sums)

    def learn(self) -> None:
        for _ in islice(self.store.scan_texts(0, self.walk.segments, self._seen_page), 1):
            pass
        self.teach(self.learned())

    def learned(self) -> list[Any]:
        """Order of attributes by entity and type, as JSON."""
        return [
            [*kind, [[list(where), list(order)] for where, order in one.orders.items()]]
            for kind, one in self._canonical.items()
        ]

    def teach(self, learned: Sequence[Any]) -> None:
        for entity, type_, orders in learned:
            one = self._canonical[entity, type_]
            one.orders = {tuple(where): tuple(order) for where, order in orders}
            one.is_learned = True

    def _orders(self, entity: str) -> Orders:
        own = (canonical.orders for (name, _), canonical in self._canonical.items() if name == entity)
        return {where: order for orders in own for where, order in orders.items()}

    @cached_property
    def _numbers(self) -> dict[str, re.Pattern[bytes]]:
        return {}

    @cached_property
    def _names(self) -> tuple[str, str]:
        return self.table.source_attribute, self.table.type_attribute

    @cached_property
    def _canonical(self) -> dict[_Kind, Canonical]:
        encoders = {name: compile_texts(entity, frozenset(), {}) for name, entity in self.entities.items()}
        return {
            (name, design.type): Canonical(entity, design, encoders[name])
            for name, entity in self.entities.items()
            for design in entity.plan.entity.items
        }


def _whole(texts: Sequence[bytes]) -> bytes:
    return b'{"' + b'}},{"'.join(texts) + b"}}"


def _begin_of_number(name: str) -> bytes:
    return orjson.dumps(name) + b':{"N":"'


# ── Rows ──

_ROWS_A_CHECK = 256
"""One in so many rows is also made by items_for(): a fault of the native executor would be the same on both sides."""


class Matched(Struct, frozen=True):
    """`left`: rows with an item without an equal stored one, and some for items_for()."""

    items: int
    expired: int
    refused: list[Finding]
    left: list[RowTree]


def match_rows(
    encoder: TextEncoder, rows: RawPage, digests: Digests, now_s: float, places: Places
) -> Matched:
    """Match the rows' items. Those past their TTL are matched but not required. `places`: of the matched ones."""
    entity, source = encoder.entity, encoder.entity.table.source_attribute
    page = encode_texts(encoder, rows)
    texts = [text for text, _ in page.items]
    if encoder.program.may_have_maps:
        texts = list(map(sorted_where_maps, texts))
    missing = digests.match_all(digests.of_all(texts), places)
    has_ttl = entity.table.ttl is not None
    expired = sum(_is_expired(expiry, now_s) for _, expiry in page.items) if has_ttl else 0
    unmatched = [page.items[number] for number in missing]
    keys = {
        parsed(text)[source]["S"].partition(":")[2]
        for text, expiry in unmatched
        if not _is_expired(expiry, now_s)
    }
    whole = map(rows.whole, rows.rows) if keys else ()
    left = [row for row in whole if row_key(entity, row) in keys]
    some = map(rows.whole, rows.rows[::_ROWS_A_CHECK])
    left += [row for row in some if row_key(entity, row) not in keys]
    return Matched(len(page.items) - expired, expired, page.refused, left)


def _is_expired(expiry: int | None, now_s: float) -> bool:
    return expiry is not None and expiry <= now_s
