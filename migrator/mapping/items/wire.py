"""Items and keys in DynamoDB's own form, and their costs: bytes, write units, dollars."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from msgspec import Struct, structs

from migrator.mapping.items.filters import NUMBERS
from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.live import Image, Mark
from migrator.mapping.model.table import (
    NESTING_LEVELS,
    READ_UNIT_BYTES,
    WRITE_UNIT_BYTES,
    Index,
    Item,
    ItemKey,
    SetOf,
    TableDesign,
    Value,
)
from migrator.runtime.errors import RowError
from migrator.runtime.values import Summed

WIRE_TYPES: dict[KindName, str] = {
    **dict.fromkeys(NUMBERS, "N"),
    **dict.fromkeys(("json", "map"), "M"),
    **dict.fromkeys(("list", "set"), "L"),
    "boolean": "BOOL",
    "binary": "B",
}
"""DynamoDB's types of values by their kind; of all other kinds an item has a text."""


def wire_type(kind: Kind) -> str:
    if kind.distinct:
        return f"{wire_type(kind.element or Kind('text'))}S"
    return WIRE_TYPES.get(kind.name, "S")


# ──
# An item's key as JSON, each value under its DynamoDB type: in checkpoints, marks and the journal's
# memory.


def write_key(key: ItemKey | None) -> list[dict[str, str]] | None:
    return None if key is None else [_write(value) for value in key]


def read_key(values: list[dict[str, str]] | None) -> ItemKey | None:
    return None if values is None else tuple(_read(value) for value in values)


def write_keys(keys: Sequence[ItemKey]) -> str:
    return json.dumps([write_key(key) for key in keys], ensure_ascii=False)


MARK_COLUMNS = (
    *("id", "table_name", "image_before", "image_after", "root_entity", "root_key", "item_keys"),
    *("work_cursor", "tries"),
)


def mark_of(row: Sequence[Any], read_image: Callable[[str | None], Image | None], age_s: float) -> Mark:
    """The mark in a row of MARK_COLUMNS. An unreadable one has `fault` set: it must not block the others."""
    # Not by name: SQLAlchemy looks each of them up in each row.
    number, table, image_before, image_after, entity, key, item_keys, cursor, tries = row
    keys: tuple[ItemKey, ...] = ()
    fault = ""
    if item_keys:
        try:
            keys = tuple(read for text in json.loads(item_keys) if (read := read_key(text)) is not None)
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError):
            fault = "its item keys are damaged"
    before = read_image(image_before)
    return Mark(
        id=number,
        table=table,
        before=before,
        after=before if image_after == image_before else read_image(image_after),
        root=None if entity is None else (entity, key),
        keys=keys,
        cursor=cursor or "",
        tries=tries,
        fault=fault,
        age_s=max(0.0, age_s),
    )


def _write(value: Any) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode("ascii")}
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _read(value: dict[str, str]) -> Any:
    ((type_, text),) = value.items()
    if type_ == "B":
        return base64.b64decode(text)
    return text if type_ == "S" else Decimal(text)


# ── Items in DynamoDB's own form: {"S": …}, {"N": …} ──

Wire = dict[str, Any]

_CONTAINER_BYTES = 3
_ELEMENT_BYTES = 1

_EXACT = Context(prec=60, Emax=999_999, Emin=-999_999)


def encode_item(item: Item) -> dict[str, Wire]:
    """Raises: as `encode_sized`."""
    return encode_sized(item)[0]


def encode_sized(item: Item) -> tuple[dict[str, Wire], int]:
    """The wire form and `item_bytes`, in one pass. Raises: RowError naming the attribute if its value has no
    DynamoDB type.
    """
    wired: dict[str, Wire] = {}
    size = 0
    for name, value in item.items():
        size += len(name) if name.isascii() else text_bytes(name)
        if type(value) is str:
            wired[name] = {"S": value}
            size += len(value) if value.isascii() else text_bytes(value)
            continue
        try:
            wired[name], value_size = encode_value(value)
        except TypeError as error:
            raise RowError(f"the attribute {name} has no DynamoDB type ({error})") from None
        size += value_size
    return wired, size


