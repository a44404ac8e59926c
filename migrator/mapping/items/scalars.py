"""Numbers, dates and times in exact form; values that their column cannot decode, and their text."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

from msgspec import Struct

from migrator.mapping.model.facts import Kind
from migrator.mapping.model.table import NUMBER_DIGITS, NUMBER_MAX_EXPONENT, NUMBER_MIN_EXPONENT
from migrator.runtime.errors import RowError

# ── Values that their column's kind has no form for, and the text that `|text` keeps of them instead ──

# No longer than any number or moment, and of characters that a check of keys can count on (mapping/check/values.py).
_PLAIN_TEXT = re.compile(r"[0-9A-Za-z :.+,/-]{1,100}")


class NoFormError(RowError):
    """A RowError about a value that has a `text` nevertheless, which is the whole value."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason)
        self.text = text


class NotHeldError(NoFormError):
    """Of a value that has a name of its own, which is said: NaN, infinity, a year BC."""


def without_advice(error: RowError) -> str:
    """The reason without what only a mapping can do about it."""
    return str(error).partition("; write |text")[0]


class Undecodable(Struct, frozen=True):
    """Stands in a decoded row for such a value: every use of it as anything but text refuses the row.

    `text` None: it has none either, as a list of too many children, and every use refuses the row.
    """

    text: str | None
    reason: str

    def __iter__(self) -> Iterator[object]:
        raise RowError(self.reason)


def of_column(path: str, error: RowError) -> str:
    """The reason with the column, which the advice names, too: `total|text` can be copied into the mapping."""
    return f"column {path}: {str(error).replace('write |text', f'write {path}|text')}"


def misfit(reason: str, raw: Any) -> RowError:
    """What to raise about a driver's value: with its text where that is a number, or short and plain."""
    if isinstance(raw, bool):
        return RowError(reason)
    if isinstance(raw, (int, float, Decimal)):
        return NoFormError(reason, number_text(raw))
    if isinstance(raw, str) and _PLAIN_TEXT.fullmatch(raw):
        return NoFormError(reason, raw)
    return RowError(reason)


def number_text(raw: int | float | Decimal) -> str:
    """All digits of a number without an exponent; NaN, Infinity or -Infinity."""
    number = Decimal(repr(raw)) if isinstance(raw, float) else Decimal(raw)
    return format(number, "f")


def as_text(value: Any) -> Any:
    """`value`, or its text where it is one of those."""
    return value.text if type(value) is Undecodable else value


# ── Numbers: from what a driver gives to an exact int or Decimal that DynamoDB can hold ──

_EXACT = Context(prec=400)
_NOISE = Decimal("1e-9")
"""How far a binary float may lie from its declared decimals, relative to its size, before it counts as another number."""
_AS_TEXT = "write |text to keep it as text"
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_SINGLE_DIGITS = range(6, 10)
"""Significant digits of which some number is always enough to tell a 32-bit float. Source: IEEE 754."""


def checked_number(value: Decimal) -> Decimal:
    """`value`, if DynamoDB can hold it. Source: AWS Developer Guide, "Naming rules and data types", Number.

    Raises: NoFormError.
    """
    if not value.is_finite():
        raise _not_finite("NaN" if value.is_nan() else format(value, "f"), str(value))
    if value == 0:
        return Decimal(0) if value.is_signed() or value.as_tuple().exponent else value
    digits = bytes(value.as_tuple().digits).strip(b"\0")
    if len(digits) > NUMBER_DIGITS:
        raise NoFormError(f"a number of more than {NUMBER_DIGITS} digits; {_AS_TEXT}", number_text(value))
    if not NUMBER_MIN_EXPONENT <= value.adjusted() <= NUMBER_MAX_EXPONENT:
        raise NoFormError(f"a number outside DynamoDB's range; {_AS_TEXT}", number_text(value))
    return value


def is_finite(raw: Decimal | float) -> bool:
    # math.isfinite raises for a signalling NaN.
    return raw.is_finite() if isinstance(raw, Decimal) else math.isfinite(raw)


def number_decoder(kind: Kind) -> Callable[[Any], Decimal]:
    quantum = None if kind.scale is None else Decimal(1).scaleb(-kind.scale)

    def decode(raw: Any) -> Decimal:
        if isinstance(raw, (int, Decimal)):
            number = checked_number(Decimal(raw))
            return checked_number(_with_scale(number, quantum, Decimal(0)))
        if isinstance(raw, float):
            number = decimal_of(raw)
            return checked_number(_with_scale(number, quantum, _NOISE * max(abs(number), Decimal(1))))
        raise _no_number(raw)

    return decode


