"""Filters of templates: their inputs, results and promises; time buckets; the fan-out of `*`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Literal, TypeAlias, TypeVar
from zoneinfo import ZoneInfo

import pygeohash
from msgspec import Struct

from migrator.mapping.items import values
from migrator.mapping.items.values import json_text, moment_of
from migrator.mapping.model.facts import Alike, Kind, KindName
from migrator.mapping.model.mapping import Filter, Ref
from migrator.mapping.model.mapping import Mapping as Mapped
from migrator.mapping.model.table import CLIMB_LEVELS
from migrator.runtime.errors import RowError
from migrator.runtime.values import replace

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius R1. Source: Moritz, "Geodetic Reference System 1980"."""

PRECISIONS = range(1, 13)
_BITS = 5
"""Bits of one character; of all bits of a geohash the longitude has every other one, beginning with the first."""

Number = int | float | Decimal


def cell(latitude: Number, longitude: Number, precision: int) -> str:
    """The geohash of a place in degrees.

    Raises: RowError for a place that is not on the earth.
    """
    lat, lng = _degrees(latitude, 90, "latitude"), _degrees(longitude, 180, "longitude")
    return str(pygeohash.encode(lat, lng, precision))


def cells_around(latitude: Number, longitude: Number, precision: int) -> list[str]:
    """The place's cell, then its neighbours: over the date line too, and none beyond a pole.

    Raises: RowError for a place that is not on the earth.
    """
    middle = pygeohash.decode_exactly(cell(latitude, longitude, precision))
    height, width = _cell_degrees(precision)
    cells = {cell(middle.latitude, middle.longitude, precision): None}
    for up in (-1, 0, 1):
        lat = middle.latitude + up * height
        if abs(lat) < 90:
            for right in (-1, 0, 1):
                lng = (middle.longitude + right * width + 180) % 360 - 180
                cells[cell(lat, lng, precision)] = None
    return list(cells)


def distance_m(start: tuple[Number, Number], end: tuple[Number, Number]) -> float:
    """Metres between two places (latitude, longitude), by the haversine formula on a sphere."""
    lat, lng, end_lat, end_lng = (math.radians(float(value)) for value in (*start, *end))
    half = (
        math.sin((end_lat - lat) / 2) ** 2
        + math.cos(lat) * math.cos(end_lat) * math.sin((end_lng - lng) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, half)))


def reach_m(latitude: Number, precision: int) -> float:
    """The largest radius that a cell and its neighbours cover around any place of this latitude.

    That is a cell's smaller side: its height, or the way to the meridian one cell's width away, which shrinks
    towards the poles.
    """
    height, width = (math.radians(side) for side in _cell_degrees(precision))
    across = math.asin(math.sin(width) * max(0.0, math.cos(math.radians(float(latitude)))))
    return EARTH_RADIUS_M * min(height, across)


def precision_for(latitude: Number, radius_m: float) -> int | None:
    """The highest precision whose cells reach `radius_m`; None if no cell is that large."""
    return next(
        (precision for precision in reversed(PRECISIONS) if reach_m(latitude, precision) >= radius_m), None
    )


