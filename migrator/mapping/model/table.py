"""Items, row trees, the DynamoDB table of a mapping, its keys and rows' keys as text, and DynamoDB's limits."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Context, Decimal
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from msgspec import Struct

# ── Items, row trees, and the DynamoDB table that a mapping describes, as plain frozen values ──

Value: TypeAlias = "str | int | Decimal | bool | bytes | None | list[Value] | dict[str, Value]"


class SetOf(list[Any]):
    """The members of a DynamoDB set (SS, NS, BS), at least one, each once and in order."""


Item: TypeAlias = dict[str, Value]
"""An item as plain Python values (the wire form is the target's business); numbers are int or Decimal."""

ItemKey: TypeAlias = tuple[Value, ...]
"""The values of a table's key attributes, in the table's order."""


RowTree: TypeAlias = tuple[Any, ...]
"""A root row with all it needs: one value per slot of its plan, then one per collection.

A collection's value is a tuple of child tuples (a list) or one scalar (count, sum, min, max).
Values are as the driver gave them; mapping/items/rows.py decodes them by their kind.
"""

SourceKey: TypeAlias = str
"""A root row's primary key as a JSON array: opaque to the stages, stored in the journal and in `_src`."""

TOMBSTONE = "_tombstone"
"""The type of the item that replaces a deleted one."""


class EncodedItem(NamedTuple):
    """An item ready to write: its attributes as DynamoDB JSON, and facts for writers."""

    key: ItemKey
    json: bytes
    size_bytes: int
    """Bytes of the item as counted by DynamoDB, attribute names included."""
    expiry: int | None
    """When its TTL passes, in epoch seconds."""
    type: str
    source: str
    """The value of `_src`."""
    ticket: int
    """The value of `_tk`."""

    @property
    def root(self) -> tuple[str, SourceKey]:
        entity, _, key = self.source.partition(":")
        return entity, key

    @property
    def is_tombstone(self) -> bool:
        return self.type == TOMBSTONE


CONTROL = "_control"
"""The type of the one item that holds the highest ticket known."""

OWN_TYPES = frozenset({TOMBSTONE, CONTROL})
"""Types of items that no row makes, which migrator's readers skip."""

KeyType = Literal["text", "number", "binary"]
Projection = Literal["all", "keys"]


class KeyAttribute(Struct, frozen=True):
    name: str
    type: KeyType = "text"


class Index(Struct, frozen=True):
    name: str
    partition: tuple[KeyAttribute, ...]
    sort: tuple[KeyAttribute, ...] = ()
    projection: Projection | tuple[str, ...] = "all"
    local: bool = False

    @property
    def attributes(self) -> tuple[KeyAttribute, ...]:
        return self.partition + self.sort

    def own_attributes(self, table: TableDesign) -> tuple[KeyAttribute, ...]:
        base = {attribute.name for attribute in table.key}
        return tuple(attribute for attribute in self.attributes if attribute.name not in base)

    def limit(self, attribute: KeyAttribute) -> int:
        return PARTITION_KEY_BYTES if attribute in self.partition else SORT_KEY_BYTES


@dataclass(frozen=True, slots=True)
class TableDesign:
    """The DynamoDB table of a mapping.

    `ttl`: attribute in epoch seconds.
    `kept`: attributes that services set themselves and no column has; our writes leave them.
    """

    name: str
    key: tuple[KeyAttribute, ...]
    type_attribute: str
    ttl: str | None = None
    separator: str = "#"
    indexes: tuple[Index, ...] = ()
    source_attribute: str = "_src"
    ticket_attribute: str = "_tk"
    revision_attribute: str = "_rev"
    kept: frozenset[str] = frozenset()
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
        """Whether readers skip the item: a tombstone or the control item."""
        return item.get(self.type_attribute) in OWN_TYPES

    def root_of(self, item: Item) -> tuple[str, SourceKey] | None:
        """The item's entity and row key; None if `_src` names none."""
        try:
            return split_source(str(item.get(self.source_attribute, "")))
        except ValueError:
            return None

    def asked(self, index: str | None) -> Index | None:
        """The index of this name, or the table itself seen as one (None); None if no index has the name."""
        if index is None:
            return Index("", self.key[:1], self.key[1:], local=True)
        return next((design for design in self.indexes if design.name == index), None)

    @property
    def global_indexes(self) -> list[str]:
        return [index.name for index in self.indexes if not index.local]

    @property
    def own_attributes(self) -> tuple[str, str, str]:
        return (self.source_attribute, self.ticket_attribute, self.revision_attribute)

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({*self.own_attributes, self.type_attribute, *([self.ttl] if self.ttl else [])})


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
"""Limit of one TransactWriteItems, with at most one action per item."""
TRANSACTION_BYTES = 4 * 1024 * 1024
STATEMENT_BYTES = 8192
"""Limit of a PartiQL statement without its parameters. A BatchExecuteStatement takes as many statements as a batch has
items."""
BATCH_GET_KEYS = 100
QUERY_LIMIT = 2**31 - 1

GLOBAL_INDEXES = 20
LOCAL_INDEXES = 5
PROJECTED_ATTRIBUTES = 100

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
INDEX_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")

CLIMB_LEVELS = 100
"""The most ancestors of a row, itself counted; rows beyond are refused, and so are cycles, which have no end."""


# ── A root row's primary key as text, the `_src` that an item carries, and an item's key as text ──

_EXACT = Context(prec=400)
_AS_TEXT = (Decimal, UUID)
_AS_ISO = (datetime, date, time)


def encode_key(values: Sequence[Any]) -> SourceKey:
    """The key values (from the driver) as a JSON array without spaces.

    Equal keys have equal text. Bytes become {"b64": …}; numbers other than int, UUIDs and times become text,
    which the source reads back as the column's own type.
    Raises: TypeError for a value that no primary key should have.
    """
    if len(values) == 1 and type(values[0]) is int:
        return f"[{values[0]}]"  # most keys are one, and JSON's machinery takes ten times as long
    text = json.dumps([_plain(value) for value in values], ensure_ascii=False, separators=(",", ":"))
    # Half of a surrogate pair, of a source's text that is not UTF-8, as JSON's escape: no database keeps it otherwise.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def item_key_text(values: Sequence[Any]) -> str:
    """encode_key's text of an item's key; numbers that DynamoDB treats as equal have one text."""
    return encode_key([_canonical(value) if isinstance(value, Decimal) else value for value in values])


def item_key_of(text: str, table: TableDesign) -> ItemKey:
    """The inverse of `item_key_text`. Raises: ValueError for any other text."""
    made = {"text": str, "number": Decimal, "binary": bytes}
    values = zip(table.key, decode_key(text), strict=True)
    return tuple(made[attribute.type](str(v) if attribute.type == "number" else v) for attribute, v in values)


KeyOrder: TypeAlias = tuple[Decimal, str]
"""Sort order of a value among those of one key attribute."""


def key_order(value: Value) -> KeyOrder:
    """Numbers in numeric order, texts and bytes in the order of their bytes, as DynamoDB sorts them."""
    if isinstance(value, (int, Decimal)):
        return Decimal(value), ""
    shown = value.hex() if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass").hex()
    return Decimal(0), shown


def _canonical(number: Decimal) -> int | Decimal:
    whole = number == number.to_integral_value(context=_EXACT)
    return int(number) if whole else number.normalize(_EXACT)


@functools.lru_cache(maxsize=4096)
def decode_key(text: SourceKey) -> tuple[Any, ...]:
    """The values in the text of `encode_key`, ready to be bound.

    Raises: ValueError for text that is not a key.
    """
    values = json.loads(text)
    if not isinstance(values, list) or not values:
        raise ValueError("a key is a JSON array with at least one value")
    return tuple(base64.b64decode(value["b64"]) if isinstance(value, dict) else value for value in values)


def source_text(entity: str, key: SourceKey) -> str:
    return f"{entity}:{key}"


@functools.lru_cache(maxsize=4096)
def split_source(text: str) -> tuple[str, SourceKey]:
    """Entity and key of a `_src` text. Raises: ValueError for a text that migrator did not write."""
    entity, colon, key = text.partition(":")
    if not colon or not entity:
        raise ValueError("not a source row in text form")
    decode_key(key)
    return entity, key


def source_named(text: str) -> str:
    """The text of a source row, or '': foreign text must not be quoted, since it may contain anything."""
    try:
        split_source(text)
    except ValueError:
        return ""
    return text


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value + 0.0  # -0.0 equals 0.0 in every source, and so must its text
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, _AS_ISO):
        return value.isoformat(" ") if isinstance(value, datetime) else value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b64": base64.b64encode(bytes(value)).decode("ascii")}
    raise TypeError(f"a key of type {type(value).__name__} cannot be written as text")
