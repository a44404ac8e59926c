"""Answers converted for a service's callers, and from a service's own functions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from migrator.mapping.patterns.answers import plain_rows
from migrator.model.errors import SettingsError, did_you_mean
from migrator.model.patterns import Part, Pattern
from migrator.model.table import Value

Rows = list[tuple[Any, ...]]
Record = Mapping[str, Any]
Records = Mapping[str, Sequence[Record]]
"""By the name of a part."""

Answer: TypeAlias = "list[dict[str, Value]] | dict[str, list[dict[str, Value]] | dict[str, Value] | None]"
"""What a caller is given: dicts by attribute, or such by the name of a part."""

_EXACT = Context(prec=400)
_LONGEST_INTEGER = Decimal(10) ** 40
_FORMS = (bool, float, Decimal, bytes, datetime, date, time, timedelta, UUID)


def handed(pattern: Pattern, parts: Mapping[str, Rows]) -> Answer:
    """The answer for a caller: a list of dicts by attribute; of a pattern with parts a dict of such lists by part.

    A part of `one: true` is one dict, or None. All lists and dicts are the caller's own. Equal numbers are of one form: an
    int where it is whole, else a Decimal without useless zeros.
    """
    if not pattern.parts[0].name:
        return records(pattern.parts[0], parts[""])
    return {
        part.name: _only(records(part, parts[part.name])) if part.one else records(part, parts[part.name])
        for part in pattern.parts
    }


def records(part: Part, rows: Rows) -> list[dict[str, Value]]:
    """A part's rows as dicts by attribute."""
    return [dict(zip(part.attributes, map(own_value, row), strict=True)) for row in rows]


def _only(listed: list[dict[str, Value]]) -> dict[str, Value] | None:
    return listed[0] if listed else None


def own_value(value: Any) -> Any:
    """The value in a form that is the same from both sides, and that nobody else holds."""
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, dict):
        return {name: own_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [own_value(one) for one in value]
    return value


def _number(value: Decimal) -> int | Decimal:
    if value == value.to_integral_value() and abs(value) < _LONGEST_INTEGER:
        return int(value)
    return value.normalize(_EXACT)


# ── what a service's own functions answer ──


def records_of(pattern: Pattern, answer: Any, at_most: int) -> dict[str, list[Record]]:
    """The answer's records by part, as copies of our own: the caller may change those it has.

    `answer`: a list of records, one record or None; of a pattern with parts a dict of such by part.
    Raises: SettingsError for any other form, or another name of a part; TooManyError beyond `at_most` records.
    """
    if not pattern.parts[0].name:
        return {"": _listed(pattern.parts[0], answer, at_most)}
    names = [part.name for part in pattern.parts]
    if not isinstance(answer, Mapping):
        raise SettingsError(f"it gave {_called(answer)}, and {pattern.name} has parts: {', '.join(names)}")
    unknown = [str(name) for name in answer if name not in names]
    missing = [name for name in names if name not in answer]
    if unknown or missing:
        lacking = f"it gave no part '{missing[0]}'" if missing else ""
        raise SettingsError("; ".join(word for word in (_other_part(unknown, names), lacking) if word))
    return {part.name: _listed(part, answer[part.name], at_most) for part in pattern.parts}


def _other_part(unknown: Sequence[str], names: Sequence[str]) -> str:
    """What is said of parts that the pattern has not. A key may be a value of a row: it is named only where it is like a
    part's name."""
    for name in unknown:
        if guess := _likely(name, names):
            return f"it gave the part '{name}'{guess}"
    return f"it gave a part of another name; known: {', '.join(names)}" if unknown else ""


def _likely(name: str, known: Iterable[str]) -> str:
    """'; did you mean …?', or '' where no known name is like it."""
    guess = did_you_mean(name, known)
    return guess if guess.startswith("; did") else ""


def rows_of(part: Part, records: Sequence[Record], readers: Sequence[Any] = ()) -> Rows:
    """The records as rows of the part's attributes, in the form of items. `readers`: as for `plain_rows`."""
    rows = [tuple(one.get(name) for name in part.attributes) for one in records]
    return plain_rows(part, rows, readers)


def names_fault(part: Part, ours: Sequence[Record], others: Sequence[Record]) -> str:
    """What is wrong with the names of `ours`: an attribute that none of them has, while all know others like it, or the
    other side has it; '' for nothing. An item may lack an attribute that has no value."""
    if not ours:
        return ""
    given = {str(name) for one in ours for name in one}
    unknown = given - set(part.attributes)
    there = {name for one in others for name, value in one.items() if value is not None}
    for name in part.attributes:
        if name in given or (others and name not in there):
            continue
        if guess := _likely(name, unknown):
            return f"it gives no '{name}'{guess}"
        if not given & set(part.attributes):
            return f"it gives no '{name}', nor any other attribute that the pattern returns"
    return ""


class TooManyError(SettingsError):
    """An answer of more rows than are compared."""


def _listed(part: Part, answer: Any, at_most: int) -> list[Record]:
    if answer is None:
        return []
    found = [answer] if _is_record(answer) else answer
    if not isinstance(found, Sequence) or isinstance(found, (str, bytes)):
        raise SettingsError(
            f"it gave {_called(answer)}; give a list of dicts, dataclasses, named tuples or rows"
        )
    if len(found) > at_most:
        raise TooManyError(f"more than {at_most:,} rows; they are not compared")
    return [_record(part, one) for one in found]


def _is_record(value: Any) -> bool:
    named = isinstance(value, Mapping) or hasattr(value, "_asdict") or hasattr(value, "_mapping")
    return named or (is_dataclass(value) and not isinstance(value, type))


def _record(part: Part, value: Any) -> Record:
    """All of its names, with the values of what the part returns: nothing else is compared, or read."""
    return {name: _settled(get()) if name in part.attributes else None for name, get in _fields(value)}


def _fields(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names, and what gives their values."""
    if hasattr(value, "_sa_instance_state"):
        # Objects of an ORM, dataclasses among them: reading a field may ask the database, for a caller who waits.
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
    return SettingsError(f"its rows are {_called(value)}; give dicts, dataclasses, named tuples or rows")


def _called(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _settled(value: Any) -> Any:
    """A copy of the value in a form that items have, or that a driver gives and an item says in its own form.

    Raises: SettingsError for any other: it would be the caller's, and no two looks would find the same in it.
    """
    if isinstance(value, Mapping):
        return {str(name): _settled(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_settled(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return _sorted([_settled(one) for one in value])
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
    raise SettingsError(f"it gives {_called(value)} in a row, which items do not have; give a plain value")


def _sorted(values: list[Any]) -> list[Any]:
    """As sets of DynamoDB are read."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)
