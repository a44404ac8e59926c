"""Parameters of access patterns: validation of a caller's values, and their text form for the command line."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.mapping.items.filters import bucket, following
from migrator.mapping.items.values import (
    NotHeldError,
    checked_number,
    decoder,
    encodable,
    text,
    without_advice,
)
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Param, ParamType, Pattern
from migrator.runtime.errors import RowError, SettingsError, did_you_mean

# ── Parameters as text for the command line, from the decoded values of rows. Pure ──


def param_text(value: Any, type_: ParamType) -> str:
    """The text that `read_params` parses back to the value. Raises: RowError for a value that has no text."""
    if type_ == "binary" and isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if type_ == "date" and isinstance(value, datetime):
        value = value.date()
    if type_ == "integer" and isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    return text(value)


def list_text(texts: Sequence[str]) -> str:
    """The list as a JSON array, so that commas stay in their values."""
    return json.dumps(list(texts), ensure_ascii=False)


def bucket_text(value: Any, unit: str, param: Param, *, after: bool = False) -> str:
    """The first moment of the bucket that a time falls into, or (`after`) of the next one.

    Raises: RowError for what is no time.
    """
    if not isinstance(value, date):
        raise RowError("a bucket of time takes a timestamp or a date")
    begun = datetime.fromisoformat(_WHOLE[unit](bucket(unit, value)))
    moment = following(unit, begun) if after else begun
    zone = value.tzinfo if isinstance(value, datetime) else None
    return param_text(moment.replace(tzinfo=zone), param.type)


_WHOLE: dict[str, Callable[[str], str]] = {
    "millisecond": lambda begun: begun,
    "second": lambda begun: begun,
    "hour": lambda begun: f"{begun}:00",
    "day": lambda begun: begun,
    "month": lambda begun: f"{begun}-01",
    "year": lambda begun: f"{begun}-01-01",
}


_PAST = 20
"""The absent number lies behind the end of the known numbers by this fraction (1/20) of their range."""


def absent_value(values: Sequence[Any]) -> Any:
    """A value of the same type past the largest one; None for types where that may still be a row's value."""
    numbers = [value for value in values if isinstance(value, (int, Decimal)) and not isinstance(value, bool)]
    if numbers:
        # Well past the last one that is known, since the very last row of the table may not be.
        return max(numbers) + 1 + int(max(numbers) - min(numbers)) // _PAST
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return f"{max(texts)}0"
    times = [value for value in values if isinstance(value, date)]
    return max(times) + timedelta(days=366) if times else None


# ── Parameters as a program gives them: validated, and as texts. Pure ──

Checked = Callable[[Any], Any]
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
"""No source's own integers go beyond; MySQL's may be without a sign."""


class _TooLargeError(ValueError):
    """An integer beyond 64 bits."""


def checked_params(pattern: Pattern, given: Mapping[str, Any]) -> dict[str, Any]:
    """The pattern's parameters as `read_params` gives them; an optional one that is not given is None.

    Times and UUIDs may also be given as their texts. Raises: SettingsError naming every parameter that is unknown, missing,
    not of its type or an integer beyond 64 bits, without any value.
    """
    params = {param.name: param for param in pattern.params}
    faults = [
        f"{pattern.name} has no parameter '{name}'{did_you_mean(name, params)}"
        for name in given
        if name not in params
    ]
    values: dict[str, Any] = {}
    for param in pattern.params:
        value = given.get(param.name)
        try:
            values[param.name] = None if value is None and param.optional else _checked(param, value)
        except _TooLargeError:
            faults.append(f"{pattern.name}: parameter '{param.name}' is an integer beyond 64 bits")
        except NotHeldError as error:
            what = f"{pattern.name}: parameter '{param.name}' is of type {param.type}"
            faults.append(f"{what}; {without_advice(error)}")
        except (TypeError, ValueError, ArithmeticError, RowError):
            faults.append(_fault(pattern, param, value, missing=param.name not in given))
    if faults:
        raise SettingsError("\n".join(faults))
    return values


def texts_of(pattern: Pattern, values: Mapping[str, Any]) -> dict[str, str]:
    """The set parameters as texts that `read_params` parses; `values` as `checked_params` returns them."""
    return {
        param.name: list_text([param_text(value, param.type) for value in values[param.name]])
        if param.many
        else param_text(values[param.name], param.type)
        for param in pattern.params
        if values[param.name] is not None
    }


def kind_of(pattern: Pattern, values: Mapping[str, Any]) -> str:
    """The optional parameters that are set, joined by commas."""
    return ",".join(
        sorted(param.name for param in pattern.params if param.optional and values[param.name] is not None)
    )


def _fault(pattern: Pattern, param: Param, value: Any, *, missing: bool) -> str:
    wanted = f"a list of {param.type}" if param.many else param.type
    if missing:
        return f"{pattern.name}: parameter '{param.name}' ({wanted}) is missing"
    given = "None" if value is None else type(value).__name__
    return f"{pattern.name}: parameter '{param.name}' is of type {wanted}, not a {given}"


def _checked(param: Param, value: Any) -> Any:
    check = _CHECKS[param.type]
    if not param.many:
        return check(value)
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [check(element) for element in value]


def _of(*types: type, but: type | None = None) -> Checked:
    def check(value: Any) -> Any:
        # In Python a bool is an int, and a datetime is a date.
        if not isinstance(value, types) or (but is not None and isinstance(value, but)):
            raise TypeError
        return value

    return check


def _text(value: Any) -> str:
    return encodable(_of(str)(value))


def _integer(value: Any) -> int:
    number = int(_of(int, but=bool)(value))
    if not _LOWEST <= number <= _HIGHEST:
        raise _TooLargeError
    return number


def _number(value: Any) -> Decimal:
    number = _of(int, float, Decimal, but=bool)(value)
    # The shortest decimal of a float is the one that was written.
    return checked_number(Decimal(repr(number)) if isinstance(number, float) else Decimal(number))


def _date(value: Any) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else _of(date, but=datetime)(value)


_timestamp_of = decoder(Kind("timestamp"))
_uuid_of = decoder(Kind("uuid"))
_CHECKS: dict[ParamType, Checked] = {
    "integer": _integer,
    "number": _number,
    "text": _text,
    "boolean": _of(bool),
    "date": _date,
    "timestamp": lambda value: _timestamp_of(_of(datetime, str)(value)),
    "uuid": lambda value: _uuid_of(_of(str, UUID)(value)),
    "binary": lambda value: bytes(_of(bytes, bytearray, memoryview)(value)),
}
