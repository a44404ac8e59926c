"""Values of a row: from what a driver gives to one exact Python form per kind, and on to attributes and text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.errors import RowError
from migrator.facts import Kind, KindName
from migrator.mapping.nested import encodable, json_decoder, list_decoder, map_decoder, set_decoder
from migrator.mapping.numbers import float_decoder, integer_decoder, number_decoder
from migrator.mapping.times import date_decoder, time_decoder, timestamp_decoder
from migrator.mapping.unfit import Unfit, fitting, misfit
from migrator.model import Value

Decoder = Callable[[Any], Any]


def decoder(kind: Kind) -> Decoder:
    """A function from a driver's value to the kind's Python form; NULL stays None.

    Forms: int, Decimal (number, float), str (text, uuid, bits), bool, date, time, datetime, bytes, plain JSON values,
    list and dict of such forms. A datetime has UTC as its zone where the value had one, and none where it had none.
    The function raises RowError, without the value in its message, for what does not fit the declared type:
    NoFormError where `|text` may keep it.
    """
    decode = _DECODERS[kind.name](kind)
    return lambda raw: None if raw is None else decode(raw)


def attribute(value: Any) -> Value:
    """The form in which a decoded value stands in an item: times and dates as ISO 8601 text."""
    if isinstance(value, (datetime, date, time)):
        return text(value)
    return fitting(value)  # type: ignore[no-any-return]


def text(value: Any) -> str:
    """The form in which a decoded value stands in a template.

    Timestamps have 6 decimals, and Z where they have a zone; numbers are written out without an exponent.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat("T", "microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        raise RowError("bytes have no text; use |hash, or a key of type binary")
    fitting(value)
    raise RowError("a value of this type has no text; use a filter such as json")


def undamaged_text(value: Any) -> str:
    """The same, and the whole text of a value that its kind has no form for."""
    return value.text if isinstance(value, Unfit) and value.text is not None else text(value)


def _text(_: Kind) -> Decoder:
    def decode(raw: Any) -> str:
        if not isinstance(raw, str):
            raise RowError("the value is no text, though the column is declared as one")
        return encodable(raw)

    return decode


def _boolean(_: Kind) -> Decoder:
    def decode(raw: Any) -> bool:
        # The type comes first: comparing a signalling NaN raises.
        if isinstance(raw, int) and raw in (0, 1):
            return bool(raw)
        raise misfit("the value is neither true nor false, though the column is declared boolean", raw)

    return decode


def _uuid(_: Kind) -> Decoder:
    def decode(raw: Any) -> str:
        try:
            return str(raw if isinstance(raw, UUID) else UUID(raw))
        except (ValueError, AttributeError, TypeError):
            raise RowError("the value is no UUID, though the column is declared as one") from None

    return decode


def _binary(_: Kind) -> Decoder:
    def decode(raw: Any) -> bytes:
        if isinstance(raw, (bytes, bytearray, memoryview)):
            return bytes(raw)
        raise RowError("the value is no binary, though the column is declared as one")

    return decode


def _bits(kind: Kind) -> Decoder:
    def decode(raw: Any) -> str:
        if isinstance(raw, int):
            return format(raw, f"0{kind.length or 1}b")
        if isinstance(raw, str) and not set(raw) - {"0", "1"}:
            return raw
        raise RowError("the value is no bits, though the column is declared as some")

    return decode


def _in_item(kind: Kind) -> Decoder:
    decode = decoder(kind)
    return lambda raw: attribute(decode(raw))


def _as_given(_: Kind) -> Decoder:
    """A value of a type that nobody declared: by the driver's own Python type."""

    def decode(raw: Any) -> Any:
        for types, name in _BY_PYTHON_TYPE:
            if isinstance(raw, types):
                return _DECODERS[name](Kind(name))(raw)
        raise RowError("the value's type has no rule here; give the column a type")

    return decode


_BY_PYTHON_TYPE: tuple[tuple[Any, KindName], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    ((Decimal, float), "float"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "binary"),
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (UUID, "uuid"),
    ((dict, list), "json"),
)


def _unknown(kind: Kind) -> Decoder:
    def decode(raw: Any) -> Any:
        raise RowError("the column's type has no form in an item; read it as text with columns:")

    return decode


_DECODERS: dict[KindName, Callable[[Kind], Decoder]] = {
    "integer": integer_decoder,
    "number": number_decoder,
    "float": float_decoder,
    "text": _text,
    "boolean": _boolean,
    "date": date_decoder,
    "time": time_decoder,
    "timestamp": timestamp_decoder,
    "uuid": _uuid,
    "binary": _binary,
    "bits": _bits,
    "json": json_decoder,
    "list": lambda kind: list_decoder(kind, _in_item),
    "map": lambda kind: map_decoder(kind, _in_item),
    "set": set_decoder,
    "plain": _as_given,
    "unknown": _unknown,
}