def decode_item(wired: Mapping[str, Wire]) -> Item:
    return {name: decode(value) for name, value in wired.items()}


def encode(value: Value) -> Wire:
    """Encode a value; equal numbers have equal text."""
    return {"S": value} if type(value) is str else encode_value(value)[0]


def encode_value(value: Value, level: int = 1) -> tuple[Wire, int]:
    """The wire form, and its bytes without its name (see `value_bytes`). Raises: TypeError if it has no DynamoDB
    type. `level`: nesting depth.
    """
    if isinstance(value, str):
        return {"S": value}, text_bytes(value)
    if isinstance(value, bool):
        return {"BOOL": value}, 1
    if isinstance(value, (int, Decimal)):
        return {"N": number_text(value)}, number_bytes(value)
    if value is None:
        return {"NULL": True}, 1
    if isinstance(value, bytes):
        return {"B": value}, len(value)
    if level > NESTING_LEVELS:
        raise TypeError(f"nested deeper than {NESTING_LEVELS} levels")
    if isinstance(value, SetOf) and value:
        members = [encode_value(member, level + 1) for member in value]
        ((form, _),) = members[0][0].items()
        return {f"{form}S": [wired[form] for wired, _ in members]}, sum(size for _, size in members)
    if isinstance(value, list):
        listed = [encode_value(child, level + 1) for child in value]
        size = _CONTAINER_BYTES + sum(size + _ELEMENT_BYTES for _, size in listed)
        return {"L": [wired for wired, _ in listed]}, size
    if isinstance(value, dict):
        named = {name: encode_value(child, level + 1) for name, child in value.items()}
        inner = sum(text_bytes(name) + size + _ELEMENT_BYTES for name, (_, size) in named.items())
        return {"M": {name: wired for name, (wired, _) in named.items()}}, _CONTAINER_BYTES + inner
    raise TypeError(type(value).__name__)


def decode(wired: Wire) -> Value:
    """Decode a value; set members are in order, which DynamoDB does not keep."""
    ((type_, value),) = wired.items()
    return _DECODERS[type_](value)  # type: ignore[no-any-return]


def number_text(value: int | Decimal) -> str:
    """The number without trailing zeros; without an exponent if that is short."""
    if isinstance(value, int):
        return str(value)
    if value == 0:
        return "0"
    normal = value.normalize(_EXACT)
    exponent = int(normal.as_tuple().exponent)
    return format(normal, "f") if -40 <= exponent <= 40 else str(normal)


def _number(text: str) -> int | Decimal:
    value = Decimal(text)
    return int(value) if value == value.to_integral_value() and abs(value) < 10**40 else value


def _binary(value: bytes | str) -> bytes:
    return base64.b64decode(value) if isinstance(value, str) else bytes(value)


_DECODERS: dict[str, Any] = {
    "S": lambda value: value,
    "N": _number,
    "BOOL": lambda value: value,
    "NULL": lambda value: None,
    "B": _binary,
    "L": lambda value: [decode(child) for child in value],
    "M": lambda value: {name: decode(child) for name, child in value.items()},
    "SS": lambda value: SetOf(sorted(value)),
    "NS": lambda value: SetOf(sorted(_number(child) for child in value)),
    "BS": lambda value: SetOf(sorted(map(_binary, value))),
}


