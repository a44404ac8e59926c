"""How many bytes an item takes.

Source: AWS Developer Guide, "DynamoDB item sizes and formats".
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from migrator.limits import READ_UNIT_BYTES, WRITE_UNIT_BYTES
from migrator.model import Item

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