def _cell_degrees(precision: int) -> tuple[float, float]:
    """Return (height, width) in degrees."""
    bits = _BITS * precision
    return 180 / 2 ** (bits // 2), 360 / 2 ** (bits - bits // 2)


def _degrees(value: Number, most: int, called: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise RowError(f"the {called} is not a number") from None
    if not -most <= number <= most:
        raise RowError(f"the {called} is not between -{most} and {most} degrees")
    return number


# ──
# Buckets of time: the text of the hour, day, week, month, quarter or year that a moment falls into, and all
# buckets of a range.

MOST = 400
"""Buckets that one question may take: more than a year of days, each of them a request."""

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
"""How much of a time's text, 2026-06-10T14:32:00.000000, the first moments of its unit do not share."""
UNITS = ("hour", "day", "week", "month", "quarter", "year")


def bucket(unit: str, value: date | datetime) -> str:
    """The bucket's text: 2026-06-10T14, 2026-06-10, 2026-W24 (of ISO 8601, with its year), 2026-06, 2026-Q2 or
    2026.

    A date is its midnight.
    """
    moment = _moment(value)
    if unit == "week":
        year, week, _ = moment.isocalendar()
        return f"{year:04}-W{week:02}"
    text = moment.isoformat(timespec="microseconds")
    return f"{text[:4]}-Q{(moment.month + 2) // 3}" if unit == "quarter" else text[: _CHARACTERS[unit]]


def begin(unit: str, value: date | datetime) -> datetime:
    moment = _moment(value)
    if unit == "week":
        moment -= timedelta(days=moment.weekday())
    elif unit == "quarter":
        moment = moment.replace(month=moment.month - (moment.month - 1) % 3, day=1)
    text, kept = moment.isoformat(timespec="microseconds"), _CHARACTERS[unit]
    return datetime.fromisoformat(text[:kept] + "0000-01-01T00:00:00.000000"[kept:])


def is_whole(unit: str, value: date | datetime) -> bool:
    return begin(unit, value) == _moment(value)


def buckets_between(unit: str, since: date | datetime, until: date | datetime) -> list[str]:
    """Buckets from `since` to `until`, in order; none if they are swapped.

    Raises: ValueError for more than 400.
    """
    buckets: list[str] = []
    last = bucket(unit, until)
    for text in _from(unit, _moment(since)):
        if text > last:
            break
        if len(buckets) == MOST:
            raise ValueError(f"more than {MOST} buckets ({unit}) between both times; use a shorter range")
        buckets.append(text)
    return buckets


def following(unit: str, moment: datetime) -> datetime:
    """A moment of the next bucket, the first one if this is. Raises: OverflowError or ValueError after the year
    9999.
    """
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
    """The time as written: in UTC if it has a zone, which a key's text leaves out."""
    return moment_of(value).replace(tzinfo=None)


def _next_months(count: int, moment: datetime) -> datetime:
    last = moment.month + count - 1
    return moment.replace(year=moment.year + last // 12, month=last % 12 + 1, day=1)


_NEXT: dict[str, Callable[[datetime], datetime]] = {
    "hour": lambda moment: moment + timedelta(hours=1),
    "day": lambda moment: moment + timedelta(days=1),
    "week": lambda moment: moment + timedelta(days=7 - moment.weekday()),
    "month": partial(_next_months, 1),
    "quarter": partial(_next_months, 3),
    "year": lambda moment: moment.replace(year=moment.year + 1, month=1, day=1),
}


# ── The filters of templates: their inputs, results and promises about their texts ──

_TIMES: frozenset[KindName] = frozenset({"timestamp", "date"})
_DATES: frozenset[KindName] = frozenset({"date"})
NUMBERS: frozenset[KindName] = frozenset({"integer", "number", "float"})
_ANY: frozenset[KindName] = frozenset()
DIGITS = "0123456789-."
MOMENT = f"{DIGITS}:+TZWQ"
"""Characters in the text of a number, and of a time."""


class FilterContext(Struct, frozen=True):
    separator: str = "#"
    maps: Mapping[str, Mapping[str, str]] = {}
    timezone: str | None = None

    @classmethod
    def of(cls, mapping: Mapped) -> FilterContext:
        return cls(mapping.table.separator, mapping.maps, mapping.timezone)


PLAIN = FilterContext()


StarKind: TypeAlias = Literal["shard", "time", "place"]


class StarTexts(Struct, frozen=True):
    """Texts of a `*` before a filter: every shard, every bucket of a time, the cells of a place.

    `values`: number of parameters.
    """

    of: StarKind
    values: int
    texts: Callable[[str, Sequence[Any]], list[str]]


_Kind = TypeVar("_Kind", Kind, Kind | None)


class FilterSpec(Struct, frozen=True):
    """All facts about a filter; no other code knows a filter by name. `make(args, surroundings)` returns the
    function of decoded values.

    Input:
    `takes`: none: every kind.
    `null`: called with NULL, for which it returns its argument (otherwise NULL stays NULL).
    `of_list`: reduces a list's values to one; `of_array`: also those in one value, to a whole attribute.
    `nested`, `undecodable`, `of_bytes`, `fixed`: accepts lists and maps; values without a form in their kind;
    bytes, which have no text; only text of fixed width (a format, or a date).
    `of_map`: its argument names a map of the mapping, which refuses unlisted values.
    `of_schema`: a schema's name may have it.
    `by_separator`, `by_timezone`: its text depends on the table's, or on the mapping's.

    Promises:
    `same_kind`: as its input, not `gives`.
    `closed`: its text cannot contain the separator ('same': as its input), except one made from its
    `alphabet`.
    `width`: all its texts have the same length ('fixed'), or none is longer than its input ('given').
    `whole`: with these arguments it is injective for these kinds.
    `unit`: the bucket of time that its text names ({0} is its argument).
    `cuts`: the unit to which it cuts a time, by its arguments.
    `moment`: its text is the whole time, as ISO 8601.
    `mends`: the differences between texts that it maps to one; `beyond`: it also maps others.
    """

    make: Callable[[tuple[str, ...], FilterContext], Callable[..., Any]]
    takes: frozenset[KindName] = _ANY
    gives: Kind = Kind("text")
    args: tuple[int, int] = (0, 0)
    values: int = 1
    null: bool = False
    of_list: bool = False
    of_array: bool = False
    nested: bool = False
    undecodable: bool = False
    of_bytes: bool = False
    fixed: bool = False
    of_map: bool = False
    of_schema: bool = False
    by_separator: bool = False
    by_timezone: bool = False
    same_kind: bool = False
    moment: bool = False
    closed: bool | Literal["same"] = True
    alphabet: str = ""
    width: Literal["fixed", "given", "any"] = "any"
    order: Literal["kept", "reversed", "lost"] = "lost"
    injective: bool = False
    whole: Mapping[tuple[str, ...], frozenset[KindName]] = {}
    unit: str = ""
    cuts: Mapping[tuple[str, ...], str] = {}
    mends: Alike | None = None
    beyond: bool = False
    way: StarTexts | None = None
    check: Callable[[Sequence[str]], str] = lambda args: ""

    @property
    def writes_time(self) -> bool:
        return self.takes == _TIMES and self.gives.name == "text"

    @property
    def holds_list(self) -> bool:
        return self.of_list and self.injective

    @property
    def keeps_width(self) -> bool:
        return self.width == "given" and not self.null and not self.of_list

    def after(self, kind: _Kind) -> _Kind | Kind:
        if self.of_array:
            return replace(self.gives, element=members_of(kind))
        return kind if self.same_kind else self.gives


def members_of(kind: Kind | None) -> Kind:
    if kind is None or kind.name == "json":
        return Kind("plain")
    if kind.name == "set":
        return Kind("text")
    return kind.element or Kind("plain") if kind.name == "list" else kind


def specs_of(ref: Ref) -> list[FilterSpec]:
    return [FILTERS[used.name] for used in ref.filters]


def takes_null(ref: Ref) -> bool:
    return any(spec.null for spec in specs_of(ref))


def kind_after(kind: _Kind, ref: Ref) -> _Kind | Kind:
    start = kind if ref.format is None else Kind("text")
    return reduce(lambda given, spec: spec.after(given), specs_of(ref), start)


def sample_of(used: Filter, *, zone: bool = False) -> str:
    value = datetime(2000, 1, 1, tzinfo=UTC if zone else None)
    return str(FILTERS[used.name].make(used.args, PLAIN)(value))


def unit_of(used: Filter) -> str:
    return FILTERS[used.name].unit.format(*used.args)


def cut_of(used: Filter) -> str:
    return unit_of(used) or FILTERS[used.name].cuts.get(used.args, "")


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


def _epoch(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], int]:
    zone, per_s = ZoneInfo(around.timezone) if around.timezone else UTC, 1000 if args else 1
    return lambda value: epoch_of(value, zone, per_s)


def epoch_of(value: Any, zone: Any = UTC, per_s: int = 1) -> int:
    """Whole seconds (or `per_s` parts, rounded down) since 1970; `zone`: of a value without one."""
    moment = moment_of(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    # Not by way of UTC, in which the first and the last hours of the calendar may have no date.
    past = moment.replace(tzinfo=None) - datetime(1970, 1, 1) - (moment.utcoffset() or timedelta(0))
    return past // (timedelta(seconds=1) / per_s)


def _map(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], str]:
    table = around.maps[args[0]]

    def apply(value: Any) -> str:
        mapped = table.get(values.text(value))
        if mapped is None:
            raise RowError(f"the map '{args[0]}' does not list this value; add it to maps")
        return mapped

    return apply


def _escape(args: tuple[str, ...], around: FilterContext) -> Callable[[Any], str]:
    """Percent-encodes '%' and the separator's characters, so that the text cannot contain the separator."""
    codes = {
        ord(char): "".join(f"%{byte:02X}" for byte in char.encode()) for char in {*around.separator, "%"}
    }
    return lambda value: values.text(value).translate(codes)


def _shard(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    count = int(args[0])
    return lambda value: shard_text(int.from_bytes(_digest(value)[:8], "big") % count, count)


def shard_text(number: int, count: int) -> str:
    return f"{number:0{len(str(count - 1))}}"


def _geohash(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    precision = int(args[0])
    return lambda point: cell(point[0], point[1], precision)


def _digest(value: Any) -> bytes:
    """SHA-256 of the value's bytes or UTF-8 text. Stored keys are made from it: it never changes."""
    return hashlib.sha256(value if isinstance(value, bytes) else values.text(value).encode()).digest()


_HASH_LETTERS = 32
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def _desc(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
    """Each digit's complement to 9, so that larger values sort first; the text must be of fixed width."""

    def apply(value: Any) -> str:
        text = values.text(value)
        if set(text) - set("0123456789-:.TZWQ"):
            raise RowError("desc takes only a padded number or a date")
        return text.translate(_COMPLEMENT)

    return apply


def _path(args: tuple[str, ...], around: FilterContext) -> Callable[[list[Any]], str | None]:
    def apply(elements: list[Any]) -> str | None:
        if None in elements:
            return None
        parts = [values.text(value) for value in elements]
        if any(around.separator in part for part in parts):
            raise RowError("a part of the path contains the separator; write |escape before |path")
        return around.separator.join(parts)

    return apply


def _at(args: tuple[str, ...], _: FilterContext) -> Callable[[list[Any]], Any]:
    number = int(args[0])
    return lambda elements: elements[number - 1] if len(elements) >= number else None


def _one_of(*words: str) -> Callable[[Sequence[str]], str]:
    return lambda args: "" if not args or args[0] in words else f"knows {', '.join(words)}, not '{args[0]}'"


def _plain(apply: Callable[[str], str]) -> Callable[[tuple[str, ...], FilterContext], Callable[[Any], str]]:
    return lambda args, around: lambda value: apply(values.text(value))


def _number_of(what: str, allowed: range) -> Callable[[Sequence[str]], str]:
    fault = f"takes a {what} from {allowed[0]} to {allowed[-1]}"
    return lambda args: "" if args[0].isdecimal() and int(args[0]) in allowed else fault


def _shards(argument: str, _: Sequence[Any]) -> list[str]:
    return [shard_text(number, int(argument)) for number in range(int(argument))]


def _calendar(unit: str, **promises: Any) -> FilterSpec:
    def make(args: tuple[str, ...], _: FilterContext) -> Callable[[Any], str]:
        return partial(_bucket_of, unit.format(*args))

    way = StarTexts(
        "time", 2, lambda argument, values: buckets_between(unit.format(argument), values[0], values[1])
    )
    return FilterSpec(
        make, _TIMES, alphabet=MOMENT, width="fixed", order="kept", unit=unit, way=way, **promises
    )


def _bucket_of(unit: str, value: Any) -> str:
    return bucket(unit, moment_of(value))


def _same(
    make: Callable[[tuple[str, ...], FilterContext], Callable[[Any], Any]], **promises: Any
) -> FilterSpec:
    return FilterSpec(make, closed="same", width="given", **promises)


_ISO_CUTS = {
    ("s",): "second",
    ("ms",): "millisecond",
    ("basic",): "second",
    ("ms", "basic"): "millisecond",
}
_ISO_WHOLE = {(): _TIMES, ("s",): _DATES, ("ms",): _DATES}

FILTERS: dict[str, FilterSpec] = {
    "iso": FilterSpec(
        _iso,
        _TIMES,
        args=(0, 2),
        alphabet=MOMENT,
        width="fixed",
        order="kept",
        whole=_ISO_WHOLE,
        cuts=_ISO_CUTS,
        moment=True,
        check=_iso_form,
    ),
    "epoch": FilterSpec(
        _epoch,
        _TIMES,
        Kind("integer"),
        alphabet=DIGITS,
        order="kept",
        args=(0, 1),
        by_timezone=True,
        cuts={(): "second", ("ms",): "millisecond"},
        check=_one_of("ms"),
    ),
    "lower": _same(_plain(str.lower), mends="case", beyond=True, of_schema=True),
    "upper": _same(_plain(str.upper), mends="case", beyond=True, of_schema=True),
    "rtrim": _same(_plain(lambda text: text.rstrip(" ")), mends="trailing spaces"),
    "trim": _same(_plain(lambda text: text.strip(" ")), mends="trailing spaces", beyond=True),
    "or": _same(
        lambda args, _: lambda value: args[0] if value is None else value,
        args=(1, 1),
        null=True,
        same_kind=True,
        of_bytes=True,
        order="kept",
    ),
    "map": FilterSpec(_map, args=(1, 1), closed=False, of_map=True),
    "text": _same(lambda *_: values.undamaged_text, injective=True, undecodable=True, of_schema=True),
    "escape": FilterSpec(_escape, injective=True, alphabet="%0123456789ABCDEF", by_separator=True),
    "hash": FilterSpec(
        lambda *_: lambda value: _digest(value).hex()[:_HASH_LETTERS],
        of_bytes=True,
        alphabet="0123456789abcdef",
        width="fixed",
    ),
    "shard": FilterSpec(
        _shard,
        of_bytes=True,
        args=(1, 1),
        alphabet=DIGITS,
        width="fixed",
        way=StarTexts("shard", 0, _shards),
        check=_number_of("number of shards", range(2, 10_001)),
    ),
    "desc": _same(_desc, injective=True, fixed=True, alphabet=MOMENT, order="reversed"),
    "json": FilterSpec(lambda *_: json_text, closed=False, nested=True),
    "path": FilterSpec(_path, closed=False, injective=True, of_list=True, by_separator=True),
    "first": _same(
        lambda *_: lambda elements: elements[0] if elements else None,
        of_list=True,
        of_bytes=True,
        same_kind=True,
        order="kept",
    ),
    "at": _same(
        _at,
        args=(1, 1),
        of_list=True,
        of_bytes=True,
        same_kind=True,
        order="kept",
        check=_number_of("place", range(1, CLIMB_LEVELS + 1)),
    ),
    "depth": FilterSpec(lambda *_: len, gives=Kind("integer"), of_list=True, of_bytes=True, alphabet=DIGITS),
    "set": FilterSpec(
        lambda *_: values.set_of,
        gives=Kind("list", distinct=True),
        closed=False,
        of_bytes=True,
        of_list=True,
        of_array=True,
    ),
    "bucket": _calendar("{0}", args=(1, 1), check=_one_of(*UNITS), whole={("day",): _DATES}),
    "date": _calendar("day", whole={(): _DATES}),
    "week": _calendar("week"),
    "month": _calendar("month"),
    "quarter": _calendar("quarter"),
    "year": _calendar("year"),
    "geohash": FilterSpec(
        _geohash,
        NUMBERS,
        args=(1, 1),
        values=2,
        alphabet="0123456789bcdefghjkmnpqrstuvwxyz",
        width="fixed",
        way=StarTexts("place", 2, lambda argument, place: cells_around(place[0], place[1], int(argument))),
        check=_number_of("number of characters", PRECISIONS),
    ),
}


def texts_of(used: Filter, values: Sequence[Any]) -> list[str]:
    """Texts of `{*…|used}`, in order and each once.

    Raises: RowError or ValueError for values without such texts, or with more than a query may have.
    """
    way = FILTERS[used.name].way
    assert way is not None
    return way.texts(used.args[0] if used.args else "", values)
