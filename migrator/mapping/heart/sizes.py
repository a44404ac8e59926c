"""Sizes and costs of items and keys: bytes, write units, dollars; keys as DynamoDB JSON."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from migrator.model.table import READ_UNIT_BYTES, WRITE_UNIT_BYTES, Index, Item, ItemKey, TableDesign

# ──
# An item's key as JSON, each value under its DynamoDB type: in checkpoints, marks and the journal's
# memory.


def write_key(key: ItemKey | None) -> list[dict[str, str]] | None:
    """The key's values, each under its DynamoDB type."""
    return None if key is None else [_write(value) for value in key]


def read_key(values: list[dict[str, str]] | None) -> ItemKey | None:
    """The key that `write_key` wrote."""
    return None if values is None else tuple(_read(value) for value in values)


def _write(value: Any) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode("ascii")}
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _read(value: dict[str, str]) -> Any:
    ((type_, text),) = value.items()
    if type_ == "B":
        return base64.b64decode(text)
    return text if type_ == "S" else Decimal(text)


# ── How many bytes an item takes ──
#
# Source: AWS Developer Guide, "DynamoDB item sizes and formats".

_CONTAINER_BYTES = 3
_ELEMENT_BYTES = 1


def item_bytes(item: Item) -> int:
    """Bytes that an item takes when stored, attribute names included.

    Shape: plain Python values, not the {"S": …} wire form. Numbers are approximate, as in the guide.
    """
    size = 0
    for name, value in item.items():
        # Most names and values are short ASCII texts: a call for each of them would cost more than the sum.
        size += len(name) if name.isascii() else _text_bytes(name)
        size += len(value) if type(value) is str and value.isascii() else value_bytes(value)
    return size


def write_units(size_bytes: int) -> int:
    """Write units of one standard write of an item of this size."""
    return max(1, -(-size_bytes // WRITE_UNIT_BYTES))


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Read units of one request for this much, also where it finds nothing; half of them where it is eventually consistent.

    Source: AWS Developer Guide, "DynamoDB read and write operations".
    """
    return max(1, -(-size_bytes // READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def value_bytes(value: Any) -> int:
    """Bytes of one attribute's value without its name."""
    if isinstance(value, str):
        return _text_bytes(value)
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, (int, Decimal)):
        return _number_bytes(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        inner = sum(_text_bytes(name) + value_bytes(one) + _ELEMENT_BYTES for name, one in value.items())
        return _CONTAINER_BYTES + inner
    return _CONTAINER_BYTES + sum(value_bytes(one) + _ELEMENT_BYTES for one in value)


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _number_bytes(value: int | Decimal) -> int:
    """About one byte for two significant digits, one more, and one for a minus; 21 at most."""
    digits = str(abs(value)) if isinstance(value, int) else "".join(map(str, value.as_tuple().digits))
    significant = len(digits.strip("0"))
    return min(21, (significant + 1) // 2 + 1 + (value < 0))


# ── What writing items takes and costs: write units with those of indexes, bytes stored, US dollars ──

ENTRY_OVERHEAD_BYTES = 100
"""Billed with every item and every index entry. Source: AWS Developer Guide, "DynamoDB item sizes and formats"."""
_MILLION = 1_000_000
_GB = 1024**3


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars: a million write and read request units, a GB stored for a month. `source`: date and page;
    `infrequent`: of the table class for infrequent access."""

    region: str
    write: Decimal
    read: Decimal
    storage: Decimal
    source: str
    infrequent: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """What rows take: items, write units of the table and of its indexes, bytes as they are billed."""

    rows: int = 0
    items: int = 0
    table_units: int = 0
    index_units: int = 0
    stored_bytes: int = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.rows + other.rows,
            self.items + other.items,
            self.table_units + other.table_units,
            self.index_units + other.index_units,
            self.stored_bytes + other.stored_bytes,
        )

    @property
    def write_units(self) -> int:
        return self.table_units + self.index_units

    def scaled(self, rows: int) -> Estimate:
        """The same for another number of rows; of no rows nothing is known, so nothing is estimated."""
        if self.rows == 0:
            return Estimate(rows=rows)
        return Estimate(
            rows,
            _part(self.items, rows, self.rows),
            _part(self.table_units, rows, self.rows),
            _part(self.index_units, rows, self.rows),
            _part(self.stored_bytes, rows, self.rows),
        )

    def write_cost(self, price: Price) -> Decimal:
        """US dollars for writing it once, on demand, where nothing is stored yet."""
        return price.write * self.write_units / _MILLION

    def storage_cost(self, price: Price) -> Decimal:
        """US dollars a month for keeping it."""
        return price.storage * self.stored_bytes / _GB


def measure(rows: int, items: Sequence[Item], table: TableDesign) -> Estimate:
    """What these items of so many rows take, each put once and none of them there before."""
    found = Estimate(rows=rows, items=len(items))
    for item in items:
        size = item_bytes(item)
        entries = [entry for index in table.indexes if (entry := entry_bytes(item, index, table)) is not None]
        found += Estimate(
            table_units=write_units(size),
            index_units=sum(map(write_units, entries)),
            stored_bytes=sum(one + ENTRY_OVERHEAD_BYTES for one in (size, *entries)),
        )
    return found


def entry_bytes(item: Item, index: Index, table: TableDesign) -> int | None:
    """Bytes of the item's entry in the index; None where it has none, because it lacks a key attribute."""
    keys = {attribute.name for attribute in index.attributes}
    if not keys <= item.keys():
        return None
    if index.projection == "all":
        return item_bytes(item)
    kept = keys | {attribute.name for attribute in table.key}
    if isinstance(index.projection, tuple):
        kept |= set(index.projection)
    return item_bytes({name: value for name, value in item.items() if name in kept})


def _part(number: int, rows: int, of: int) -> int:
    """number · rows / of, rounded up."""
    return -(-number * rows // of)
