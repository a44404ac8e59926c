"""Values of a row: from what a driver gives to one exact Python form per kind, and on to attributes and text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from migrator.errors import RowError
from migrator.facts import Kind, KindName
from migrator.limits import NESTING_LEVELS, NUMBER_DIGITS, NUMBER_MAX_EXPONENT, NUMBER_MIN_EXPONENT
from migrator.model import Value

Decoder = Callable[[Any], Any]

_EXACT = Context(prec=400)
_NOISE = Decimal("1e-9")
"""How far a binary float may lie from its declared decimals, relative to its size, before it counts as another number."""


def decoder(kind: Kind) -> Decoder:
    """A function from a driver's value to the kind's Python form; NULL stays None.

    Forms: int, Decimal (number, float), str (text, uuid), bool, date, time, datetime, bytes, plain JSON values.
    A datetime has UTC as its zone where the value had one, and none where it had none.
    The function raises RowError, without the value, for what does not fit the declared type.
    """
    decode = _DECODERS[kind.name](kind)
    return lambda raw: None if raw is None else decode(raw)


def attribute(value: Any) -> Value:
    """The form in which a decoded value stands in an item: times and dates as ISO 8601 text."""
    if isinstance(value, (datetime, date, time)):
        return text(value)
    return value  # type: ignore[no-any-return]


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
    raise RowError("a value of this type has no text; use a filter such as json")


def checked_number(value: Decimal) -> Decimal:
    """`value`, if DynamoDB can hold it. Source: AWS Developer Guide, "Naming rules and data types", Number."""
    if not value.is_finite():
        raise RowError("NaN and infinity are no DynamoDB numbers; map the column as text")
    if value == 0:
        return Decimal(0) if value.is_signed() or value.as_tuple().exponent else value
    digits = value.normalize(_EXACT)
    if len(digits.as_tuple().digits) > NUMBER_DIGITS:
        raise RowError(f"a number of more than {NUMBER_DIGITS} digits; map the column as text")
    if not NUMBER_MIN_EXPONENT <= digits.adjusted() <= NUMBER_MAX_EXPONENT:
        raise RowError("a number outside of DynamoDB's range; map the column as text")
    return value


def _integer(_: Kind) -> Decoder:
    def decode(raw: Any) -> int:
        if isinstance(raw, int):
            return int(raw)
        if isinstance(raw, (Decimal, float)) and _is_finite(raw) and raw == int(raw):
            return int(raw)
        raise RowError("the value is no integer, though the column is declared as one")

    return decode


def _is_finite(raw: Decimal | float) -> bool:
    # math.isfinite raises for a signalling NaN.
    return raw.is_finite() if isinstance(raw, Decimal) else math.isfinite(raw)


def _number(kind: Kind) -> Decoder:
    quantum = None if kind.scale is None else Decimal(1).scaleb(-kind.scale)

    def decode(raw: Any) -> Decimal:
        if isinstance(raw, (int, Decimal)):
            return checked_number(_with_scale(Decimal(raw), quantum, exact=True))
        if isinstance(raw, float):
            return checked_number(_with_scale(_decimal(raw), quantum, exact=False))
        raise RowError("the value is no number, though the column is declared as one")

    return decode


def _with_scale(number: Decimal, quantum: Decimal | None, *, exact: bool) -> Decimal:
    """`number` with the declared decimals. A float is given back the decimals that its binary form blurred."""
    if quantum is None or not number.is_finite():
        return number
    rounded = number.quantize(quantum, ROUND_HALF_EVEN, _EXACT)
    allowed = Decimal(0) if exact else _NOISE * max(abs(number), Decimal(1))
    if abs(rounded - number) > allowed:
        raise RowError("the number has more decimals than its column declares")
    return rounded


def _decimal(raw: float) -> Decimal:
    if not math.isfinite(raw):
        raise RowError("NaN and infinity are no DynamoDB numbers; map the column as text")
    return Decimal(repr(raw))


def _float(_: Kind) -> Decoder:
    def decode(raw: Any) -> Decimal:
        if isinstance(raw, float):
            return checked_number(_decimal(raw))
        if isinstance(raw, (int, Decimal)):
            return checked_number(Decimal(raw))
        raise RowError("the value is no number, though the column is declared as one")

    return decode


def _text(_: Kind) -> Decoder:
    def decode(raw: Any) -> str:
        if not isinstance(raw, str):
            raise RowError("the value is no text, though the column is declared as one")
        return _encodable(raw)

    return decode


def _encodable(raw: str) -> str:
    try:
        raw.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("the text is not valid Unicode (half of a surrogate pair)") from None
    return raw


def _boolean(_: Kind) -> Decoder:
    def decode(raw: Any) -> bool:
        if raw in (0, 1) and isinstance(raw, int):
            return bool(raw)
        raise RowError("the value is neither true nor false, though the column is declared boolean")

    return decode


def _date(_: Kind) -> Decoder:
    def decode(raw: Any) -> date:
        moment = _from_iso(raw, datetime, "a date") if isinstance(raw, str) else raw
        if isinstance(moment, datetime):
            if moment.time() != time(0):
                raise RowError("the value has a time of day, though the column is declared as a date")
            return moment.date()
        if isinstance(moment, date):
            return moment
        raise RowError("the value is no date, though the column is declared as one")

    return decode


def _time(_: Kind) -> Decoder:
    def decode(raw: Any) -> time:
        value = _from_iso(raw, time, "a time") if isinstance(raw, str) else raw
        if isinstance(value, time):
            return value
        raise RowError("the value is no time, though the column is declared as one")

    return decode


def _timestamp(_: Kind) -> Decoder:
    def decode(raw: Any) -> datetime:
        value = _from_iso(raw, datetime, "a timestamp") if isinstance(raw, str) else raw
        if not isinstance(value, datetime):
            raise RowError("the value is no timestamp, though the column is declared as one")
        return value.astimezone(UTC) if value.tzinfo else value

    return decode


def _from_iso(raw: str, form: Any, called: str) -> Any:
    try:
        return form.fromisoformat(raw.strip())
    except ValueError:
        raise RowError(f"the text is not {called} in ISO 8601 form") from None


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


def _json(_: Kind) -> Decoder:
    def decode(raw: Any) -> Value:
        if isinstance(raw, str):
            try:
                raw = json.loads(raw, parse_float=Decimal)
            except (ValueError, InvalidOperation, RecursionError):
                raise RowError("the text is no JSON, though the column is declared as one") from None
        return _plain_json(raw, 1)

    return decode


def _plain_json(value: Any, level: int) -> Value:
    if level > NESTING_LEVELS:
        raise RowError(f"JSON nested deeper than {NESTING_LEVELS} levels, more than an item can hold")
    if isinstance(value, Mapping):
        return {_encodable(str(name)): _plain_json(child, level + 1) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_json(child, level + 1) for child in value]
    if isinstance(value, float):
        return checked_number(_decimal(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)):
        checked_number(Decimal(value))
        return value
    return _encodable(value) if isinstance(value, str) else None


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
        raise RowError("the column's type has no rule here; leave it out with keep: {except: […]}")

    return decode


_DECODERS: dict[KindName, Callable[[Kind], Decoder]] = {
    "integer": _integer,
    "number": _number,
    "float": _float,
    "text": _text,
    "boolean": _boolean,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "uuid": _uuid,
    "binary": _binary,
    "json": _json,
    "plain": _as_given,
    "unknown": _unknown,
}
