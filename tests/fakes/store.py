"""An item store in memory; it passes the contract of the real one."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.mapping.keys import encode_key
from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Item, ItemKey, TableDesign
from migrator.ports import QueryPage, Receipt, ScanPage

_PAGE = 7


class FakeStore:
    """ports.ItemStore without a server; `items` may be looked at and changed by a test."""

    def __init__(self, design: TableDesign) -> None:
        self.design = design
        self.items: dict[ItemKey, Item] = {}

    def put(self, items: Sequence[Item]) -> Receipt:
        sizes = [item_bytes(item) for item in items]
        for item in items:
            self.items[self.design.key_of(item)] = copy.deepcopy(item)
        return Receipt(len(items), sum(sizes), float(sum(map(write_units, sizes))), -(-len(items) // 25))

    def delete(self, keys: Sequence[ItemKey]) -> None:
        for key in keys:
            self.items.pop(key, None)

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        return {key: copy.deepcopy(self.items[key]) for key in keys if key in self.items}

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage]:
        mine = sorted(
            (key for key in self.items if zlib.crc32(encode_key(key[:1]).encode()) % segments == segment),
            key=encode_key,
        )
        left = [key for key in mine if start is None or encode_key(key) > encode_key(start)]
        while True:
            page, left = left[:_PAGE], left[_PAGE:]
            yield ScanPage([copy.deepcopy(self.items[key]) for key in page], page[-1] if left else None)
            if not left:
                return

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        """All items of one partition of the table itself, in order; conditions on the sort key are the real one's."""
        partition = request["ExpressionAttributeValues"][":p"]
        found = sorted((key for key in self.items if key[0] == partition), key=encode_key)
        return QueryPage([copy.deepcopy(self.items[key]) for key in found], None)
