"""Values of a row in one exact Python form per kind: from a driver's value, numbers, times, nested and JSON ones."""

from __future__ import annotations

import decimal
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_EVEN, Context, Decimal, DecimalException, InvalidOperation
from enum import Enum, auto
from functools import cache, partial
from typing import Any
from uuid import UUID

from msgspec import Struct

from migrator.mapping.model.facts import Kind, KindName
from migrator.mapping.model.table import (
    NESTING_LEVELS,
    NUMBER_DIGITS,
    NUMBER_MAX_EXPONENT,
    NUMBER_MIN_EXPONENT,
    SetOf,
    Value,
)
from migrator.runtime.errors import RowError

# ── Values without a form in their column's kind, and the text that `|text` keeps of them instead ──

# No longer than any number or moment, and of characters that a check of keys can count on (mapping/check/values.py).
_PLAIN_TEXT = re.compile(r"[0-9A-Za-z :.+,/-]{1,100}")


class NoFormError(RowError):
    """A RowError for a value that has a complete `text` nevertheless."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.text = text


class NotHeldError(NoFormError):
    """A value with its own name, which the message contains: NaN, infinity, a year BC."""


def without_advice(error: RowError) -> str:
    return str(error).partition("; write |text")[0]


class Undecodable(Struct, frozen=True):
    """A value in a decoded row that refuses the row, except as text.

    `text` None: it has none, as a list of too many children.
    """

    text: str | None
    reason: str

    def __iter__(self) -> Iterator[object]:
        raise RowError(self.reason)


def of_column(path: str, error: RowError) -> str:
    """The reason with the column, also in the advice: `total|text` can be copied into the mapping."""
    return f"column {path}: {str(error).replace('write |text', f'write {path}|text')}"


def misfit(reason: str, raw: Any) -> RowError:
    if isinstance(raw, bool):
        return RowError(reason)
    if isinstance(raw, (int, float, Decimal)):
        return NoFormError(reason, number_text(raw))
    if isinstance(raw, str) and _PLAIN_TEXT.fullmatch(raw):
        return NoFormError(reason, raw)
    return RowError(reason)


def number_text(raw: int | float | Decimal) -> str:
    number = Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)
    return format(number, "f")


def as_text(value: Any) -> Any:
    return value.text if type(value) is Undecodable else value


# ── Numbers: from a driver's value to an exact int or Decimal that DynamoDB can store ──

_EXACT = Context(prec=400)
_TRAPS = [decimal.Inexact, decimal.Overflow, decimal.Subnormal]
_STORABLE = Context(NUMBER_DIGITS, Emin=NUMBER_MIN_EXPONENT, Emax=NUMBER_MAX_EXPONENT, traps=_TRAPS)
"""Raises for a number that DynamoDB does not store."""
_NOISE = Decimal("1e-9")
"""How far a binary float may lie from its declared decimals, relative to its size, before it counts as another number."""
_AS_TEXT = "write |text to keep it as text"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_SINGLE_DIGITS = range(6, 10)
"""Numbers of significant digits, one of which always identifies a 32-bit float. Source: IEEE 754."""


def checked_number(value: Decimal) -> Decimal:
    """Source: AWS Developer Guide, "Naming rules and data types", Number. Raises: NoFormError."""
    if value and value.is_finite():
        try:
            _STORABLE.plus(value)
            return value
        except DecimalException:
            pass  # below is why
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _not_finite("NaN" if value.is_nan() else format(value, "f"), str(value))
    if not value:
        return Decimal(0) if sign or exponent else value
    if len(digits) > NUMBER_DIGITS and len(bytes(digits).strip(b"\0")) > NUMBER_DIGITS:
        raise NoFormError(f"a number of more than {NUMBER_DIGITS} digits; {_AS_TEXT}", number_text(value))
    if not NUMBER_MIN_EXPONENT <= len(digits) + exponent - 1 <= NUMBER_MAX_EXPONENT:
        raise NoFormError(f"a number outside DynamoDB's range; {_AS_TEXT}", number_text(value))
    return value


def is_finite(raw: Decimal | float) -> bool:
    # math.isfinite raises for a signalling NaN.
    return raw.is_finite() if isinstance(raw, Decimal) else math.isfinite(raw)


def _number(kind: Kind, raw: Any) -> Decimal:
    if isinstance(raw, (int, Decimal)):
        number, allowed = checked_number(Decimal(raw)), Decimal(0)
    elif isinstance(raw, float):
        number = decimal_of(raw)
        allowed = _NOISE * max(abs(number), Decimal(1))
    else:
        raise _no_number(raw)
    return number if kind.scale is None else checked_number(_with_scale(number, kind.scale, allowed))


def _with_scale(number: Decimal, scale: int, allowed: Decimal) -> Decimal:
    """Rounded to the declared decimals, if that changes the number by at most `allowed`.

    This restores the decimals that a float's binary form blurred.
    """
    if number and number.same_quantum(_quantum(scale)):
        return number
    try:
        rounded = number.quantize(_quantum(scale), ROUND_HALF_EVEN, _EXACT)
    except InvalidOperation:
        raise misfit(f"a number of more than {NUMBER_DIGITS} digits; {_AS_TEXT}", number) from None
    if abs(rounded - number) > allowed:
        raise misfit("the number has more decimals than its column declares", number)
    return rounded


@cache
def _quantum(scale: int) -> Decimal:
    return Decimal(1).scaleb(-scale)


def _no_number(raw: Any) -> RowError:
    """PostgreSQL's JSON writes NaN and infinity as texts."""
    if raw in _NOT_FINITE:
        return _not_finite(raw, raw)
    return misfit("the value is not a number, but the column is declared as one", raw)


