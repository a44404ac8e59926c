"""Items, row trees, the DynamoDB table of a mapping, and DynamoDB's limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from operator import itemgetter
from typing import Any, Literal, TypeAlias

# ── Items, row trees, and the DynamoDB table that a mapping describes, as plain frozen values ──

Value: TypeAlias = "str | int | Decimal | bool | bytes | None | list[Value] | dict[str, Value]"
Item: TypeAlias = dict[str, Value]
"""An item as plain Python values (the wire form is the target's business); numbers are int or Decimal."""

ItemKey: TypeAlias = tuple[Value, ...]
"""The values of a table's key attributes, in the table's order."""

RowTree: TypeAlias = tuple[Any, ...]
"""A root row with all it needs: one value per slot of its plan, then one per collection.

A collection's value is a tuple of child tuples (a list) or one scalar (count, sum, min, max).
Values are as the driver gave them; mapping/heart/rows.py decodes them by their kind.
"""

SourceKey: TypeAlias = str
"""A root row's primary key as a JSON array: opaque to the stages, stored in the journal and in `_src`."""

TOMBSTONE = "_tombstone"
"""The type of what a delete leaves where an item was."""

CONTROL = "_control"
"""The type of the one item that holds the highest ticket known."""

OWN_TYPES = frozenset({TOMBSTONE, CONTROL})
"""Types of items that no row makes; readers of ours skip them."""


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    name: str
    type: Literal["text", "number", "binary"] = "text"


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    partition: tuple[KeyAttribute, ...]
    sort: tuple[KeyAttribute, ...] = ()
    projection: Literal["all", "keys"] | tuple[str, ...] = "all"
    local: bool = False

    @property
    def attributes(self) -> tuple[KeyAttribute, ...]:
        return self.partition + self.sort

    def own_attributes(self, table: TableDesign) -> tuple[KeyAttribute, ...]:
        """Its key attributes that are no key attributes of the table."""
        base = {attribute.name for attribute in table.key}
        return tuple(attribute for attribute in self.attributes if attribute.name not in base)


@dataclass(frozen=True, slots=True)
class TableDesign:
    """The DynamoDB table that a mapping describes; `ttl`, where set, names the attribute in epoch seconds."""

    name: str
    key: tuple[KeyAttribute, ...]
    type_attribute: str
    ttl: str | None = None
    separator: str = "#"
    indexes: tuple[Index, ...] = ()
    source_attribute: str = "_src"
    ticket_attribute: str = "_tk"
    revision_attribute: str = "_rev"
    _of_key: Callable[[Item], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Asked for every item that is ever touched: the quickest way there is.
        object.__setattr__(self, "_of_key", itemgetter(*(attribute.name for attribute in self.key)))

    def key_of(self, item: Item) -> ItemKey:
        found = self._of_key(item)
        return found if len(self.key) > 1 else (found,)

    def type_of(self, item: Item) -> str:
        return str(item.get(self.type_attribute, "item"))

    def is_hidden(self, item: Item) -> bool:
        """Whether the item is our own, a tombstone or the control item, so that readers skip it."""
        return item.get(self.type_attribute) in OWN_TYPES

    def asked(self, index: str | None) -> Index | None:
        """The index of this name, or the table itself seen as one (None); None where there is no such index."""
        if index is None:
            return Index("", self.key[:1], self.key[1:], local=True)
        return next((one for one in self.indexes if one.name == index), None)

    @property
    def own_attributes(self) -> tuple[str, str, str]:
        return (self.source_attribute, self.ticket_attribute, self.revision_attribute)


# ── DynamoDB's limits ──
#
# Source: AWS Developer Guide, "Quotas in Amazon DynamoDB", and the API reference of the operation named.

ITEM_BYTES = 400 * 1024
PARTITION_KEY_BYTES = 2048
SORT_KEY_BYTES = 1024
NUMBER_DIGITS = 38
NUMBER_MAX_EXPONENT = 125
NUMBER_MIN_EXPONENT = -130
NESTING_LEVELS = 32

BATCH_WRITE_ITEMS = 25
BATCH_WRITE_BYTES = 16 * 1024 * 1024
TRANSACTION_ACTIONS = 100
"""Of one TransactWriteItems, no two of them on one item."""
TRANSACTION_BYTES = 4 * 1024 * 1024
STATEMENT_BYTES = 8192
"""Of a PartiQL statement without its parameters. A BatchExecuteStatement takes as many statements as a batch items."""
BATCH_GET_KEYS = 100

GLOBAL_INDEXES = 20
LOCAL_INDEXES = 5
PROJECTED_ATTRIBUTES = 100

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
INDEX_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")

CLIMB_LEVELS = 100
"""Ours: a row with more ancestors than this, itself counted, is refused; so is a cycle, which has no end."""
