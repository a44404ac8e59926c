"""The base key of an item, made out of a decoded row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from migrator.errors import RowError
from migrator.limits import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from migrator.mapping.expressions import Places, Row, compile_key
from migrator.mapping.filters import Surroundings
from migrator.mapping.sizes import value_bytes
from migrator.model import Item, ItemDesign, TableDesign

Step = Callable[[Row, Item], None]
"""Puts something of the row into the item. Raises: RowError."""


def compile_base_key(table: TableDesign, design: ItemDesign, places: Places, around: Surroundings) -> Step:
    """A step that puts the item's base key into it; it refuses a NULL, an empty key and one that is too long."""
    parts = [
        (attribute.name, compile_key(template, attribute, places, around), limit)
        for attribute, template, limit in zip(
            table.key, design.key, (PARTITION_KEY_BYTES, SORT_KEY_BYTES), strict=False
        )
    ]

    def step(row: Row, item: Item) -> None:
        for name, get, limit in parts:
            value = get(row)
            if value is None:
                raise RowError(f"{name} has a NULL in it; give the item a when: or the value an |or:")
            item[name] = checked_key(name, value, limit)

    return step


def checked_key(name: str, value: Any, limit: int) -> Any:
    """The value, if a key of DynamoDB can hold it. Raises: RowError."""
    size = value_bytes(value)
    if size == 0:
        raise RowError(f"{name} is empty; DynamoDB takes no empty key")
    if size > limit:
        raise RowError(f"{name} takes {size} bytes; DynamoDB takes {limit} at most")
    return value