def _not_finite(name: str, text: str) -> NotHeldError:
    return NotHeldError(f"the value is {name}; NaN and infinity are not DynamoDB numbers; {_AS_TEXT}", text)


def decimal_of(raw: float) -> Decimal:
    """The shortest decimal that is this 64-bit float. Raises: NoFormError."""
    return checked_number(Decimal(repr(raw))) if math.isfinite(raw) else checked_number(Decimal(raw))


def _float(kind: Kind, raw: Any) -> Decimal:
    if isinstance(raw, float):
        return (_single(raw) if kind.single else None) or decimal_of(raw)
    if isinstance(raw, (int, Decimal)):
        return checked_number(Decimal(raw))
    raise _no_number(raw)


def _single(raw: float) -> Decimal | None:
    """The shortest decimal that is this 32-bit float; None if the value is not one, such as a sum."""
    if not _is_single(raw, raw):
        return None
    texts = (f"{raw:.{digits}g}" for digits in _SINGLE_DIGITS)
    return next(Decimal(text) for text in texts if _is_single(float(text), raw))


def _is_single(number: float, raw: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == raw)
    except OverflowError:
        return False


# ── Dates, times of day and timestamps: from a driver's value to Python's own ──

# Python takes it for the next midnight from 3.13 on; a time of day cannot, and versions must not differ.
_END_OF_DAY = {datetime: re.compile(r"[T ]24"), time: re.compile(r"^T?24")}
"""By type, since the text of a date may also begin with 24: the year 2400."""


def _date(_: Kind, raw: Any) -> date:
    moment = _from_iso(raw, datetime, "a date") if isinstance(raw, str) else raw
    if isinstance(moment, datetime):
        if moment.time() != time(0):
            raise misfit("the value has a time of day, but the column is declared as a date", raw)
        return moment.date()
    if isinstance(moment, date):
        return moment
    raise misfit("the value is not a date, but the column is declared as one", raw)


def _time(_: Kind, raw: Any) -> time:
    value = _from_iso(raw, time, "a time") if isinstance(raw, str) else raw
    if isinstance(value, time):
        return value
    raise misfit("the value is not a time, but the column is declared as one", raw)


def _timestamp(_: Kind, raw: Any) -> datetime:
    """The time in UTC if the value has a zone, else without one."""
    value = _from_iso(raw, datetime, "a timestamp") if isinstance(raw, str) else raw
    if not isinstance(value, datetime):
        raise misfit("the value is not a timestamp, but the column is declared as one", raw)
    try:
        return value.astimezone(UTC) if value.tzinfo else value
    except OverflowError:
        raise misfit("the time is outside the years 1 to 9999 in UTC", raw) from None


