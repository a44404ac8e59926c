"""Functions that generated modules carry a copy of: values as texts of keys, as attributes, and restored from them.

What stands here is copied as it is, as far as a module needs it, and needs nothing but the standard library. Tests hold
each function against the heart's of the same purpose.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

Item: TypeAlias = dict[str, Any]
"""An item or a key as plain Python values: numbers are int or Decimal, binary values bytes."""


class RefusedError(ValueError):
    """A value that a key, an item or a question cannot hold. The message never contains it."""


_EXACT = Context(prec=400)


# ── values as items have them ──


def _text(value: Any) -> str:
    """A value as text: times with all decimals, Z if they have a zone; numbers without exponent."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format(_decimal(value), "f")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (int, UUID)):
        return str(value)
    if isinstance(value, dt.datetime):
        return _filter_iso(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    raise RefusedError("a value of this type has no text")


def _attribute(value: Any) -> Any:
    """A value as it stands in an item: times and UUIDs as text, floats as exact numbers."""
    if isinstance(value, (dt.date, dt.time, UUID)):
        return _text(value)
    if isinstance(value, (float, Decimal)):
        return _decimal(value)
    if isinstance(value, Mapping):
        return {name: _attribute(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_attribute(inner) for inner in value]
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def _map(entries: Mapping[str, Any]) -> Item:
    return {name: value for name, value in entries.items() if value is not None}


def _by_key(entries: Sequence[tuple[str | None, Item]]) -> Item:
    """A map of the children. Raises: RefusedError for a child without a key, and for two with one."""
    made = {key: child for key, child in entries if key}
    if len(made) < len(entries):
        raise RefusedError("a child has no key of its map, or two have one")
    return made


def _decimal(value: Any, scale: int | None = None) -> Decimal:
    """An exact number with so many decimals. Raises: RefusedError for one that has more."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        raise RefusedError("an item cannot have NaN or infinity")
    if number == 0 and number.is_signed():
        number = abs(number)
    if scale is not None:
        rounded = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
        if rounded != number:
            raise RefusedError(f"a number of more than {scale} decimals")
        number = rounded
    if number and (
        len(bytes(number.as_tuple().digits).strip(b"\0")) > 38 or not -130 <= number.adjusted() <= 125
    ):
        raise RefusedError("a number of more than 38 digits, or outside of DynamoDB's range")
    return number


def _zoned(value: dt.datetime) -> dt.datetime:
    """A moment in UTC. Raises: RefusedError for one without a zone."""
    if value.tzinfo is None:
        raise RefusedError("a datetime without a zone, where one with a zone is taken")
    return value.astimezone(dt.UTC)


def _unzoned(value: dt.datetime) -> dt.datetime:
    if value.tzinfo is not None:
        raise RefusedError("a datetime with a zone, where one without is taken")
    return value


def _moment(value: dt.datetime) -> dt.datetime:
    """A parameter: in UTC where it has a zone."""
    return value.astimezone(dt.UTC) if value.tzinfo else value


def _day(value: dt.date) -> dt.date:
    if isinstance(value, dt.datetime):
        raise RefusedError("a datetime, where a date is taken")
    return value


# ── keys ──


def _key(name: str, value: Any, limit: int) -> Any:
    """The value of a key attribute. Raises: RefusedError for none, and by its length."""
    if value is None:
        raise RefusedError(f"{name} has no value: something that it is made of is None")
    size = len(value.encode() if isinstance(value, str) else value) if isinstance(value, (str, bytes)) else 1
    if not 0 < size <= limit:
        raise RefusedError(f"{name} takes {size} bytes; DynamoDB takes 1 to {limit}")
    return value


def _entry(parts: Mapping[str, tuple[Any, int]]) -> Item | None:
    """The key attributes of an index; None where a value is missing, and the item is not in it."""
    if any(value is None for value, _ in parts.values()):
        return None
    return {name: _key(name, value, limit) for name, (value, limit) in parts.items()}


def _plain_key(item: Item, name: str, type_: str, limit: int) -> None:
    """Looks at an attribute that is the key of an index by its name. Raises: RefusedError."""
    value = item.get(name)
    if value is None:
        return
    types: Mapping[str, Any] = {"text": str, "number": (int, Decimal), "binary": bytes}
    if not isinstance(value, types[type_]) or isinstance(value, bool):
        raise RefusedError(f"{name} is a key of an index, of type {type_}; the value is of another type")
    _key(name, value, limit)


def _number_key(value: Any) -> Any:
    """A number that is a key as it is."""
    return None if value is None else value if isinstance(value, int) else _decimal(value)


def _set(name: str, value: Any) -> Any:
    """A value that a question needs. Raises: RefusedError for None."""
    if value is None:
        raise RefusedError(f"{name}: a parameter of the key is not set")
    return value


def _limit(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise RefusedError("the limit must be a whole number above 0")
    return value


_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float, Decimal),
    "text": (str,),
    "boolean": (bool,),
    "date": (dt.date,),
    "timestamp": (dt.datetime,),
    "uuid": (UUID,),
    "binary": (bytes,),
}
_READ: Mapping[str, Callable[[str], Any]] = {
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "uuid": UUID,
}


def _both(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Two bounds that have parameters. Raises: RefusedError if only one is set."""
    if values.count(None) == 1:
        raise RefusedError(f"of {name} one bound is set and the other is not; give both or neither")
    return values


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value


def _checked(given: Mapping[str, Any], types: Mapping[str, str]) -> Mapping[str, Any]:
    """The parameters of a question; dates, times and UUIDs may be given as texts. Raises:
    RefusedError for None if one is required, and for a value of another type."""
    checked: dict[str, Any] = {}
    for name, type_ in types.items():
        wanted, value = type_.removeprefix("optional "), given[name]
        of = wanted.removeprefix("list of ")
        try:
            if value is None and wanted != type_:
                checked[name] = None
            elif of == wanted:
                checked[name] = _param(of, value)
            else:
                checked[name] = [_param(of, one) for one in _list(value)]
        except (ValueError, TypeError, ArithmeticError):
            raise RefusedError(f"{name}: the parameter must be of the type {wanted}") from None
    return checked


def _refuse_cut(given: Mapping[str, Any], units: Mapping[str, str]) -> None:
    """Raises: RefusedError for a time that is more than its key holds of it."""
    for name, unit in units.items():
        for value in given[name] if isinstance(given[name], list) else [given[name]]:
            if value is not None and not _is_whole(_naive(value), unit):
                raise RefusedError(f"{name}: the key holds only its {unit}")


def _is_whole(moment: dt.datetime, unit: str) -> bool:
    """Whether it is the first moment of its bucket."""
    if (unit == "week" and moment.weekday()) or (unit == "quarter" and moment.month % 3 != 1):
        return False
    kept = _CHARACTERS[unit]
    return moment.isoformat(timespec="microseconds")[kept:] == "0000-01-01T00:00:00.000000"[kept:]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _param(type_: str, given: Any) -> Any:
    """A value of the type. Raises: TypeError, ValueError or OverflowError for another one."""
    value: Any = _READ[type_](given) if isinstance(given, str) and type_ in _READ else given
    if type(value) is bool and type_ != "boolean":
        raise TypeError
    if not issubclass(type(value), _TYPES[type_]):
        raise TypeError
    if type_ == "text":
        value.encode()
    if type_ == "number":
        _decimal(value)
    if type_ == "integer" and not -(2**63) <= value < 2**64:
        raise ValueError
    return _day(value) if type_ == "date" else _moment(value) if type_ == "timestamp" else value


def _padded(value: Any, width: int, decimals: int) -> str:
    """A number with leading zeros, so that texts sort as numbers. Raises: RefusedError."""
    number = _decimal(value)
    if isinstance(value, bool) or number < 0:
        raise RefusedError("a negative number cannot be padded to sort")
    try:
        rounded = number.quantize(Decimal(1).scaleb(-decimals), context=_EXACT)
    except InvalidOperation:
        raise RefusedError("the number is wider than its format") from None
    text = format(rounded, f"0{width}.{decimals}f")
    if rounded != number or len(text) > width:
        raise RefusedError(f"the number does not fit {width} characters with {decimals} decimals")
    return text


def _bound(value: Any, width: int, decimals: int, up: bool) -> str:
    """The padded number; if it cannot be one, the next one up or down, or what sorts before or behind all."""
    try:
        return _padded(value, width, decimals)
    except RefusedError:
        quantum, number = Decimal(1).scaleb(-decimals), _decimal(value)
    most = Decimal(10) ** (width - decimals - 1 if decimals else width) - quantum
    if number < 0 and not up:
        return "-"
    if number > most and up:
        return ":"
    held = min(max(number, Decimal(0)), most)
    rounded = held.quantize(quantum, ROUND_CEILING if up else ROUND_FLOOR, _EXACT)
    return format(rounded, f"0{width}.{decimals}f")


# ── filters of the mapping, by their names ──


def _naive(value: dt.date) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return dt.datetime(value.year, value.month, value.day)


def _filter_iso(value: dt.date, *form: str) -> str:
    moment = _naive(value)
    precision = "milliseconds" if "ms" in form else "seconds" if form else "microseconds"
    text = moment.isoformat("T", precision)
    text = text.replace("-", "").replace(":", "") if "basic" in form else text
    return text + ("Z" if isinstance(value, dt.datetime) and value.tzinfo else "")


def _filter_epoch(value: dt.date, zone: str, form: str = "") -> int:
    moment = value if isinstance(value, dt.datetime) else _naive(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(zone))
    past = moment.replace(tzinfo=None) - dt.datetime(1970, 1, 1) - (moment.utcoffset() or dt.timedelta(0))
    return past // dt.timedelta(milliseconds=1 if form else 1000)


def _filter_lower(value: Any) -> str:
    return _text(value).lower()


def _filter_upper(value: Any) -> str:
    return _text(value).upper()


def _filter_trim(value: Any) -> str:
    return _text(value).strip(" ")


def _filter_rtrim(value: Any) -> str:
    return _text(value).rstrip(" ")


def _filter_text(value: Any) -> str:
    return _text(value)


def _filter_map(value: Any, table: Mapping[str, str]) -> str:
    mapped = table.get(_text(value))
    if mapped is None:
        raise RefusedError("a value that the mapping's map does not list")
    return mapped


def _filter_escape(value: Any, separator: str) -> str:
    """The text with % and the separator's characters percent-encoded."""
    codes = {ord(char): "".join(f"%{byte:02X}" for byte in char.encode()) for char in {*separator, "%"}}
    return _text(value).translate(codes)


def _digest(value: Any) -> bytes:
    return hashlib.sha256(value if isinstance(value, bytes) else _text(value).encode()).digest()


def _filter_hash(value: Any) -> str:
    return _digest(value).hex()[:32]


def _shard_text(number: int, count: int) -> str:
    return f"{number:0{len(str(count - 1))}}"


def _filter_shard(value: Any, count: str) -> str:
    return _shard_text(int.from_bytes(_digest(value)[:8], "big") % int(count), int(count))


def _filter_desc(value: Any) -> str:
    """Each digit's complement to 9, so that what is larger sorts first."""
    text = _text(value)
    if set(text) - set("0123456789-:.TZWQ"):
        raise RefusedError("only a padded number or a date can be turned round")
    return text.translate(str.maketrans("0123456789", "9876543210"))


def _filter_json(value: Any) -> str:
    """JSON without spaces, names in order, every digit kept."""
    if isinstance(value, Mapping):
        entries = (f"{_filter_json(str(name))}:{_filter_json(value[name])}" for name in sorted(value))
        return "{" + ",".join(entries) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_filter_json, value)) + "]"
    if isinstance(value, (float, Decimal)):
        number = _decimal(value)
        whole = number.to_integral_value()
        return format(whole if whole == number else number.normalize(), "f")
    if isinstance(value, bytes):
        raise RefusedError("bytes have no JSON")
    if value is None or isinstance(value, (bool, int)):
        return json.dumps(value)
    return json.dumps(_text(value), ensure_ascii=False)


