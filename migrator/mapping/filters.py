"""The filters of templates: what each takes, gives and promises about its text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from migrator.errors import RowError
from migrator.facts import Kind, KindName
from migrator.limits import CLIMB_LEVELS
from migrator.mapping import values
from migrator.mapping.buckets import UNITS, bucket
from migrator.mapping.geo import PRECISIONS, cell
from migrator.mapping.json_text import json_text
from migrator.mapping.times import moment_of

_TIMES: frozenset[KindName] = frozenset({"timestamp", "date"})
_NUMBERS: frozenset[KindName] = frozenset({"integer", "number", "float"})
_ANY: frozenset[KindName] = frozenset()


@dataclass(frozen=True)
class Surroundings:
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

    make: Callable[[tuple[str, ...], Surroundings], Callable[..., Any]]
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


def _iso(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
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


def _part(length: int) -> Callable[[tuple[str, ...], Surroundings], Callable[[Any], str]]:
    def make(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
        return lambda value: moment_of(value).date().isoformat()[:length]

    return make


def _epoch(args: tuple[str, ...], around: Surroundings) -> Callable[[Any], int]:
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


def _or(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], Any]:
    return lambda value: args[0] if value is None else value


def _map(args: tuple[str, ...], around: Surroundings) -> Callable[[Any], str]:
    table = around.maps[args[0]]

    def apply(value: Any) -> str:
        found = table.get(values.text(value))
        if found is None:
            raise RowError(f"a value that the map '{args[0]}' does not list; add it to maps")
        return found

    return apply


def _escape(args: tuple[str, ...], around: Surroundings) -> Callable[[Any], str]:
    """Percent-encodes '%' and every character of the separator, so that the text cannot hold the separator."""
    codes = {
        ord(char): "".join(f"%{byte:02X}" for byte in char.encode()) for char in {*around.separator, "%"}
    }
    return lambda value: values.text(value).translate(codes)


def _shard(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    count = int(args[0])
    return lambda value: shard_text(int.from_bytes(_digest(value)[:8], "big") % count, count)


def shard_text(number: int, count: int) -> str:
    """A shard's number, as wide as the highest one of `count` shards."""
    return f"{number:0{len(str(count - 1))}}"


def _bucket(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    return lambda value: bucket(args[0], moment_of(value))


def _geohash(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    precision = int(args[0])
    return lambda place: cell(place[0], place[1], precision)


def _hash(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    return lambda value: _digest(value).hex()[:_HASH_LETTERS]


def _digest(value: Any) -> bytes:
    """SHA-256 of the value's text in UTF-8; of bytes, of these as they are. Stored keys are made of it: it never changes."""
    return hashlib.sha256(value if isinstance(value, bytes) else values.text(value).encode()).digest()


_HASH_LETTERS = 32
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def _desc(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    """Each digit's complement to 9, so that what is larger sorts first; the text must be of fixed width."""

    def apply(value: Any) -> str:
        text = values.text(value)
        if set(text) - set("0123456789-:.TZ"):
            raise RowError("desc takes a padded number or a date, nothing else")
        return text.translate(_COMPLEMENT)

    return apply


def _json(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
    return json_text


def _path(args: tuple[str, ...], around: Surroundings) -> Callable[[list[Any]], str | None]:
    def apply(found: list[Any]) -> str | None:
        if None in found:
            return None
        parts = [values.text(value) for value in found]
        if any(around.separator in part for part in parts):
            raise RowError("a part of the path holds the separator; write |escape before |path")
        return around.separator.join(parts)

    return apply


def _first(args: tuple[str, ...], _: Surroundings) -> Callable[[list[Any]], Any]:
    return lambda found: found[0] if found else None


def _at(args: tuple[str, ...], _: Surroundings) -> Callable[[list[Any]], Any]:
    place = int(args[0])
    return lambda found: found[place - 1] if len(found) >= place else None


def _depth(args: tuple[str, ...], _: Surroundings) -> Callable[[list[Any]], int]:
    return len


def _one_of(*known: str) -> Callable[[Sequence[str]], str]:
    return lambda args: "" if not args or args[0] in known else f"knows {', '.join(known)}, not '{args[0]}'"


def _plain(apply: Callable[[str], str]) -> Callable[[tuple[str, ...], Surroundings], Callable[[Any], str]]:
    return lambda args, around: lambda value: apply(values.text(value))


def _trimmed(text: str) -> str:
    return text.strip(" ")


def _text(args: tuple[str, ...], _: Surroundings) -> Callable[[Any], str]:
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