def moment_of(value: Any) -> datetime:
    """A date is its midnight.

    Raises: RowError for anything else, which a column without a declared type may hold.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    raise RowError("the filter takes a timestamp or a date; give the column that type")


def _from_iso(raw: str, form: Any, called: str) -> Any:
    text = raw.strip()
    try:
        if not _END_OF_DAY[form].search(text):
            return form.fromisoformat(text)
    except ValueError:
        pass
    as_text = "write |text to keep it as text"
    unknown = next((name for form, name in _BEYOND if form.fullmatch(text)), "")
    if unknown:
        what = f"the value is {unknown}; {called} in an item must be in the years 1 to 9999"
        raise NotHeldError(f"{what}; {as_text}", raw)
    what = f"the text is not {called} in ISO 8601 form (or is outside the years 1 to 9999)"
    raise misfit(f"{what}; {as_text}", raw)


_BEYOND = (
    (re.compile(r"\+?infinity", re.IGNORECASE), "infinity"),
    (re.compile(r"-infinity", re.IGNORECASE), "-infinity"),
    (re.compile(r"[0-9 :.+-]{1,60} BC"), "a year BC"),
)
"""Moments of PostgreSQL without a value in Python, and their names."""


# ──
# Values that hold values: JSON documents, arrays, composites, hstores and MySQL's SETs, as plain lists and
# maps.

Decoder = Callable[[Any], Any]
"""From a driver's value to its Python form."""


def encodable(raw: str) -> str:
    try:
        raw.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("the text is not valid Unicode (half of a surrogate pair)") from None
    return raw


class _JsonNull(Enum):
    """The JSON document `null`, unlike SQL's NULL: the attribute has the type NULL."""

    NULL = auto()


JSON_NULL = _JsonNull.NULL


def _refusing_whole(decode: Callable[..., Any]) -> Callable[..., Any]:
    def whole(*given: Any) -> Any:
        try:
            return decode(*given)
        except NoFormError as error:
            what = f"a value inside it: {without_advice(error)}"
            raise RowError(f"{what}; cast a column of its SQL to text") from None

    return whole


@_refusing_whole
def _json(_: Kind, raw: Any) -> Any:
    value = _plain_json(_parsed(raw) if isinstance(raw, str) else raw, 1)
    return JSON_NULL if value is None else value


def stored(value: Any) -> Value:
    return None if value is JSON_NULL else value


def _list_decoder(kind: Kind) -> Decoder:
    element = kind.element or Kind("plain")
    of_json, of_driver = _of_json(element), _in_item(element)

    def decode(raw: Any) -> list[Any]:
        elements = _parsed(raw) if isinstance(raw, str) else raw
        if not isinstance(elements, list):
            raise RowError("the value is not an array, but the column is declared as one")
        made = _elements(elements, of_json if isinstance(raw, str) else of_driver)
        return SetOf(made) if isinstance(elements, SetOf) else made

    return _refusing_whole(decode)


def _map_decoder(kind: Kind) -> Decoder:
    """Decode JSON text. A composite's NULL field is left out; an hstore's is kept."""
    of_json = _map_of_json(kind)

    def decode(raw: Any) -> Any:
        fields = _parsed(raw) if isinstance(raw, str) else raw
        if not isinstance(fields, Mapping):
            raise RowError("the value has no fields, but the column is declared with some")
        return of_json(fields)

    return _refusing_whole(decode)


def _set(_: Kind, raw: Any) -> list[str]:
    """Members contain no comma, and come in the declared order."""
    if not isinstance(raw, str):
        raise RowError("the value is not a set, but the column is declared as one")
    return [encodable(member) for member in raw.split(",")] if raw else []


def set_of(elements: Any) -> SetOf | None:
    """A set with each value once and in order; None for none, since DynamoDB has no empty set."""
    if not isinstance(elements, list):
        raise RowError("the value is not an array, and only an array becomes a set")
    if None in elements or JSON_NULL in elements:
        raise RowError(
            "a member of the set is NULL; remove it, or write |or:'text' before |set for a list of rows"
        )
    members: list[Any] = [attribute(element) for element in elements]
    if not any(all(type(one) in types for one in members) for types in _OF_SETS):
        raise RowError("the members of a set must be all texts, all numbers or all bytes")
    return SetOf(sorted(set(members))) if members else None