def base64_text(value: Any) -> str:
    """Raises: TypeError for anything but bytes."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)


# ── How many bytes an item takes ──
#
# Source: AWS Developer Guide, "DynamoDB item sizes and formats".


def item_bytes(item: Item) -> int:
    """Stored bytes, attribute names included.

    Shape: plain Python values, not the {"S": …} wire form. Numbers are approximate, as in the guide.
    """
    size = 0
    for name, value in item.items():
        # Most names and values are short ASCII texts: a call for each of them would cost more than the sum.
        size += len(name) if name.isascii() else text_bytes(name)
        size += len(value) if type(value) is str and value.isascii() else value_bytes(value)
    return size


def write_units(size_bytes: int) -> int:
    return max(1, -(-size_bytes // WRITE_UNIT_BYTES))


def units_of_writes(sizes: Collection[int]) -> int:
    if max(sizes, default=0) <= WRITE_UNIT_BYTES:
        return len(sizes)
    return sum(map(write_units, sizes))


def read_units(size_bytes: int, *, consistent: bool) -> float:
    """Read units of one request, also if it finds nothing; half if eventually consistent.

    Source: AWS Developer Guide, "DynamoDB read and write operations".
    """
    return max(1, -(-size_bytes // READ_UNIT_BYTES)) * (1.0 if consistent else 0.5)


def value_bytes(value: Any) -> int:
    if isinstance(value, str):
        return text_bytes(value)
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, (int, Decimal)):
        return number_bytes(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        inner = sum(text_bytes(name) + value_bytes(child) + _ELEMENT_BYTES for name, child in value.items())
        return _CONTAINER_BYTES + inner
    if isinstance(value, SetOf) and value:
        return sum(map(value_bytes, value))
    return _CONTAINER_BYTES + sum(value_bytes(child) + _ELEMENT_BYTES for child in value)


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def number_bytes(value: int | Decimal) -> int:
    """About one byte for two significant digits, one more, and one for a minus; 21 at most."""
    digits = str(abs(value)) if isinstance(value, int) else "".join(map(str, value.as_tuple().digits))
    significant = len(digits.strip("0"))
    return min(21, (significant + 1) // 2 + 1 + (value < 0))


# ── What writing items takes and costs: write units with those of indexes, bytes stored, US dollars ──

ENTRY_OVERHEAD_BYTES = 100
"""Billed with every item and every index entry. Source: AWS Developer Guide, "DynamoDB item sizes and formats"."""
_MILLION = 1_000_000
_GB = 1024**3


class Price(Struct, frozen=True):
    """US dollars.

    Per million read and write request units, GB stored for a month, hour of a provisioned unit.
    `source`: date and page.
    `infrequent`: of the table class for infrequent access.
    `import_gb`: a GB of imported files, None if unknown.
    `glue_worker_hour`, `emr_worker_hour`: a Spark worker of 4 vCPUs and 16 GB, or None.
    """

    region: str
    write: Decimal
    read: Decimal
    storage: Decimal
    source: str
    infrequent: bool = False
    write_hour: Decimal = Decimal(0)
    read_hour: Decimal = Decimal(0)
    import_gb: Decimal | None = None
    glue_worker_hour: Decimal | None = None
    emr_worker_hour: Decimal | None = None


class Estimate(Summed, frozen=True):
    """Cost of rows: items, write units of the table and its indexes, billed bytes."""

    rows: int = 0
    items: int = 0
    table_units: int = 0
    index_units: int = 0
    stored_bytes: int = 0

    @property
    def write_units(self) -> int:
        return self.table_units + self.index_units

    def scaled(self, rows: int) -> Estimate:
        if self.rows == 0:
            return Estimate(rows=rows)
        # Each number · rows / own rows, rounded up.
        return Estimate(*(-(-number * rows // self.rows) for number in structs.astuple(self)))

    def write_cost(self, price: Price) -> Decimal:
        return price.write * self.write_units / _MILLION

    def storage_cost(self, price: Price) -> Decimal:
        return price.storage * self.stored_bytes / _GB


def measure(rows: int, items: Sequence[Item], table: TableDesign) -> Estimate:
    estimate = Estimate(rows=rows, items=len(items))
    for item in items:
        size = item_bytes(item)
        entries = [entry for index in table.indexes if (entry := entry_bytes(item, index, table)) is not None]
        estimate += Estimate(
            table_units=write_units(size),
            index_units=sum(map(write_units, entries)),
            stored_bytes=sum(size_bytes + ENTRY_OVERHEAD_BYTES for size_bytes in (size, *entries)),
        )
    return estimate


def entry_bytes(item: Item, index: Index, table: TableDesign) -> int | None:
    keys = {attribute.name for attribute in index.attributes}
    if not keys <= item.keys():
        return None
    if index.projection == "all":
        return item_bytes(item)
    kept = keys | {attribute.name for attribute in table.key}
    if isinstance(index.projection, tuple):
        kept |= set(index.projection)
    return item_bytes({name: value for name, value in item.items() if name in kept})
