"""Items in DynamoDB's own form: {"S": …}, {"N": …}."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

from migrator.model.errors import RowError
from migrator.model.table import NESTING_LEVELS, Item, Value

Wire = dict[str, Any]

_EXACT = Context(prec=60, Emax=999_999, Emin=-999_999)


def encode_item(item: Item) -> dict[str, Wire]:
    """The item's attributes in wire form.

    Raises: RowError naming the attribute whose value has no DynamoDB type.
    """
    wired = {}
    for name, value in item.items():
        try:
            wired[name] = encode(value)
        except TypeError as error:
            raise RowError(f"the attribute {name} has no DynamoDB type ({error})") from None
    return wired


def decode_item(wired: Mapping[str, Wire]) -> Item:
    """The item as plain values; a number is an int where it is whole, else a Decimal."""
    return {name: decode(value) for name, value in wired.items()}


def encode(value: Value, level: int = 1) -> Wire:
    """One value in wire form; equal numbers have equal text."""
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, Decimal)):
        return {"N": number_text(value)}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bytes):
        return {"B": value}
    if level > NESTING_LEVELS:
        raise TypeError(f"nested deeper than {NESTING_LEVELS} levels")
    if isinstance(value, list):
        return {"L": [encode(one, level + 1) for one in value]}
    if isinstance(value, dict):
        return {"M": {name: encode(one, level + 1) for name, one in value.items()}}
    raise TypeError(type(value).__name__)


def decode(wired: Wire) -> Value:
    """The plain value of a wire form; sets, which we never write, become sorted lists."""
    ((type_, value),) = wired.items()
    return _DECODERS[type_](value)  # type: ignore[no-any-return]


def number_text(value: int | Decimal) -> str:
    """The number without an exponent where that is short, without useless zeros."""
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


_DECODERS: dict[str, Any] = {
    "S": lambda value: value,
    "N": _number,
    "BOOL": lambda value: value,
    "NULL": lambda value: None,
    "B": bytes,
    "L": lambda value: [decode(one) for one in value],
    "M": lambda value: {name: decode(one) for name, one in value.items()},
    "SS": sorted,
    "NS": lambda value: sorted(_number(one) for one in value),
    "BS": lambda value: sorted(bytes(one) for one in value),
}
