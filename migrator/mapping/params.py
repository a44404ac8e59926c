"""Parameters of access patterns as a program gives them: checked, and as texts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from migrator.errors import RowError, SettingsError
from migrator.facts import Kind
from migrator.mapping.document import did_you_mean
from migrator.mapping.nested import encodable
from migrator.mapping.numbers import checked_number
from migrator.mapping.param_texts import list_text, param_text
from migrator.mapping.unfit import NotHeldError, without_advice
from migrator.mapping.values import decoder
from migrator.model import Param, ParamType, Pattern

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
    known = {param.name: param for param in pattern.params}
    faults = [
        f"{pattern.name} has no parameter '{name}'{did_you_mean(name, known)}"
        for name in given
        if name not in known
    ]
    found: dict[str, Any] = {}
    for param in pattern.params:
        value = given.get(param.name)
        try:
            found[param.name] = None if value is None and param.optional else _checked(param, value)
        except _TooLargeError:
            faults.append(f"{pattern.name}: parameter '{param.name}' is an integer beyond 64 bits")
        except NotHeldError as error:
            what = f"{pattern.name}: parameter '{param.name}' is of type {param.type}"
            faults.append(f"{what}; {without_advice(error)}")
        except (TypeError, ValueError, ArithmeticError, RowError):
            faults.append(_fault(pattern, param, value, missing=param.name not in given))
    if faults:
        raise SettingsError("\n".join(faults))
    return found


def texts_of(pattern: Pattern, values: Mapping[str, Any]) -> dict[str, str]:
    """The parameters that are set as texts that `read_params` reads; `values` as `checked_params` gives them."""
    return {
        param.name: list_text([param_text(one, param.type) for one in values[param.name]])
        if param.many
        else param_text(values[param.name], param.type)
        for param in pattern.params
        if values[param.name] is not None
    }


def kind_of(pattern: Pattern, values: Mapping[str, Any]) -> str:
    """The optional parameters that are set, joined by commas."""
    return ",".join(
        sorted(one.name for one in pattern.params if one.optional and values[one.name] is not None)
    )


def _fault(pattern: Pattern, param: Param, value: Any, *, missing: bool) -> str:
    wanted = f"a list of {param.type}" if param.many else param.type
    if missing:
        return f"{pattern.name}: parameter '{param.name}' ({wanted}) is missing"
    given = "None" if value is None else type(value).__name__
    return f"{pattern.name}: parameter '{param.name}' is of type {wanted}; this {given} is not"


def _checked(param: Param, value: Any) -> Any:
    check = _CHECKS[param.type]
    if not param.many:
        return check(value)
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return [check(one) for one in value]


def _of(*types: type, but: type | None = None) -> Checked:
    def check(value: Any) -> Any:
        # Python counts with true and false, and takes a datetime for a date.
        if not isinstance(value, types) or (but is not None and isinstance(value, but)):
            raise TypeError
        return value

    return check


def _text(value: Any) -> str:
    return encodable(_of(str)(value))


def _integer(value: Any) -> int:
    found = int(_of(int, but=bool)(value))
    if not _LOWEST <= found <= _HIGHEST:
        raise _TooLargeError
    return found


def _number(value: Any) -> Decimal:
    found = _of(int, float, Decimal, but=bool)(value)
    # The shortest decimal of a float is the one that was written.
    return checked_number(Decimal(repr(found)) if isinstance(found, float) else Decimal(found))


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