def _filter_path(elements: Sequence[Any], separator: str) -> str | None:
    if None in elements:
        return None
    parts = [_text(value) for value in elements]
    if any(separator in part for part in parts):
        raise RefusedError("a part of the path holds the separator")
    return separator.join(parts)


def _filter_first(elements: Sequence[Any]) -> Any:
    return elements[0] if elements else None


def _filter_at(elements: Sequence[Any], number: str) -> Any:
    return elements[int(number) - 1] if len(elements) >= int(number) else None


def _filter_depth(elements: Sequence[Any]) -> int:
    return len(elements)


def _filter_set(elements: Sequence[Any]) -> set[Any] | None:
    """The set of these values; None of none, since DynamoDB has no empty set."""
    members = {_attribute(value) for value in elements}
    if not any(all(type(one) in types for one in members) for types in ({str}, {int, Decimal}, {bytes})):
        raise RefusedError("the members of a set are all texts, all numbers or all bytes")
    return members or None


_CHARACTERS = {
    "millisecond": 23,
    "second": 19,
    "hour": 13,
    "day": 10,
    "week": 10,
    "month": 7,
    "quarter": 7,
    "year": 4,
}


def _filter_bucket(value: dt.date, unit: str) -> str:
    moment = _naive(value)
    if unit == "week":
        year, week, _ = moment.isocalendar()
        return f"{year:04}-W{week:02}"
    text = moment.isoformat(timespec="microseconds")
    return f"{text[:4]}-Q{(moment.month + 2) // 3}" if unit == "quarter" else text[: _CHARACTERS[unit]]


