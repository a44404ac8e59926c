"""Digests of items by their JSON: stored ones, in the order of attributes in which the table gives them, and those of rows.

DynamoDB promises no order of attributes, but items with the same names mostly have the same one. It is learned from the
first items of a type, and rows become text in that order: then what the table answered is hashed as it is. An item that is
written otherwise (another ticket, an escape, an order of its own) is parsed and written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from threading import Lock
from typing import Any

import orjson

from migrator.mapping.items.encoder import TextEncoder, text_in_order
from migrator.mapping.items.encoder_values import base64_text
from migrator.mapping.items.items import CompiledEntity, attribute_names
from migrator.mapping.items.wire import decode, encode
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.mapping import ItemDesign
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.verify.scan import summed

MAP = b'"M":{'
BACKSLASH = ord("\\")
_SETS = frozenset({"SS", "NS", "BS"})


def sorted_where_maps(text: bytes) -> bytes:
    """An item's text (see `EncodedText`), of which a digest is made. Where maps in any order are in it, all names are sorted
    first."""
    return _sorted(parsed(text)) if MAP in text else text


def parsed(text: bytes) -> WiredItem:
    item: WiredItem = orjson.loads(b'{"' + text + b"}}")
    return item


def _sorted(item: WiredItem) -> bytes:
    return orjson.dumps(item, default=base64_text, option=orjson.OPT_SORT_KEYS)


class Canonical:
    """Digests of stored items of one type, as rows make them, whatever their ticket and revision. Safe to share between
    threads. `encoder`: of the entity's texts, in any order of names. `orders`: in which they are in the text that is hashed.
    `may_have_maps`: beside those of lists.
    """

    def __init__(self, entity: CompiledEntity, design: ItemDesign, encoder: TextEncoder | None) -> None:
        table, plan = entity.table, entity.plan
        names = (*attribute_names(plan, table, design), table.ticket_attribute)
        lists = {} if encoder is None else encoder.names_in_lists
        self._type = design.type
        self.orders: dict[tuple[str, ...], Sequence[str]] = {
            (design.type,): names,
            **{where: inner for where, inner in lists.items() if where[0] == design.type},
        }
        self.summed = tuple(summed(plan, design))
        """The attributes that plain SQL adds up too."""
        in_lists = {name for inner in lists.values() for name in inner}
        self.may_have_maps = encoder is None or encoder.may_have_maps or not in_lists.isdisjoint(self.summed)
        self.is_learned = False
        self._lock = Lock()
        self._fixed = {
            table.revision_attribute: encode(entity.mapping.revision),
            table.ticket_attribute: encode(NO_TICKET),
        }
        self.kind_text = _attribute(table.type_attribute, encode(design.type))
        """What each item of the type has in its text, and `fixed_texts` what most have."""
        self.fixed_texts = [_attribute(name, value) for name, value in self._fixed.items()]

    def learn(self, items: Iterable[WiredItem]) -> None:
        """Takes the order of names in the first items as that of all; none where they contradict one another."""
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
        """Whether all names are known and in order."""
        for where, order in self.orders.items():
            places = {name: place for place, name in enumerate(order)}
            for names in _names_at(item, where):
                found = [places.get(name, -1) for name in names]
                if found != sorted(found) or -1 in found:
                    return False
        return True

    def text(self, item: WiredItem) -> bytes:
        """Of one with attributes that no row makes, a text that no row has."""
        item |= self._fixed
        # DynamoDB keeps no order of a set's members; of a row they are in order.
        item |= {name: encode(decode(wired)) for name, wired in item.items() if not _SETS.isdisjoint(wired)}
        text = text_in_order(item, self._type, self.orders)
        return _sorted(item) if self.may_have_maps and MAP in text else text


def _names_at(item: WiredItem, where: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names of the item, or of each map in a list of it."""
    if len(where) == 1:
        yield tuple(item)
        return
    for child in item.get(where[1], {}).get("L", ()):
        if "M" in child:
            yield tuple(child["M"])


def _merged(seen: Iterable[tuple[str, ...]], names: Sequence[str]) -> Sequence[str]:
    """One order that all that was seen is in, and behind it the names that were not; just the names where there is none."""
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
    """An attribute's text, but for the brace that ends it."""
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