def _with_scale(number: Decimal, quantum: Decimal | None, allowed: Decimal) -> Decimal:
    """`number` with the declared decimals, if it is no farther from them than `allowed`.

    A float is so given back the decimals that its binary form blurred.
    """
    if quantum is None:
        return number
    try:
        rounded = number.quantize(quantum, ROUND_HALF_EVEN, _EXACT)
    except InvalidOperation:
        raise misfit(f"a number of more than {NUMBER_DIGITS} digits; {_AS_TEXT}", number) from None
    if abs(rounded - number) > allowed:
        raise misfit("the number has more decimals than its column declares", number)
    return rounded


def _no_number(raw: Any) -> RowError:
    """What to raise about a value that is no number; PostgreSQL's JSON writes NaN and infinity as texts."""
    if raw in _NOT_FINITE:
        return _not_finite(raw, raw)
    return misfit("the value is not a number, but the column is declared as one", raw)


def _not_finite(name: str, text: str) -> NotHeldError:
    return NotHeldError(f"the value is {name}; NaN and infinity are not DynamoDB numbers; {_AS_TEXT}", text)


def decimal_of(raw: float) -> Decimal:
    """The shortest decimal that is this 64-bit float. Raises: NoFormError."""
    return checked_number(Decimal(repr(raw))) if math.isfinite(raw) else checked_number(Decimal(raw))


def float_decoder(kind: Kind) -> Callable[[Any], Decimal]:
    def decode(raw: Any) -> Decimal:
        if isinstance(raw, float):
            return (_single(raw) if kind.single else None) or decimal_of(raw)
        if isinstance(raw, (int, Decimal)):
            return checked_number(Decimal(raw))
        raise _no_number(raw)

    return decode


def _single(raw: float) -> Decimal | None:
    """The shortest decimal that is this 32-bit float; None for what is none, such as a sum of several."""
    if not _is_single(raw, raw):
        return None
    texts = (f"{raw:.{digits}g}" for digits in _SINGLE_DIGITS)
    return next(Decimal(text) for text in texts if _is_single(float(text), raw))


def _is_single(number: float, raw: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", number))[0] == raw)
    except OverflowError:
        return False


# ── Dates, times of day and timestamps: from what a driver gives to Python's own ──

# Python takes it for the next midnight from 3.13 on; a time of day has no such thing, and no two versions may differ.
_END_OF_DAY = {datetime: re.compile(r"[T ]24"), time: re.compile(r"^T?24")}
"""By what is read, since the text of a date may begin with 24, too: the year 2400."""


def date_decoder(_: Kind) -> Callable[[Any], date]:
    def decode(raw: Any) -> date:
        moment = _from_iso(raw, datetime, "a date") if isinstance(raw, str) else raw
        if isinstance(moment, datetime):
            if moment.time() != time(0):
                raise misfit("the value has a time of day, but the column is declared as a date", raw)
            return moment.date()
        if isinstance(moment, date):
            return moment
        raise misfit("the value is not a date, but the column is declared as one", raw)

    return decode


def time_decoder(_: Kind) -> Callable[[Any], time]:
    def decode(raw: Any) -> time:
        value = _from_iso(raw, time, "a time") if isinstance(raw, str) else raw
        if isinstance(value, time):
            return value
        raise misfit("the value is not a time, but the column is declared as one", raw)

    return decode


def timestamp_decoder(_: Kind) -> Callable[[Any], datetime]:
    """Gives a datetime in UTC where the value has a zone, and one without a zone where it has none."""

    def decode(raw: Any) -> datetime:
        value = _from_iso(raw, datetime, "a timestamp") if isinstance(raw, str) else raw
        if not isinstance(value, datetime):
            raise misfit("the value is not a timestamp, but the column is declared as one", raw)
        try:
            return value.astimezone(UTC) if value.tzinfo else value
        except OverflowError:
            raise misfit("the time is outside the years 1 to 9999 in UTC", raw) from None

    return decode


def moment_of(value: Any) -> datetime:
    """A decoded date or timestamp as a datetime; a date is its midnight.

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
"""Moments of PostgreSQL's that Python has no value for, and what they are called."""