def _filter_date(value: dt.date) -> str:
    return _filter_bucket(value, "day")


def _filter_week(value: dt.date) -> str:
    return _filter_bucket(value, "week")


def _filter_month(value: dt.date) -> str:
    return _filter_bucket(value, "month")


def _filter_quarter(value: dt.date) -> str:
    return _filter_bucket(value, "quarter")


def _filter_year(value: dt.date) -> str:
    return _filter_bucket(value, "year")


_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"


def _filter_geohash(latitude: Any, longitude: Any, precision: str) -> str:
    """The cell of a place in degrees. Raises: RefusedError for one that is not on the earth."""
    place = {"latitude": (float(latitude), 90.0), "longitude": (float(longitude), 180.0)}
    for called, (degrees, most) in place.items():
        if not -most <= degrees <= most:
            raise RefusedError(f"the {called} is not between -{most:.0f} and {most:.0f} degrees")
    sides = [(float(longitude), -180.0, 180.0), (float(latitude), -90.0, 90.0)]
    number, bits = 0, 5 * int(precision)
    for bit in range(bits):
        degrees, low, high = sides[bit % 2]
        middle = (low + high) / 2
        upper = degrees >= middle
        number = number * 2 + upper
        sides[bit % 2] = (degrees, middle, high) if upper else (degrees, low, middle)
    return "".join(_BASE32[number >> (bits - 5 * place) & 31] for place in range(1, int(precision) + 1))


