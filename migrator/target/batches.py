"""Items cut into batches that BatchWriteItem takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from migrator.limits import BATCH_WRITE_BYTES, BATCH_WRITE_ITEMS
from migrator.mapping.sizes import write_units
from migrator.model import ItemKey

Sized = tuple[ItemKey, dict[str, Any], int]
"""An item's key, its wire form and its bytes."""

Batch = list[Sized]


def batches(items: Sequence[Sized], units_at_most: float | None = None) -> Iterator[Batch]:
    """Batches in order: 25 items and 16 MB at most, and no key twice, which DynamoDB refuses.

    A second item of one key begins a new batch, so that the later one is written later.
    `units_at_most`: write units of a batch of more than one item.
    Source: API reference, BatchWriteItem.
    """
    batch: Batch = []
    keys: set[ItemKey] = set()
    size = units = 0
    for item in items:
        full = len(batch) == BATCH_WRITE_ITEMS or size + item[2] > BATCH_WRITE_BYTES or item[0] in keys
        dear = units_at_most is not None and units + write_units(item[2]) > units_at_most
        if batch and (full or dear):
            yield batch
            batch, keys, size, units = [], set(), 0, 0
        batch.append(item)
        keys.add(item[0])
        size += item[2]
        units += write_units(item[2])
    if batch:
        yield batch
