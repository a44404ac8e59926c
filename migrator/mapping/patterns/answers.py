"""Parameters and answers of access patterns: texts to parameters; items and SQL rows to the same attributes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Dict
from decimal import Decimal, InvalidOperation
from typing import Any, TypeGuard

from migrator.mapping.items import values
from migrator.mapping.items.filters import FilterContext, distance_m
from migrator.mapping.items.rows import Places, compile_ref
from migrator.mapping.items.scalars import NotHeldError, checked_number, without_advice
from migrator.mapping.items.values import attribute, decoder, stored
from migrator.mapping.model.evidence import Member
from migrator.mapping.model.facts import Kind
from migrator.mapping.model.mapping import Mapping, Param, ParamType, Part, Pattern
from migrator.mapping.model.results import Nearby
from migrator.mapping.model.table import Item, Value
from migrator.mapping.patterns.designs import Behind, Designs
from migrator.mapping.patterns.params import param_text
from migrator.runtime.errors import RowError, SettingsError, did_you_mean

# ── Values of SQL answers, converted to the form that they have in an item, attribute by attribute ──

Reader = Callable[[Any], Any]


def readers_for(mapping: Mapping, designs: Designs, part: Part) -> tuple[Reader, ...]:
    """Per attribute of the part, a function from the driver's value to the item's.

    It goes by the declared type of the attribute's column: SQLite gives floats for exact numbers and text for times.
    A value that is not of that type, or whose attribute is made of several columns, stays as it is.
    """
    return tuple(_reader(mapping, designs.columns(part.type, name)) for name in part.attributes)


def _reader(mapping: Mapping, columns: set[Behind]) -> Reader:
    only = columns.pop() if len(columns) == 1 else None
    if only is None:
        return lambda raw: raw
    kind, ref = only
    decode = decoder(kind)
    around = FilterContext(mapping.table.separator, mapping.maps, mapping.timezone)
    filtered = compile_ref(ref, Places({"": 0}, {}), around)

    def read(raw: Any) -> Any:
        try:
            return stored(attribute(filtered((decode(raw),))))
        except (RowError, ValueError):
            return raw

    return read


# ── Parameters from texts, and answers from items and rows ──

_TRUTHS = {"true": True, "false": False}


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def read_params(pattern: Pattern, given: Dict[str, str]) -> dict[str, Any]:
    """The pattern's parameters parsed from texts by their declared types; an unset optional parameter is None.

    A list is written with commas, or as a JSON array; binary values are base64.
    Raises: SettingsError naming every parameter that is unknown, missing or not of its type.
    """
    params = {param.name: param for param in pattern.params}
    faults = [
        f"{pattern.name} has no parameter '{name}'{did_you_mean(name, params)}"
        for name in given.keys() - params.keys()
    ]
    values: dict[str, Any] = {}
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
    """What `NAME=VALUE` aims a ramp of the pattern at.

    Raises: SettingsError where the pattern has no such parameter, or the value is not of its type; without the value.
    """
    name, is_there, text = given.partition("=")
    params = {param.name: param for param in pattern.params}
    if not is_there:
        raise SettingsError("--for takes a parameter and its value, such as user_id=42")
    if name not in params:
        raise SettingsError(f"{pattern.name} has no parameter '{name}'{did_you_mean(name, params)}")
    if params[name].many:
        raise SettingsError(
            f"{pattern.name}: parameter '{name}' is a list; choose one that takes a single value"
        )
    try:
        return name, param_text(_param(params[name], text), params[name].type)
    except (ValueError, InvalidOperation, RowError) as error:
        what = f"{pattern.name}: parameter '{name}' is not of type {params[name].type}"
        raise SettingsError(f"{what}{_how(params[name], error)}") from None


def sample_params(pattern: Pattern) -> dict[str, Any]:
    """Sample values of the parameters' types, to test whether a source accepts the SQL; NULL where any type takes it."""
    samples = {param.name: _SAMPLES.get(param.type) for param in pattern.params}
    return {
        param.name: [samples[param.name]] if param.many else samples[param.name] for param in pattern.params
    }