# ── conditions of the mapping ──


def _holds(value: Any, allowed: Sequence[Any] | None) -> bool:
    """Whether a value is there, or among the allowed ones."""
    if allowed is None or value is None:
        return value is not None if allowed is None else None in allowed
    return any(_same(value, permitted) for permitted in allowed)


def _same(value: Any, allowed: Any) -> bool:
    if isinstance(value, bool) or isinstance(allowed, bool):
        return value is allowed
    if isinstance(value, (int, float, Decimal)) and isinstance(allowed, (int, Decimal)):
        return _decimal(value) == allowed
    return allowed is not None and _text(value) == str(allowed)


def _expires(value: Any, days: int, zone: str, per_s: int = 1, *, zero_is_never: bool = False) -> int | None:
    """Seconds since 1970 at which an item expires: of a moment, or of a number of which so many are a second."""
    if value is None or (zero_is_never and value == 0):
        return None
    if not isinstance(value, int):
        return _filter_epoch(value, zone) + days * 86_400
    if value // per_s >= 7_258_118_400:
        raise RefusedError("an expiry beyond the year 2200; is it in another unit?")
    return value // per_s + days * 86_400


# ── values restored from items and answers ──


def _restored(types: tuple[type, ...], read: Any, value: Any) -> Any:
    """What `read` makes of a value of these types; another one, and one that it has no form for
    (a text such as 'infinity'), stays as it is."""
    try:
        return read(value) if isinstance(value, types) and not isinstance(value, bool) else value
    except (ValueError, ArithmeticError):
        return value


def _read_expiry(value: Any, days: int, zone: str, *, zoned: bool) -> Any:
    """The moment of which `_expires` made seconds, to the second."""
    if value is None:
        return None
    moment = dt.datetime.fromtimestamp(int(value) - days * 86_400, ZoneInfo(zone))
    return moment.astimezone(dt.UTC) if zoned else moment.replace(tzinfo=None)


def _read_integer(value: Any) -> Any:
    whole = isinstance(value, Decimal) and value == value.to_integral_value()
    return int(value) if whole else value


def _read_plain(value: Any) -> Any:
    """Numbers as int where they are whole, else as Decimal, all the way down."""
    if isinstance(value, Mapping):
        return {name: _read_plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_read_plain(inner) for inner in value]
    # boto3's resource gives binary values in a class of its own.
    return bytes(value.value) if type(value).__name__ == "Binary" else _read_integer(value)


def _read_list(read: Any, value: Any) -> Any:
    """The list with each value restored, also in inner lists."""
    if not isinstance(value, (list, tuple)):
        return value
    return [_read_list(read, inner) if isinstance(inner, (list, tuple)) else read(inner) for inner in value]


def _read_map(fields: Mapping[str, Any], others: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: fields.get(name, others)(inner) for name, inner in value.items()}


# ── answers ──

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class Page(Generic[_Record]):
    """One page of an answer. `next`: the cursor of the next page, None without one."""

    items: list[_Record]
    next: str | None = None
