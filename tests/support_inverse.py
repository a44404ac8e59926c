"""Rows of any number of items, as the inverse of a mapping gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from migrator.mapping.inverse.rows import Contents, Inverse, Row, RowPart, row_of, row_parts_of
from migrator.mapping.model.table import Item


def _none(name: str) -> bytes:
    raise KeyError(name)


def rows_for(inverse: Inverse, items: Iterable[Item], contents: Contents = _none) -> dict[str, list[Row]]:
    """Rows by table, with the columns that can be restored (`inverse.recovered`).

    `items`: all items of each row that has one among them, of any number of rows, in any order; `contents`:
    objects in S3.
    Raises: RowError for an item that no row makes, and if two items contradict each other about one row.
    """
    told: dict[str, dict[tuple[Any, ...], list[RowPart]]] = {}
    for item in items:
        for (table, key), one in row_parts_of(inverse, item, contents).items():
            told.setdefault(table, {}).setdefault(key, []).append(one)
    return {table: [row_of(inverse, table, of) for of in rows.values()] for table, rows in told.items()}