_OF_SETS: tuple[set[type], ...] = ({str}, {int, Decimal}, {bytes})


# ── JSON ──


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, InvalidOperation, RecursionError):
        raise RowError("the text is not JSON, but the column is declared as one") from None


def _plain_json(value: Any, level: int) -> Value:
    if level > NESTING_LEVELS:
        raise RowError(f"JSON nested deeper than {NESTING_LEVELS} levels, more than an item can hold")
    if isinstance(value, Mapping):
        return {encodable(str(name)): _plain_json(child, level + 1) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        children = [_plain_json(child, level + 1) for child in value]
        return SetOf(children) if isinstance(value, SetOf) else children
    if isinstance(value, float):
        return decimal_of(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)):
        checked_number(Decimal(value))
        return value
    if value is not None and not isinstance(value, str):
        raise RowError("the value is not JSON, but the column is declared as one")
    return None if value is None else encodable(value)


# ── JSON written by the source ──


def _of_json(kind: Kind) -> Decoder:
    if kind.name == "list":
        element = _of_json(kind.element or Kind("plain"))
        return lambda value: _elements(value, element)
    if kind.name == "map":
        return _map_of_json(kind)
    scalar = _in_item(kind)
    special: dict[str, Decoder] = {
        "json": lambda value: _plain_json(value, 1),
        "binary": lambda value: bytes.fromhex(value.removeprefix("\\x")),
        # PostgreSQL writes an oid as a text of digits.
        "integer": lambda value: scalar(
            int(value) if isinstance(value, str) and value.isdecimal() else value
        ),
    }
    return special.get(kind.name, scalar)


def _elements(value: Any, element: Decoder) -> Any:
    if isinstance(value, list):
        return [None if child is None else _elements(child, element) for child in value]
    return element(value)


def _map_of_json(kind: Kind) -> Decoder:
    if kind.element is not None:
        each = _of_json(kind.element)
        return lambda value: {
            name: None if field_value is None else each(field_value) for name, field_value in value.items()
        }
    fields = [(name, _of_json(field)) for name, field in kind.fields]
    return lambda value: {name: of(value[name]) for name, of in fields if value.get(name) is not None}


# ──
# Values of a row: from what a driver gives to one exact Python form per kind, and on to attributes and
# text.


def decoder(kind: Kind) -> Decoder:
    """A function from a driver's value to the kind's Python form; NULL stays None.

    Forms: int, Decimal (number, float), str (text, uuid, bits), bool, date, time, datetime, bytes, plain JSON
    values (JSON_NULL for the document `null`), list and dict of such forms. A datetime is in UTC if the value
    had a zone, else it has none. The function raises RowError, without the value in its message, for values
    that do not fit the declared type: NoFormError if `|text` may keep it.
    """
    nested = _NESTED.get(kind.name)
    decode = partial(_DECODERS[kind.name], kind) if nested is None else nested(kind)
    return lambda raw: None if raw is None else decode(raw)


def fitting(value: Any) -> Any:
    """Raises: RowError if the value is Undecodable."""
    if type(value) is Undecodable:
        raise RowError(value.reason)
    return value


def attribute(value: Any) -> Value:
    """Convert times and dates to ISO 8601 text."""
    if isinstance(value, (datetime, date, time)):
        return text(value)
    fits = fitting(value)
    if isinstance(fits, (dict, list)):
        _refuse_unnamed(fits)
    return fits  # type: ignore[no-any-return]


def _refuse_unnamed(value: Any) -> None:
    """Raises: RowError for an empty name. Source: AWS Developer Guide, "Naming rules in DynamoDB": at least one
    byte.
    """
    if isinstance(value, dict) and "" in value:
        raise RowError("a name in a map is empty, which DynamoDB does not allow; |json stores it as text")
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, (dict, list)):
            _refuse_unnamed(child)


