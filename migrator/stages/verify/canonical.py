"""Digests of items by their JSON: stored ones, in the order of attributes in which the table gives them, and those of rows.

DynamoDB promises no order of attributes, but items with the same names mostly have the same one. It is learned from the
first items of a type, and rows become text in that order: then what the table answered is hashed as it is. An item that is
written otherwise (another ticket, an escape, an order of its own) is parsed and written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from threading import Lock
from typing import Any

import orjson

from migrator.mapping.heart.encoder_values import base64_text
from migrator.mapping.heart.items import CompiledEntity, index_keys
from migrator.mapping.heart.wire import encode
from migrator.model.edges import WiredItem
from migrator.model.facts import kept_columns
from migrator.model.mapping import ItemDesign
from migrator.stages.backfill.write import NO_TICKET
from migrator.stages.verify.scan import summed

MAP = b'"M":{'
BACKSLASH = ord("\\")


def digest_of_text(text: bytes, *, may_have_maps: bool = True) -> int:
    """64 bits of an item's text (see `EncodedText`). Where maps are in it, all names are sorted first.

    Two items that differ have the same by a chance of 2^-64: it is SipHash with a key that each process draws for itself.
    Source: PEP 456.
    """
    return hash(_sorted(parsed(text)) if may_have_maps and MAP in text else text)


def parsed(text: bytes) -> WiredItem:
    item: WiredItem = orjson.loads(b'{"' + text + b"}}")
    return item


def _sorted(item: WiredItem) -> bytes:
    return orjson.dumps(item, default=base64_text, option=orjson.OPT_SORT_KEYS)


class Canonical:
    """Digests of stored items of one type, as rows make them, whatever their ticket and revision. Safe to share between
    threads. `order`: of the attributes in the text that is hashed.
    """

    def __init__(self, entity: CompiledEntity, design: ItemDesign) -> None:
        table, plan = entity.table, entity.plan
        written = {**plan.entity.attributes, **design.attributes}
        ttl = [table.ttl] if design.expiry is not None and table.ttl else []
        self.order: tuple[str, ...] = (
            *(attribute.name for attribute in table.key),
            *(table.type_attribute, table.revision_attribute, table.source_attribute),
            *(attribute.name for entry in design.entries for attribute in index_keys(table, entry)),
            *(name for name in kept_columns(plan, design) if name not in written),
            *written,
            *ttl,
            table.ticket_attribute,
        )
        self.is_learned = False
        self._lock = Lock()
        self._fixed = {
            table.revision_attribute: encode(entity.mapping.revision),
            table.ticket_attribute: encode(NO_TICKET),
        }
        self.kind_text = _attribute(table.type_attribute, encode(design.type))
        """What each item of the type has in its text, and `fixed_texts` what most have."""
        self.fixed_texts = [_attribute(name, value) for name, value in self._fixed.items()]
        self._ordered: dict[tuple[str, ...], tuple[tuple[str, ...], Callable[[WiredItem], Any]]] = {}
        self.summed = tuple(summed(plan, design))
        """The attributes that plain SQL adds up too."""

    def learn(self, items: Iterable[WiredItem]) -> None:
        """Takes the order of the first items' attributes as that of all; no order where they contradict one another."""
        with self._lock:
            if self.is_learned:
                return
            after: TopologicalSorter[str] = TopologicalSorter()
            for names in {tuple(item) for item in items}:
                for name, before in zip(names, (None, *names), strict=False):
                    after.add(name, *([] if before is None else [before]))
            try:
                seen = [name for name in after.static_order() if name in self.order]
            except CycleError:
                seen = []
            self.order = (*seen, *(name for name in self.order if name not in seen))
            self.is_learned = True

    def is_in_order(self, item: WiredItem) -> bool:
        names = tuple(item)
        return names == (self._ordered.get(names) or self._order_of(names))[0]

    def digest(self, item: WiredItem) -> int:
        """Of one with attributes that no row makes, a digest that no row has."""
        item |= self._fixed
        names = tuple(item)
        ordered = self._ordered.get(names) or self._order_of(names)
        text = orjson.dumps(dict(zip(ordered[0], ordered[1](item), strict=True)), default=base64_text)
        return hash(_sorted(item) if MAP in text else text[2:-2])

    def _order_of(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[WiredItem], Any]]:
        ordered = tuple(name for name in self.order if name in names)
        ordered += tuple(sorted(set(names) - set(ordered)))
        if self.is_learned and len(self._ordered) < _ORDERS_AT_MOST:
            self._ordered[names] = (ordered, itemgetter(*ordered))
        return ordered, itemgetter(*ordered)


_ORDERS_AT_MOST = 10_000


def _attribute(name: str, value: Any) -> bytes:
    """An attribute's text, but for the brace that ends it."""
    return orjson.dumps({name: value})[1:-2]


# ── A page of texts ──

_LOOKED_AT = 256
"""One of so many items of a page shows whether they are in order."""


def learn_and_check(kinds: Sequence[tuple[Canonical, Sequence[bytes]]]) -> bool:
    """Whether items of these kinds are in the order that is known, or is learned from them."""
    for canonical, texts in kinds:
        if not canonical.is_learned:
            canonical.learn(map(parsed, texts))
        if not all(canonical.is_in_order(parsed(text)) for text in texts[::_LOOKED_AT]):
            return False
    return True
