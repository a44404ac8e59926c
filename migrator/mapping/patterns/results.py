"""Conversion of answers: to dicts for a service's callers, and to rows from a service's own functions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any
from uuid import UUID

from migrator.mapping.model.evidence import Side
from migrator.mapping.model.mapping import Part, Pattern
from migrator.mapping.patterns.answers import plain_rows
from migrator.mapping.patterns.handed import Answer, Kinds, Parts, Records
from migrator.runtime.errors import SettingsError, did_you_mean

Rows = list[tuple[Any, ...]]
Record = Mapping[str, Any]
_EXACT = Context(prec=400)
_LONGEST_INTEGER = Decimal(10) ** 40
_FORMS = (bool, float, Decimal, bytes, datetime, date, time, timedelta, UUID)


def handed(pattern: Pattern, parts: Mapping[str, Rows], origin: Side, kinds: Mapping[str, Kinds]) -> Answer:
    """The answer for a caller: dicts by attribute; of a pattern with parts such by part. `kinds`: by part.

    A part of `one: true` is one dict, or None. All lists and dicts are the caller's own. Equal numbers are of one form: an
    int where it is whole, else a Decimal without useless zeros.
    """
    by_part = {
        part.name: records(part, parts[part.name], origin, kinds.get(part.name, {})) for part in pattern.parts
    }
    if not pattern.parts[0].name:
        return by_part[""]
    one = {part.name for part in pattern.parts if part.one}
    return Parts(
        {name: next(iter(found), None) if name in one else found for name, found in by_part.items()},
        origin,
        kinds,
    )


def records(part: Part, rows: Rows, origin: Side, kinds: Kinds) -> Records:
    """A part's rows as dicts by attribute."""
    return Records(
        (dict(zip(part.attributes, map(own_value, row), strict=True)) for row in rows), origin, kinds
    )


def own_value(value: Any) -> Any:
    """A copy of the value in a form that is the same from both sides."""
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, dict):
        return {name: own_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [own_value(inner) for inner in value]
    return value


def _number(value: Decimal) -> int | Decimal:
    if value == value.to_integral_value() and abs(value) < _LONGEST_INTEGER:
        return int(value)
    return value.normalize(_EXACT)


# ── answers of a service's own functions ──


def records_of(pattern: Pattern, answer: Any, at_most: int) -> dict[str, list[Record]]:
    """The answer's records by part, as copies of our own: the caller may change those it has.

    `answer`: a list of records, one record or None; of a pattern with parts a dict of such by part.
    Raises: SettingsError for any other form, or another name of a part; TooManyError beyond `at_most` records.
    """
    if not pattern.parts[0].name:
        return {"": _listed(pattern.parts[0], answer, at_most)}
    names = [part.name for part in pattern.parts]
    if not isinstance(answer, Mapping):
        raise SettingsError(
            f"it returned {_called(answer)}, but {pattern.name} has parts: {', '.join(names)}"
        )
    unknown = [str(name) for name in answer if name not in names]
    missing = [name for name in names if name not in answer]
    if unknown or missing:
        lacking = f"it did not return part '{missing[0]}'" if missing else ""
        raise SettingsError("; ".join(word for word in (_other_part(unknown, names), lacking) if word))
    return {part.name: _listed(part, answer[part.name], at_most) for part in pattern.parts}


def _other_part(unknown: Sequence[str], names: Sequence[str]) -> str:
    """The message for parts that the pattern does not have. A key may be a value of a row, so it is quoted only if it is
    similar to a part's name."""
    for name in unknown:
        if guess := _likely(name, names):
            return f"it returned the part '{name}'{guess}"
    return f"it returned a part of an unknown name; known: {', '.join(names)}" if unknown else ""


def _likely(name: str, names: Iterable[str]) -> str:
    """'; did you mean …?', or '' where no known name is like it."""
    guess = did_you_mean(name, names)
    return guess if guess.startswith("; did") else ""


def rows_of(part: Part, records: Sequence[Record], readers: Sequence[Any] = ()) -> Rows:
    """The records as rows of the part's attributes, in the form of items. `readers`: as for `plain_rows`."""
    rows = [tuple(record.get(name) for name in part.attributes) for record in records]
    return plain_rows(part, rows, readers)


def names_fault(part: Part, ours: Sequence[Record], others: Sequence[Record]) -> str:
    """The fault in the names of `ours`: an attribute that no record has, though the other side has it or a name is similar;
    '' for none. An item may lack an attribute that has no value."""
    if not ours:
        return ""
    given = {str(name) for record in ours for name in record}
    unknown = given - set(part.attributes)
    there = {name for record in others for name, value in record.items() if value is not None}
    for name in part.attributes:
        if name in given or (others and name not in there):
            continue
        if guess := _likely(name, unknown):
            return f"it does not return '{name}'{guess}"
        if not given & set(part.attributes):
            return f"it does not return '{name}' or any other attribute of the pattern"
    return ""


class TooManyError(SettingsError):
    """An answer of more rows than are compared."""


def _listed(part: Part, answer: Any, at_most: int) -> list[Record]:
    if answer is None:
        return []
    records_given = [answer] if _is_record(answer) else answer
    if not isinstance(records_given, Sequence) or isinstance(records_given, (str, bytes)):
        raise SettingsError(
            f"it returned {_called(answer)}; return a list of dicts, dataclasses, named tuples or rows"
        )
    if len(records_given) > at_most:
        raise TooManyError(f"more than {at_most:,} rows; not compared")
    return [_record(part, record) for record in records_given]


def _is_record(value: Any) -> bool:
    named = isinstance(value, Mapping) or hasattr(value, "_asdict") or hasattr(value, "_mapping")
    return named or (is_dataclass(value) and not isinstance(value, type))


def _record(part: Part, value: Any) -> Record:
    """The record with all of its names; only the values of attributes that the part returns are read."""
    return {name: _settled(get()) if name in part.attributes else None for name, get in _fields(value)}


def _fields(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The names, each with a function that reads its value."""
    if hasattr(value, "_sa_instance_state"):
        # Objects of an ORM, dataclasses among them: reading a field may query the database while a caller waits.
        raise _no_record(value)
    if isinstance(value, Mapping):
        named = value
    elif hasattr(value, "_mapping"):  # a row of SQLAlchemy's
        named = value._mapping
    elif hasattr(value, "_asdict"):
        named = value._asdict()
    elif is_dataclass(value) and not isinstance(value, type):
        return ((field.name, partial(getattr, value, field.name)) for field in fields(value))
    else:
        raise _no_record(value)
    return ((str(name), partial(named.__getitem__, name)) for name in named)


def _no_record(value: Any) -> SettingsError:
    return SettingsError(f"its rows are {_called(value)}; return dicts, dataclasses, named tuples or rows")


def _called(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _settled(value: Any) -> Any:
    """A copy of the value in a form that items have, or that a driver gives and can be converted.

    Raises: SettingsError for any other value: it could change between two comparisons.
    """
    if isinstance(value, Mapping):
        return {str(name): _settled(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(inner) for inner in value]
    if isinstance(value, (set, frozenset)):
        return _sorted([_settled(inner) for inner in value])
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if type(value).__name__ == "Binary":  # boto3's own class for binary values
        return bytes(value.value)
    # Members of enumerations may be texts or numbers, and are shown otherwise.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, _FORMS):
        return value
    raise SettingsError(
        f"it returns {_called(value)} in a row, which items cannot have; return a plain value"
    )


def _sorted(values: list[Any]) -> list[Any]:
    """As sets of DynamoDB are read."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)
