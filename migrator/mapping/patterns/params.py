"""Parameters of access patterns: read from texts, checked as a program gives them, and written as texts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from msgspec import Struct

from migrator.mapping.items.filters import begin, following
from migrator.mapping.items.values import (
    NotHeldError,
    checked_number,
    decoder,
    encodable,
    text,
    without_advice,
)
from migrator.mapping.model.evidence import Member
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.mapping import Param, ParamType, Pattern
from migrator.mapping.model.table import Value
from migrator.runtime.errors import RowError, SettingsError, did_you_mean

# ── Parameters from texts ──


def read_params(pattern: Pattern, given: Mapping[str, str]) -> dict[str, Any]:
    """Parse by declared types; an unset optional parameter is None.

    A list is written with commas, or as a JSON array; binary values are base64.
    Raises: SettingsError naming every parameter that is unknown, missing or not of its type.
    """
    faults, values = _unknown(pattern, given), dict[str, Any]()
    for param in pattern.params:
        try:
            values[param.name] = _param(param, given.get(param.name))
        except (ValueError, InvalidOperation, RowError) as error:
            faults.append(f"parameter '{param.name}' is not of type {_type(param)}{_how(param, error)}")
        except KeyError:
            faults.append(
                f"parameter '{param.name}' ({_type(param)}) is missing; give it with -p {param.name}=…"
            )
    if faults:
        raise SettingsError("\n".join(sorted(faults)))
    return values


def read_member(pattern: Pattern, given: str) -> Member:
    """The member of a ramp's audience in `NAME=VALUE`.

    Raises: SettingsError if the pattern has no such parameter, or the value is not of its type; without the
    value.
    """
    name, is_there, text = given.partition("=")
    params = {param.name: param for param in pattern.params}
    if not is_there:
        raise SettingsError("--for takes a parameter and its value, such as user_id=42")
    if unknown := _unknown(pattern, [name]):
        raise SettingsError(unknown[0])
    if params[name].many:
        raise SettingsError(
            f"{pattern.name}: parameter '{name}' is a list; choose one that takes a single value"
        )
    try:
        return name, param_text(_param(params[name], text), params[name].type)
    except (ValueError, InvalidOperation, RowError) as error:
        what = f"{pattern.name}: parameter '{name}' is not of type {params[name].type}"
        raise SettingsError(f"{what}{_how(params[name], error)}") from None


def _unknown(pattern: Pattern, given: Iterable[str]) -> list[str]:
    names = [param.name for param in pattern.params]
    return [
        f"{pattern.name} has no parameter '{name}'{did_you_mean(name, names)}"
        for name in given
        if name not in names
    ]


def sample_params(pattern: Pattern) -> dict[str, Any]:
    """Sample values to test whether a source accepts the SQL; NULL if any type takes it."""
    samples = {param.name: _SAMPLES.get(param.type) for param in pattern.params}
    return {
        param.name: [samples[param.name]] if param.many else samples[param.name] for param in pattern.params
    }


def schema_of(mapping: MappingModel, pattern: Pattern, params: Mapping[str, Any]) -> str | None:
    """The schema of the pattern's SQL; None for the default one.

    Raises: SettingsError for one that the mapping does not list.
    """
    if pattern.schema is None:
        return None
    schema = str(params[pattern.schema])
    if schema not in mapping.schemas:
        what = f"source.schemas has no '{schema}'{did_you_mean(schema, mapping.schemas)}"
        raise SettingsError(f"parameter '{pattern.schema}': {what}")
    return schema


def _how(param: Param, error: Exception) -> str:
    """Why a text does not have its parameter's type, without quoting it, and how to write it."""
    why = f": {without_advice(error)}" if isinstance(error, NotHeldError) else ""
    of = _TYPES[param.type]
    return f"{why}; write it as {f'{of.written},{of.another}' if param.many else of.written}"


def _type(param: Param) -> str:
    return f"list of {param.type}" if param.many else param.type


def _param(param: Param, text: str | None) -> Any:
    if text is None:
        if param.optional:
            return None
        raise KeyError(param.name)
    read = _TYPES[param.type].read
    return [read(part) for part in _listed(text)] if param.many else read(text)


def _listed(text: str) -> list[str]:
    """Numbers of a JSON array stay texts, so that they are exact."""
    if not text.strip():
        return []
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",")]
    values = json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_number)
    if any(not isinstance(value, (str, bool)) for value in values):
        raise ValueError("a list of plain values is taken")
    return [value if isinstance(value, str) else str(value).lower() for value in values]


