"""What writing items takes and costs: write units with those of indexes, bytes stored, US dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from migrator.mapping.sizes import item_bytes, write_units
from migrator.model import Index, Item, TableDesign

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
