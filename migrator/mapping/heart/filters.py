"""Filters of templates: what each takes, gives and promises; time buckets; the fan-out of `*`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from migrator.mapping.heart import values
from migrator.mapping.heart.geo import PRECISIONS, cell, cells_around
from migrator.mapping.heart.scalars import moment_of
from migrator.mapping.heart.values import json_text
from migrator.model.errors import RowError
from migrator.model.expressions import Filter
from migrator.model.facts import Kind, KindName
from migrator.model.table import CLIMB_LEVELS

# ──
# Buckets of time: the text of the hour, day, month or year that a moment falls into, and all buckets of a
# range.

MOST = 400
"""Buckets that one question may take: more than a year of days, each of them a request."""

_CHARACTERS = {"hour": 13, "day": 10, "month": 7, "year": 4}
UNITS = tuple(_CHARACTERS)


def bucket(unit: str, value: date | datetime) -> str:
    """The text of the bucket: 2026-06-10T14, 2026-06-10, 2026-06 or 2026. A date is its midnight."""
    return _moment(value).isoformat()[: _CHARACTERS[unit]]


def buckets_between(unit: str, since: date | datetime, until: date | datetime) -> list[str]:
    """The buckets from the one that holds `since` to the one that holds `until`, in order; none where they are swapped.

    Raises: ValueError for more than 400.
    """
    found: list[str] = []
    last = bucket(unit, until)
    for text in _from(unit, _moment(since)):
        if text > last:
            break
        if len(found) == MOST:
            raise ValueError(f"more than {MOST} buckets ({unit}) between both times; ask for a shorter time")
        found.append(text)
    return found


def following(unit: str, moment: datetime) -> datetime:
    """The same place in the next bucket. Raises: OverflowError or ValueError behind the year 9999."""
    return _NEXT[unit](moment)


def _from(unit: str, moment: datetime) -> Iterator[str]:
    yield bucket(unit, moment)
    try:
        while True:
            moment = _NEXT[unit](moment)
            yield bucket(unit, moment)
    except (OverflowError, ValueError):
        return  # the year 9999 is the last one that there is


def _moment(value: Any) -> datetime:
    """The date and time as it is written: in UTC where it has a zone, which the text of a key leaves out."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime(value.year, value.month, value.day)


def _next_month(moment: datetime) -> datetime:
    return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1, day=1)


_NEXT: dict[str, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment + timedelta(hours=1),
    "day": lambda moment: moment + timedelta(days=1),
    "month": _next_month,
    "year": lambda moment: moment.replace(year=moment.year + 1, month=1, day=1),
}


# ── The filters of templates: what each takes, gives and promises about its text ──

_TIMES: frozenset[KindName] = frozenset({"timestamp", "date"})
_NUMBERS: frozenset[KindName] = frozenset({"integer", "number", "float"})
_ANY: frozenset[KindName] = frozenset()


@dataclass(frozen=True)
class FilterContext:
    """What a filter may know beside its value: the table's separator, the mapping's maps and time zone."""

    separator: str = "#"
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    timezone: str | None = None


@dataclass(frozen=True)
class FilterSpec:
    """`make(args, surroundings)` gives the function of decoded values.

    `takes`: kinds that it takes (none: every kind). `closed`: whether its text can hold the separator ('same' as
    what it is given). `injective`: whether two values never give one result. `values`: how many values it takes.
    `null`: whether it is called with NULL (otherwise NULL stays NULL). `of_list`: whether it makes one value of a list's
    values. `fixed`: whether it takes text of fixed width only (a format, or a date).
    """

    make: Callable[[tuple[str, ...], FilterContext], Callable[..., Any]]
    takes: frozenset[KindName] = _ANY
    gives: Kind = Kind("text")
    args: tuple[int, int] = (0, 0)
    values: int = 1
    closed: bool | Literal["same"] = True
    injective: bool = False
    null: bool = False
    of_list: bool = False
    fixed: bool = False
    check: Callable[[Sequence[str]], str] = lambda args: ""