def _no_number(text: str) -> str:
    raise ValueError(text)


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


# Numbers are sent with their type, and LIMIT takes no NULL everywhere; all else is text that the source reads.
_SAMPLES: dict[ParamType, Value] = {"integer": 1, "number": Decimal(1), "boolean": False}


# ── Parameters as text for the command line, from the decoded values of rows. Pure ──


def param_text(value: Any, type_: ParamType) -> str:
    """The inverse of `read_params`. Raises: RowError for a value without a text."""
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
    """The first moment of a time's bucket, or (`after`) of the next one.

    Raises: RowError for a value that is not a time.
    """
    if not isinstance(value, date):
        raise RowError("a bucket of time takes a timestamp or a date")
    begun = begin(unit, value)
    moment = following(unit, begun) if after else begun
    zone = value.tzinfo if isinstance(value, datetime) else None
    return param_text(moment.replace(tzinfo=zone), param.type)


_PAST = 20
"""The absent number lies behind the end of the known numbers by this fraction (1/20) of their range."""


def absent_value(values: Sequence[Any]) -> Any:
    """A value past the largest one; None for types in which a row may have it."""
    numbers = [value for value in values if isinstance(value, (int, Decimal)) and not isinstance(value, bool)]
    if numbers:
        # Well past the last one that is known, since the very last row of the table may not be.
        return max(numbers) + 1 + int(max(numbers) - min(numbers)) // _PAST
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return f"{max(texts)}0"
    times = [value for value in values if isinstance(value, date)]
    return max(times) + timedelta(days=366) if times else None


# ── Parameters from a program: validated, and as texts. Pure ──

Checked = Callable[[Any], Any]
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
"""No source's own integers go beyond; MySQL's may be without a sign."""


class _TooLargeError(ValueError):
    """An integer beyond 64 bits."""


def checked_params(pattern: Pattern, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as from `read_params`; a missing optional one is None.

    Times and UUIDs may also be texts. Raises: SettingsError naming every parameter that is unknown, missing,
    not of its type or an integer beyond 64 bits, without any value.
    """
    faults, values = _unknown(pattern, given), dict[str, Any]()
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
    return {
        param.name: list_text([param_text(value, param.type) for value in values[param.name]])
        if param.many
        else param_text(values[param.name], param.type)
        for param in pattern.params
        if values[param.name] is not None
    }


def kind_of(pattern: Pattern, values: Mapping[str, Any]) -> str:
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
    check = _TYPES[param.type].check
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


_of_str, _of_int = _of(str), _of(int, but=bool)


def _text(value: Any) -> str:
    return encodable(_of_str(value))


def _integer(value: Any) -> int:
    number = int(_of_int(value))
    if not _LOWEST <= number <= _HIGHEST:
        raise _TooLargeError
    return number


def _number(value: Any) -> Decimal:
    number = _of(int, float, Decimal, but=bool)(value)
    # The shortest decimal of a float is the one that was written.
    return checked_number(Decimal(repr(number)) if isinstance(number, float) else Decimal(number))


def _date(value: Any) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else _of(date, but=datetime)(value)


_date_of, _timestamp_of, _uuid_of = (decoder(Kind(name)) for name in ("date", "timestamp", "uuid"))


class _ParamForm(Struct, frozen=True):
    """A type of parameters: its parser, its check of a program's value, and two texts as examples."""

    read: Callable[[str], Any]
    check: Checked
    written: str
    another: str


_UUID = "123e4567-e89b-12d3-a456-426614174000"
_MOMENT = "2024-05-31T12:00:00Z"
_TYPES: dict[ParamType, _ParamForm] = {
    "integer": _ParamForm(int, _integer, "42", "43"),
    "number": _ParamForm(lambda text: checked_number(Decimal(text)), _number, "12.50", "12.50"),
    "text": _ParamForm(str, _text, "text", "text"),
    "boolean": _ParamForm(_truth, _of(bool), "true", "false"),
    "date": _ParamForm(_date_of, _date, "2024-05-31", "2024-05-31"),
    "timestamp": _ParamForm(
        _timestamp_of, lambda value: _timestamp_of(_of(datetime, str)(value)), _MOMENT, _MOMENT
    ),
    "uuid": _ParamForm(_uuid_of, lambda value: _uuid_of(_of(str, UUID)(value)), _UUID, _UUID),
    "binary": _ParamForm(
        lambda text: base64.b64decode(text, validate=True),
        lambda value: bytes(_of(bytes, bytearray, memoryview)(value)),
        "aGVsbG8=",
        "aGVsbG8=",
    ),
}