def text(value: Any) -> str:
    """A value's form in a template. Timestamps have 6 decimals, and Z if they have a zone; numbers have no
    exponent.
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
        raise RowError("bytes cannot be written as text; use |hash, or a key of type binary")
    fitting(value)
    raise RowError("a value of this type cannot be written as text; use a filter such as json")


def undamaged_text(value: Any) -> str:
    return value.text if isinstance(value, Undecodable) and value.text is not None else text(value)


def _integer(_: Kind, raw: Any) -> int:
    if isinstance(raw, int):
        return int(raw)
    if isinstance(raw, (Decimal, float)) and is_finite(raw) and raw == int(raw):
        return int(raw)
    raise misfit("the value is not an integer, but the column is declared as one", raw)


def _text(_: Kind, raw: Any) -> str:
    if not isinstance(raw, str):
        raise RowError("the value is not a text, but the column is declared as one")
    return encodable(raw)


def _boolean(_: Kind, raw: Any) -> bool:
    # The type comes first: comparing a signalling NaN raises.
    if isinstance(raw, int) and raw in (0, 1):
        return bool(raw)
    reason = "the value is neither true nor false, but the column is declared boolean"
    raise misfit(f"{reason}: write |text, or a column made by SQL (columns:)", raw)


def _uuid(_: Kind, raw: Any) -> str:
    try:
        return str(raw if isinstance(raw, UUID) else UUID(raw))
    except (ValueError, AttributeError, TypeError):
        raise RowError("the value is not a UUID, but the column is declared as one") from None


def _binary(_: Kind, raw: Any) -> bytes:
    if isinstance(raw, (bytes, bytearray, memoryview)):
        return bytes(raw)
    raise RowError("the value is not binary, but the column is declared as one")


def _bits(kind: Kind, raw: Any) -> str:
    if isinstance(raw, int):
        return format(raw, f"0{kind.length or 1}b")
    if isinstance(raw, str) and not set(raw) - {"0", "1"}:
        return raw
    raise RowError("the value is not a bit string, but the column is declared as one")


def _in_item(kind: Kind) -> Decoder:
    decode = decoder(kind)
    return lambda raw: stored(attribute(decode(raw)))


def _as_given(kind: Kind, raw: Any) -> Any:
    if isinstance(raw, SetOf):
        return SetOf(_as_given(kind, member) for member in raw)
    for types, name in _BY_PYTHON_TYPE:
        if isinstance(raw, types):
            return _DECODERS[name](kind, raw)
    raise RowError("the value's type is not supported here; give the column a type")


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


def _unknown(_: Kind, raw: Any) -> Any:
    raise RowError("the column's type cannot be stored in an item; read it as text with columns:")


_DECODERS: dict[KindName, Callable[[Kind, Any], Any]] = {
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
    "bits": _bits,
    "json": _json,
    "set": _set,
    "plain": _as_given,
    "unknown": _unknown,
}
_NESTED: dict[KindName, Callable[[Kind], Decoder]] = {"list": _list_decoder, "map": _map_decoder}
"""Kinds with values of other kinds, whose decoders are looked up once."""

_NUMBERS = (int, Decimal)
PYTHON_FORMS: Mapping[str, tuple[tuple[type, ...], Decoder]] = {
    "date": ((str,), date.fromisoformat),
    "time": ((str,), time.fromisoformat),
    "timestamp": ((str,), datetime.fromisoformat),
    "uuid": ((str,), UUID),
    "number": (_NUMBERS, Decimal),
    "float": (_NUMBERS, float),
}
"""By kind, the types in an attribute, and the function that makes Python's own value."""


# ── Values as JSON text, one text for one value on every source ──


def json_text(value: Any) -> str:
    """Decoded values as JSON without spaces, names in order; numbers keep every digit, times are texts.

    Raises: RowError for bytes, which JSON does not know.
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_quoted(name)}:{json_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(json_text(element) for element in value) + "]"
    if isinstance(value, Decimal):
        whole = value == value.to_integral_value()
        return format(value.to_integral_value() if whole else value.normalize(), "f")
    if isinstance(value, bytes):
        raise RowError("bytes cannot be written as JSON; keep the column as binary")
    if value is None or value is JSON_NULL:
        return "null"
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    return _quoted(text(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