def _iso(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    form = _ISO_FORMS[",".join(args)]

    def apply(value: Any) -> str:
        moment = moment_of(value)
        return form(moment.replace(tzinfo=None)) + ("Z" if moment.tzinfo else "")

    return apply


def _basic(precision: str) -> Callable[[datetime], str]:
    return lambda moment: moment.isoformat("T", precision).replace("-", "").replace(":", "")


_ISO_FORMS: dict[str, Callable[[datetime], str]] = {
    "": lambda moment: moment.isoformat("T", "microseconds"),
    "s": lambda moment: moment.isoformat("T", "seconds"),
    "ms": lambda moment: moment.isoformat("T", "milliseconds"),
    "basic": _basic("seconds"),
    "ms,basic": _basic("milliseconds"),
}


def _iso_form(args: Sequence[str]) -> str:
    return "" if ",".join(args) in _ISO_FORMS else f"knows s, ms, basic and ms,basic, not '{','.join(args)}'"


def _part(length: int) -> Callable[[tuple[str, ...], FilterContext], Callable[[Any], str]]:
    def make(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
        return lambda value: moment_of(value).date().isoformat()[:length]

    return make


def _epoch(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], int]:
    zone = ZoneInfo(around.timezone) if around.timezone else UTC
    return lambda value: epoch_seconds(value, zone)


def epoch_seconds(value: Any, zone: Any = UTC) -> int:
    """Whole seconds since 1970 (rounded down) of a timestamp or a date; one without a zone is in `zone`."""
    moment = moment_of(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    # Not by way of UTC, where the first and the last hours of the calendar may have no date.
    past = moment.replace(tzinfo=None) - datetime(1970, 1, 1) - (moment.utcoffset() or timedelta(0))
    return past.days * 86400 + past.seconds


def _or(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], Any]:
    return lambda value: args[0] if value is None else value


def _map(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], str]:
    table = around.maps[args[0]]

    def apply(value: Any) -> str:
        found = table.get(values.text(value))
        if found is None:
            raise RowError(f"a value that the map '{args[0]}' does not list; add it to maps")
        return found

    return apply


def _escape(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], str]:
    """Percent-encodes '%' and every character of the separator, so that the text cannot hold the separator."""
    codes = {
        ord(char): "".join(f"%{byte:02X}" for byte in char.encode()) for char in {*around.separator, "%"}
    }
    return lambda value: values.text(value).translate(codes)


