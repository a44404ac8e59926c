"""The likely cause of a difference between SQL and the item, found from examples alone. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

Pair: TypeAlias = tuple[str, str]
"""SQL's value and the item's as JSON text; a redacted value is a mask, which is not JSON."""
_Values: TypeAlias = tuple[Any, Any]
_Those: TypeAlias = Callable[[Sequence[_Values]], Sequence[Any]]

UNKNOWN = ""
_QUARTER = timedelta(minutes=15)
_FARTHEST = timedelta(hours=14)
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


def value_cause(pairs: Sequence[Pair]) -> str:
    """A sentence true for every pair; UNKNOWN if none is, or values are redacted, deeply nested or very large."""
    try:
        read = [_read(pair) for pair in pairs]
        readable = [pair for pair in read if pair is not None]
        if not readable or len(readable) < len(read):
            return UNKNOWN
        tried = (rule(found) for those, rule in _RULES if (found := those(readable)))
        return next(filter(None, tried), UNKNOWN)
    except (RecursionError, ArithmeticError):
        return UNKNOWN


def _read(pair: Pair) -> _Values | None:
    try:
        row, item = (json.loads(text, parse_float=Decimal, parse_int=Decimal) for text in pair)
    except ValueError:
        return None
    return row, item


# ── rules: each gets all pairs, which are of its type, and returns a sentence that is true for all of them ──

_Numbers: TypeAlias = Sequence[tuple[Decimal, Decimal]]
_Texts: TypeAlias = Sequence[tuple[str, str]]
_Times: TypeAlias = Sequence[tuple[datetime, datetime]]


def _factor(numbers: _Numbers) -> str:
    if any(not row or not item for row, item in numbers):
        return ""
    factors = {(item / row).normalize() for row, item in numbers}
    if len(factors) != 1 or factors == {Decimal(1)}:
        return ""
    (factor,) = factors
    if factor == -1:
        return "the sign is reversed"
    # A single pair always has a factor; it is meaningful only for a common unit.
    if len(set(numbers)) < 2 and not _is_unit(factor):
        return ""
    larger = factor if abs(factor) > 1 else (1 / factor).normalize()
    side, other = ("the item", "SQL's") if abs(factor) > 1 else ("SQL's", "the item")
    return f"{side} is {larger:f} times {other}: another unit, such as cents and dollars"


def _is_unit(factor: Decimal) -> bool:
    larger = factor if abs(factor) > 1 else 1 / factor
    return larger in (Decimal(10) ** power for power in (1, 2, 3, 6, 9)) or larger in (
        24,
        60,
        1024,
        3600,
        86400,
    )


def _rounded(numbers: _Numbers) -> str:
    for coarse, fine, side in ((1, 0, "the item"), (0, 1, "SQL")):
        places = [max(0, -_exponent(pair[coarse])) for pair in numbers]
        if all(
            _places(pair[fine]) > n and abs(pair[0] - pair[1]) < Decimal(10) ** -n
            for pair, n in zip(numbers, places, strict=True)
        ):
            longest = max(_places(pair[fine]) for pair in numbers)
            return f"{side} has {max(places)} decimals of the other's {longest}: rounded or cut"
    return ""


def _shifted(numbers: _Numbers) -> str:
    steps = {item - row for row, item in numbers}
    if len(set(numbers)) < 2 or len(steps) != 1:
        return ""
    (step,) = steps
    if not step:
        return ""
    return f"the item is {abs(step):f} {'more' if step > 0 else 'less'} each time: a constant shift"


def _zone(times: _Times) -> str:
    steps = {item - row for row, item in times}
    if steps == {timedelta()}:
        return "the same moment, written in another form"
    if len(steps) != 1:
        return ""
    (step,) = steps
    if step % _QUARTER or not abs(step) <= _FARTHEST:
        return ""
    hours = Decimal(step.total_seconds()) / 3600
    return f"the item is {abs(hours):f} h {'later' if step > timedelta() else 'earlier'} each time: another time zone"


def _cut_times(times: _Times) -> str:
    if any(abs(row - item) >= timedelta(seconds=1) for row, item in times):
        return ""
    return "less than a second apart: fractions of a second are rounded or cut"


def _days(texts: _Texts) -> str:
    if all(len(a) != len(b) and 10 in (len(a), len(b)) and a[:10] == b[:10] for a, b in texts):
        return "one side has only the date, the other also the time of day" if _times(texts) else ""
    return ""


def _of_text(same: Callable[[str], Any], sentence: str) -> tuple[_Those, Callable[[_Texts], str]]:
    return _texts, lambda texts: sentence if all(same(row) == same(item) for row, item in texts) else ""


def _truncated(texts: _Texts) -> str:
    for short, long, side in ((1, 0, "the item"), (0, 1, "SQL")):
        if all(pair[long].startswith(pair[short]) and len(pair[long]) > len(pair[short]) for pair in texts):
            lengths = {len(pair[short]) for pair in texts}
            at = f" at {lengths.pop()} characters" if len(lengths) == 1 else ""
            return f"{side}'s text is the beginning of the other's: cut{at}"
    return ""


def _empty(pairs: Sequence[_Values]) -> str:
    if all(row in ("", None) and item in ("", None) for row, item in pairs):
        return "empty text on one side, no value on the other"
    return ""


def _reordered(lists: Sequence[tuple[list[Any], list[Any]]]) -> str:
    same = all(sorted(map(repr, a)) == sorted(map(repr, b)) for a, b in lists)
    return "the same elements in another order" if same else ""


# ── rules of types ──


def _number_as_text(pairs: Sequence[_Values]) -> str:
    if all(
        {type(row), type(item)} == {str, Decimal} and _number(row) == _number(item) for row, item in pairs
    ):
        side = "the item" if isinstance(pairs[0][1], str) else "SQL"
        return f"the same number; {side} has it as text"
    return ""


def _truth(pairs: Sequence[_Values]) -> str:
    if all(isinstance(row, bool) != isinstance(item, bool) for row, item in pairs) and all(
        _truth_of(row) is not None and _truth_of(row) == _truth_of(item) for row, item in pairs
    ):
        return "the same truth; one side has it as a number or as text"
    return ""


def _truth_of(value: Any) -> bool | None:
    text = str(value).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _json_as_text(pairs: Sequence[_Values]) -> str:
    def inside(pair: _Values) -> bool:
        row, item = pair
        text, other = (row, item) if isinstance(row, str) else (item, row)
        values = _read((text, "null")) if isinstance(text, str) and isinstance(other, (list, dict)) else None
        return values is not None and values[0] == other

    return "the same JSON; one side has it as text" if all(map(inside, pairs)) else ""


# ── values by type ──


def _all(type_: type) -> _Those:
    return lambda pairs: pairs if all(isinstance(side, type_) for pair in pairs for side in pair) else ()


_numbers, _texts, _lists = _all(Decimal), _all(str), _all(list)


def _times(pairs: Sequence[_Values]) -> list[tuple[datetime, datetime]]:
    """All pairs, if all are times; those without a zone are taken as UTC."""
    try:
        return [(_moment(row), _moment(item)) for row, item in _texts(pairs)]
    except ValueError:
        return []


def _moment(text: str) -> datetime:
    if len(text) < 8 or text.isdigit():
        raise ValueError
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _number(value: Any) -> Decimal | None:
    try:
        return Decimal(value)
    except InvalidOperation:
        return None


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def _places(number: Decimal) -> int:
    return max(0, -_exponent(number.normalize()))


_RULES: tuple[tuple[_Those, Callable[[Any], str]], ...] = (
    (list, _empty),
    (list, _number_as_text),
    (list, _truth),
    (list, _json_as_text),
    (_numbers, _rounded),
    (_numbers, _factor),
    (_numbers, _shifted),
    (_texts, _days),
    (_times, _zone),
    (_times, _cut_times),
    _of_text(str.casefold, "differs only in upper and lower case"),
    _of_text(lambda text: "".join(text.split()), "differs only in white space"),
    _of_text(lambda text: unicodedata.normalize("NFKC", text), "the same text in another Unicode form"),
    _of_text(lambda text: text.lstrip("0"), "differs only in leading zeros"),
    (_texts, _truncated),
    (_lists, _reordered),
)
"""Ordered: narrower explanations first."""


def pairs_of(
    attribute: str, examples: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]]
) -> Iterator[Pair]:
    """Pairs of one attribute, from (attributes, SQL's values, the item's values)."""
    for names, row, item in examples:
        if attribute in names:
            place = list(names).index(attribute)
            yield row[place], item[place]
