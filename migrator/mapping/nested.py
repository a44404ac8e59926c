"""Values that hold values: JSON documents, arrays, composites, hstores and MySQL's SETs, as plain lists and maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from migrator.errors import RowError
from migrator.facts import Kind
from migrator.limits import NESTING_LEVELS
from migrator.mapping.numbers import checked_number, decimal_of
from migrator.mapping.unfit import NoFormError, without_advice
from migrator.model import Value

Step = Callable[[Any], Any]
Scalars = Callable[[Kind], Step]
"""Gives the function from one value (as a driver gives it) to its form in an item."""


def encodable(raw: str) -> str:
    try:
        raw.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("the text is not valid Unicode (half of a surrogate pair)") from None
    return raw


def json_decoder(_: Kind) -> Step:
    return _refusing_whole(lambda raw: _plain_json(_parsed(raw) if isinstance(raw, str) else raw, 1))


def list_decoder(kind: Kind, scalars: Scalars) -> Step:
    """Of an array, as its JSON text or as the driver's own list."""
    element = kind.element or Kind("plain")
    of_json, of_driver = _of_json(element, scalars), scalars(element)

    def decode(raw: Any) -> list[Any]:
        found = _parsed(raw) if isinstance(raw, str) else raw
        if not isinstance(found, list):
            raise RowError("the value is no array, though the column is declared as one")
        return _elements(found, of_json if isinstance(raw, str) else of_driver)  # type: ignore[no-any-return]

    return _refusing_whole(decode)


def map_decoder(kind: Kind, scalars: Scalars) -> Step:
    """Of a composite or an hstore, as its JSON text. A field that is NULL is left out; an hstore's is its own."""
    of_json = _map_of_json(kind, scalars)

    def decode(raw: Any) -> dict[str, Any]:
        found = _parsed(raw) if isinstance(raw, str) else raw
        if not isinstance(found, Mapping):
            raise RowError("the value has no fields, though the column is declared with some")
        return of_json(found)  # type: ignore[no-any-return]

    return _refusing_whole(decode)


def set_decoder(_: Kind) -> Step:
    """Of MySQL's SET: its members hold no comma, and come in the declared order."""

    def decode(raw: Any) -> list[str]:
        if not isinstance(raw, str):
            raise RowError("the value is no set, though the column is declared as one")
        return [encodable(one) for one in raw.split(",")] if raw else []

    return decode


def _refusing_whole(decode: Step) -> Step:
    """`decode`, for which the text of a part is not the text of the value."""

    def whole(raw: Any) -> Any:
        try:
            return decode(raw)
        except NoFormError as error:
            what = f"a value inside of it: {without_advice(error)}"
            raise RowError(f"{what}; give a column of its SQL as text") from None

    return whole


# ── JSON ──


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, InvalidOperation, RecursionError):
        raise RowError("the text is no JSON, though the column is declared as one") from None


def _plain_json(value: Any, level: int) -> Value:
    if level > NESTING_LEVELS:
        raise RowError(f"JSON nested deeper than {NESTING_LEVELS} levels, more than an item can hold")
    if isinstance(value, Mapping):
        return {encodable(str(name)): _plain_json(child, level + 1) for name, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_json(child, level + 1) for child in value]
    if isinstance(value, float):
        return decimal_of(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)):
        checked_number(Decimal(value))
        return value
    return encodable(value) if isinstance(value, str) else None


# ── what the source wrote as JSON ──


def _of_json(kind: Kind, scalars: Scalars) -> Step:
    """From a value that JSON gave to the form that a column of `kind` has in an item."""
    if kind.name == "list":
        element = _of_json(kind.element or Kind("plain"), scalars)
        return lambda value: _elements(value, element)
    if kind.name == "map":
        return _map_of_json(kind, scalars)
    integer = scalars(kind)
    special: dict[str, Step] = {
        "json": lambda value: _plain_json(value, 1),
        "binary": lambda value: bytes.fromhex(value.removeprefix("\\x")),
        "integer": lambda value: integer(_whole_number(value)),
    }
    return special.get(kind.name) or scalars(kind)


def _whole_number(value: Any) -> Any:
    """PostgreSQL writes an oid as a text of digits."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _elements(value: Any, element: Step) -> Any:
    if isinstance(value, list):
        return [None if one is None else _elements(one, element) for one in value]
    return element(value)


def _map_of_json(kind: Kind, scalars: Scalars) -> Step:
    if kind.element is not None:
        each = _of_json(kind.element, scalars)
        return lambda value: {name: None if one is None else each(one) for name, one in value.items()}
    fields = [(name, _of_json(field, scalars)) for name, field in kind.fields]
    return lambda value: {name: of(value[name]) for name, of in fields if value.get(name) is not None}