def _shard(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    count = int(args[0])
    return lambda value: shard_text(int.from_bytes(_digest(value)[:8], "big") % count, count)


def shard_text(number: int, count: int) -> str:
    """A shard's number, as wide as the highest one of `count` shards."""
    return f"{number:0{len(str(count - 1))}}"


def _bucket(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    return lambda value: bucket(args[0], moment_of(value))


def _geohash(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    precision = int(args[0])
    return lambda place: cell(place[0], place[1], precision)


def _hash(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    return lambda value: _digest(value).hex()[:_HASH_LETTERS]


def _digest(value: Any) -> bytes:
    """SHA-256 of the value's text in UTF-8; of bytes, of these as they are. Stored keys are made of it: it never changes."""
    return hashlib.sha256(value if isinstance(value, bytes) else values.text(value).encode()).digest()


_HASH_LETTERS = 32
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def _desc(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    """Each digit's complement to 9, so that what is larger sorts first; the text must be of fixed width."""

    def apply(value: Any) -> str:
        text = values.text(value)
        if set(text) - set("0123456789-:.TZ"):
            raise RowError("desc takes a padded number or a date, nothing else")
        return text.translate(_COMPLEMENT)

    return apply


def _json(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    return json_text


def _path(args: tuple[str, ...], around: FilterContext) -> Callable[[list[Any]], str | None]:
    def apply(found: list[Any]) -> str | None:
        if None in found:
            return None
        parts = [values.text(value) for value in found]
        if any(around.separator in part for part in parts):
            raise RowError("a part of the path holds the separator; write |escape before |path")
        return around.separator.join(parts)

    return apply


def _first(args: tuple[str, ...], _: FilterContext) -> Callable[[list[Any]], Any]:
    return lambda found: found[0] if found else None


def _at(args: tuple[str, ...], _: FilterContext) -> Callable[[list[Any]], Any]:
    place = int(args[0])
    return lambda found: found[place - 1] if len(found) >= place else None


def _depth(args: tuple[str, ...], _: FilterContext) -> Callable[[list[Any]], int]:
    return len


def _one_of(*known: str) -> Callable[[Sequence[str]], str]:
    return lambda args: "" if not args or args[0] in known else f"knows {', '.join(known)}, not '{args[0]}'"


def _plain(apply: Callable[[str], str]) -> Callable[[tuple[str, ...], FilterContext], Callable[[Any], str]]:
    return lambda args, around: lambda value: apply(values.text(value))


def _trimmed(text: str) -> str:
    return text.strip(" ")


def _text(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    return values.undamaged_text


def _count(args: Sequence[str]) -> str:
    return (
        ""
        if args[0].isdecimal() and 2 <= int(args[0]) <= 10_000
        else "takes a number of shards from 2 to 10000"
    )


def _place(args: Sequence[str]) -> str:
    known = args[0].isdecimal() and 1 <= int(args[0]) <= CLIMB_LEVELS
    return "" if known else f"takes a place from 1 to {CLIMB_LEVELS}"


def _precision(args: Sequence[str]) -> str:
    known = args[0].isdecimal() and int(args[0]) in PRECISIONS
    return "" if known else "takes a number of characters from 1 to 12"


FILTERS: dict[str, FilterSpec] = {
    "iso": FilterSpec(_iso, _TIMES, args=(0, 2), check=_iso_form),
    "date": FilterSpec(_part(10), _TIMES),
    "month": FilterSpec(_part(7), _TIMES),
    "year": FilterSpec(_part(4), _TIMES),
    "epoch": FilterSpec(_epoch, _TIMES, gives=Kind("integer")),
    "lower": FilterSpec(_plain(str.lower), closed="same"),
    "upper": FilterSpec(_plain(str.upper), closed="same"),
    "trim": FilterSpec(_plain(_trimmed), closed="same"),
    "or": FilterSpec(_or, args=(1, 1), closed="same", null=True),
    "map": FilterSpec(_map, args=(1, 1), closed=False),
    "text": FilterSpec(_text, closed="same", injective=True),
    "escape": FilterSpec(_escape, injective=True),
    "hash": FilterSpec(_hash),
    "shard": FilterSpec(_shard, args=(1, 1), check=_count),
    "desc": FilterSpec(_desc, closed="same", injective=True, fixed=True),
    "json": FilterSpec(_json, closed=False),
    "path": FilterSpec(_path, closed=False, injective=True, of_list=True),
    "first": FilterSpec(_first, closed="same", of_list=True),
    "at": FilterSpec(_at, args=(1, 1), closed="same", of_list=True, check=_place),
    "depth": FilterSpec(_depth, gives=Kind("integer"), of_list=True),
    "bucket": FilterSpec(_bucket, _TIMES, args=(1, 1), check=_one_of(*UNITS)),
    "geohash": FilterSpec(_geohash, _NUMBERS, args=(1, 1), values=2, check=_precision),
}

SAME_KIND = frozenset({"or", "first", "at"})
"""Filters that give a value of the kind that they are given."""


# ──
# The many texts that a reference with a `*` stands for: every shard, every bucket of a time, the cells of
# a place.


@dataclass(frozen=True)
class Way:
    """`values`: how many parameters it takes; `texts(argument, values)` gives what it stands for."""

    values: int
    texts: Callable[[str, Sequence[Any]], list[str]]


def texts_of(used: Filter, values: Sequence[Any]) -> list[str]:
    """The texts that `{*…|used}` stands for, in order and each once; `values` are its parameters.

    Raises: RowError or ValueError for values that have no such texts, or more than a question may ask.
    """
    return WAYS[used.name].texts(used.args[0] if used.args else "", values)


def _shards(argument: str, _: Sequence[Any]) -> list[str]:
    return [shard_text(number, int(argument)) for number in range(int(argument))]


def _buckets(unit: str) -> Callable[[str, Sequence[Any]], list[str]]:
    return lambda argument, values: buckets_between(unit or argument, values[0], values[1])


WAYS: dict[str, Way] = {
    "shard": Way(0, _shards),
    "bucket": Way(2, _buckets("")),
    "date": Way(2, _buckets("day")),
    "month": Way(2, _buckets("month")),
    "year": Way(2, _buckets("year")),
    "geohash": Way(2, lambda argument, values: cells_around(values[0], values[1], int(argument))),
}
