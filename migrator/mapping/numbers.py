"""Numbers: from what a driver gives to an exact int or Decimal that DynamoDB can hold."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any

from migrator.errors import RowError
from migrator.facts import Kind
from migrator.limits import NUMBER_DIGITS, NUMBER_MAX_EXPONENT, NUMBER_MIN_EXPONENT
from migrator.mapping.unfit import NoFormError, NotHeldError, misfit, number_text

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
        raise NoFormError(f"a number outside of DynamoDB's range; {_AS_TEXT}", number_text(value))
    return value


def integer_decoder(_: Kind) -> Callable[[Any], int]:
    def decode(raw: Any) -> int:
        if isinstance(raw, int):
            return int(raw)
        if isinstance(raw, (Decimal, float)) and _is_finite(raw) and raw == int(raw):
            return int(raw)
        raise misfit("the value is no integer, though the column is declared as one", raw)

    return decode


def _is_finite(raw: Decimal | float) -> bool:
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
    return misfit("the value is no number, though the column is declared as one", raw)


def _not_finite(name: str, text: str) -> NotHeldError:
    return NotHeldError(f"the value is {name}; NaN and infinity are no DynamoDB numbers; {_AS_TEXT}", text)


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
