"""A store that stores nothing: it measures what a write would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.limits import BATCH_WRITE_ITEMS
from migrator.mapping.costs import measure
from migrator.mapping.sizes import item_bytes
from migrator.model import Item, ItemKey, TableDesign
from migrator.ports import QueryPage, Receipt, ScanPage


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