def schema_of(mapping: Mapping, pattern: Pattern, params: Dict[str, Any]) -> str | None:
    """The schema whose tables the pattern's SQL reads; None for the default one.

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
    """Why a text is not of its parameter's type, if that can be said without quoting it, and how to write it."""
    why = f": {without_advice(error)}" if isinstance(error, NotHeldError) else ""
    written = _WRITTEN[param.type]
    return f"{why}; write it as {f'{written},{_WRITTEN_TOO[param.type]}' if param.many else written}"


def _type(param: Param) -> str:
    return f"list of {param.type}" if param.many else param.type


def _param(param: Param, text: str | None) -> Any:
    if text is None:
        if param.optional:
            return None
        raise KeyError(param.name)
    read = _READERS[param.type]
    return [read(part) for part in _listed(text)] if param.many else read(text)


def _listed(text: str) -> list[str]:
    """The texts of a list; numbers of a JSON array as they are written, so that they stay exact."""
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
    truth = _TRUTHS.get(text.lower())
    if truth is None:
        raise ValueError(text)
    return truth


def _number(text: str) -> Decimal:
    return checked_number(Decimal(text))


_READERS: dict[ParamType, Callable[[str], Any]] = {
    "integer": int,
    "number": _number,
    "text": str,
    "boolean": _truth,
    "date": values.decoder(Kind("date")),
    "timestamp": values.decoder(Kind("timestamp")),
    "uuid": values.decoder(Kind("uuid")),
    "binary": lambda text: base64.b64decode(text, validate=True),
}


_WRITTEN: dict[ParamType, str] = {
    "integer": "42",
    "number": "12.50",
    "text": "text",
    "boolean": "true",
    "date": "2024-05-31",
    "timestamp": "2024-05-31T12:00:00Z",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "binary": "aGVsbG8=",
}
_WRITTEN_TOO: dict[ParamType, str] = {**_WRITTEN, "integer": "43", "boolean": "false"}

# Numbers are sent with their type, and LIMIT takes no NULL everywhere; all else is text that the source reads.
_SAMPLES: dict[ParamType, Value] = {"integer": 1, "number": Decimal(1), "boolean": False}


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def answer_of(mapping: Mapping, pattern: Pattern, items: list[Item]) -> dict[str, list[tuple[Any, ...]]]:
    """Per part of the answer the returned attributes of its items, in order; a missing attribute is None."""
    type_attribute = mapping.table.type_attribute
    return {
        part.name: [
            tuple(item.get(name) for name in part.attributes)
            for item in items
            if not part.type or item.get(type_attribute) == part.type
        ]
        for part in pattern.parts
    }


def nearest(items: list[Item], near: Nearby, key: tuple[str, ...]) -> list[Item]:
    """The items within the circle, the nearest first and equally near ones by their `key`.

    An item without both attributes of a place is left out.
    """
    placed = [(place, item) for item in items if (place := _place(item, near)) is not None]
    measured = [(distance_m(near.origin, place), item) for place, item in placed]
    within = [(metres, item) for metres, item in measured if metres <= near.within_m]
    within.sort(key=lambda pair: (pair[0], [pair[1][name] for name in key]))
    return [item for _, item in within]


def _place(item: Item, near: Nearby) -> tuple[int | Decimal, int | Decimal] | None:
    latitude, longitude = (item.get(name) for name in near.at)
    return (latitude, longitude) if _is_number(latitude) and _is_number(longitude) else None


def _is_number(value: Value) -> TypeGuard[int | Decimal]:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def plain_rows(
    part: Part, rows: list[tuple[Any, ...]], readers: Sequence[Reader] = ()
) -> list[tuple[Any, ...]]:
    """Rows of the part's SQL, converted to the form of items for comparison. `readers`: of its attributes, if known."""
    reading = readers or [lambda raw: raw] * len(part.attributes)
    return [tuple(_plain(read(value)) for read, value in zip(reading, row, strict=False)) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return values.decoder(Kind("float"))(value)
    if isinstance(value, Decimal):
        return checked_number(value)
    return values.attribute(str(value) if type(value).__name__ == "UUID" else value)
