"""Items that tests write as plain values, in the form in which a store takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from migrator.mapping.items.encoder import PutTexts, encoded_of
from migrator.mapping.items.native import _native
from migrator.mapping.model.edges import Receipt
from migrator.mapping.model.live import Outcome
from migrator.mapping.model.table import EncodedItem, TableDesign


def encoded(items: Iterable[Mapping[str, Any]], table: TableDesign) -> list[EncodedItem]:
    """The items as writers send them."""
    return [encoded_of(dict(item), table) for item in items]


def put_items(store: Any, items: Iterable[Mapping[str, Any]]) -> Receipt:
    """What an ItemStore that knows its design says of the items."""
    receipt: Receipt = store.put(encoded(items, store.design))
    return receipt


def write_items(store: Any, items: Iterable[Mapping[str, Any]], **options: bool) -> list[Outcome]:
    """The same of a ConditionalStore."""
    outcomes: list[Outcome] = store.write(encoded(items, store.design), **options)
    return outcomes


def texts_of(items: Iterable[Mapping[str, Any]], design: TableDesign) -> PutTexts:
    """The items as the text of their puts."""
    puts, made = _native.PutBuffer(), encoded(items, design)
    for item in made:
        puts.add(item.key, item.json, item.size_bytes)
    return PutTexts(puts, design, range(len(made)))


def write_texts(store: Any, items: Iterable[Mapping[str, Any]]) -> list[Outcome]:
    """As write_items of new items, sent as texts."""
    texts = texts_of(items, store.design)
    outcomes = {outcome.item.key: outcome for outcome in store.write(texts, fresh=True)}
    return [outcomes.get(item.key) or Outcome(item, "stored") for item in texts]


def write_groups(store: Any, groups: Sequence[Iterable[Mapping[str, Any]]]) -> list[Outcome]:
    """The same of transactions."""
    made = [encoded(group, store.design) for group in groups]
    outcomes: list[Outcome] = store.write_together(made)
    return outcomes
