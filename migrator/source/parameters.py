"""The `:name` parameters of a statement: where they stand, and how their values are bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy as sa

from migrator.errors import SettingsError

if TYPE_CHECKING:
    from migrator.source.gate import CheckedStatement

_BACKSLASHED = r"'(?:[^'\\]|''|\\.)*'"
_ANSI_STRING = r"'(?:[^']|'')*'"
_COMMENTS = r"/\*.*?\*/|--[^\n]*"
_PARAMETER = r"(?<![\w:$]):(?P<name>[A-Za-z_]\w*)"
_SQLITE = rf'{_ANSI_STRING}|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|(?P<comment>{_COMMENTS})|{_PARAMETER}'
_POSTGRESQL = (
    rf"(?<!\w)[eE]{_BACKSLASHED}|{_ANSI_STRING}"
    r'|"(?:[^"]|"")*"|(?<![\w$])\$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$'
    rf"|(?P<comment>{_COMMENTS})|{_PARAMETER}"
)
_MYSQL = (
    rf'{_BACKSLASHED}|"(?:[^"]|"")*"|`[^`]*`'
    rf"|(?P<comment>/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)|{_PARAMETER}"
)
_LEXERS = {
    name: re.compile(pattern, re.DOTALL)
    for name, pattern in {
        "sqlite": _SQLITE,
        "postgresql": _POSTGRESQL,
        "mysql": _MYSQL,
        "mariadb": _MYSQL,
    }.items()
}
_BEFORE_A_LIST = re.compile(r"(?P<not>\bNOT\s+)?\bIN\s*(?P<open>\(\s*)?\Z", re.IGNORECASE)


def parameter_names(sql: str, dialect: str) -> frozenset[str]:
    """Names of the parameters; a colon in a string, a quoted name, a comment or a cast is none."""
    return frozenset(found["name"] for found in _parameters(sql, dialect))


def has_comment(sql: str, dialect: str) -> bool:
    return any(found["comment"] is not None for found in _LEXERS[dialect].finditer(sql))


def masked(sql: str, dialect: str) -> str:
    """`sql` with names of parameters that are keywords nowhere; every other character stays in its place."""
    pieces, done = [], 0
    for found in _parameters(sql, dialect):
        pieces += [sql[done : found.start()], ":", "_" * len(found["name"])]
        done = found.end()
    return "".join([*pieces, sql[done:]])


def bound_statement(
    checked: CheckedStatement, params: Mapping[str, Any]
) -> tuple[sa.TextClause, dict[str, Any]]:
    """The statement with the values of its parameters in the form that the dialect's driver takes.

    A list or tuple after IN, in parentheses or without, is as many values; elsewhere it is the driver's to bind.
    Raises: SettingsError for an empty list after NOT IN, which SQL cannot say, and for an integer that SQLite cannot hold.
    """
    dialect = checked.dialect
    bound: dict[str, Any] = {}
    texts, places = _cut(checked.sql, dialect)
    pieces = [texts[0]]
    for place, text in zip(places, texts[1:], strict=True):
        name, value = place.name, params.get(place.name)
        if place.is_list and isinstance(value, (list, tuple)):
            pieces.append(_listed(place, value, dialect, bound))
        else:
            if name in params:
                bound[name] = _bindable(value, dialect)
            pieces.append(f":{name}")
        pieces.append(text)
    if dialect == "sqlite":
        _refuse_beyond(params, bound.values())
    return _text("".join(pieces)), bound


_KEPT = 1_000
"""Statements that are kept cut up: a mapping has some dozens, and lists of other lengths make others of them."""
_text = lru_cache(_KEPT)(sa.text)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a parameter stands: where a list may stand, behind NOT, in parentheses."""

    name: str
    is_list: bool
    is_negated: bool
    is_open: bool


@lru_cache(_KEPT)
def _cut(sql: str, dialect: str) -> tuple[tuple[str, ...], tuple[_Place, ...]]:
    """The parameters of a statement, and the texts around them as SQLAlchemy's text() wants them."""
    texts, places, done = [], [], 0
    for found in _parameters(sql, dialect):
        before = _BEFORE_A_LIST.search(sql, 0, found.start())
        is_negated, is_open = (
            (False, False) if before is None else (bool(before["not"]), bool(before["open"]))
        )
        texts.append(_escaped(sql[done : found.start()]))
        places.append(_Place(found["name"], before is not None, is_negated, is_open))
        done = found.end()
    return (*texts, _escaped(sql[done:])), tuple(places)


def _listed(place: _Place, value: Sequence[Any], dialect: str, bound: dict[str, Any]) -> str:
    """The values of a list as SQL; they are added to `bound`."""
    if not value and place.is_negated:
        raise SettingsError(f"the list of parameter '{place.name}' is empty, and NOT IN () is no SQL")
    # Nothing is IN (NULL), as nothing is in an empty list.
    values = [_bindable(one, dialect) for one in value] or [None]
    names = [f"{place.name}_{number}" for number in range(len(values))]
    bound.update(zip(names, values, strict=True))
    listed = ", ".join(f":{one}" for one in names)
    return listed if place.is_open else f"({listed})"


def _refuse_beyond(params: Mapping[str, Any], bound: Iterable[Any]) -> None:
    """Its driver knows no integers of more than 64 bits, the sign among them."""
    if any(isinstance(one, int) and not -(2**63) <= one < 2**63 for one in bound):
        named = ", ".join(f"'{name}'" for name in params)
        raise SettingsError(
            f"a parameter ({named}) is an integer that SQLite cannot hold (64 bits with the sign)"
        )


def _parameters(sql: str, dialect: str) -> Iterator[re.Match[str]]:
    return (found for found in _LEXERS[dialect].finditer(sql) if found["name"] is not None)


def _escaped(text: str) -> str:
    """Other colons than a parameter's, as SQLAlchemy's text() wants them."""
    return text.replace(":", r"\:")


# ── values ──


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _without_zone(moment: datetime) -> str:
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat(" ")


_AS_TEXT: dict[type, Callable[[Any], Any]] = {
    # PostgreSQL takes text for whatever type stands on the other side; SQLite stores such values as text by custom.
    datetime: lambda moment: moment.isoformat(" "),
    date: date.isoformat,
    time: time.isoformat,
    UUID: str,
}
_SQLITE_FORMS = {**_AS_TEXT, Decimal: _number}
_MYSQL_FORMS = {**_AS_TEXT, datetime: _without_zone}  # its columns hold no zone; the session's is UTC
_FORMS = {"sqlite": _SQLITE_FORMS, "postgresql": _AS_TEXT, "mysql": _MYSQL_FORMS, "mariadb": _MYSQL_FORMS}


def _bindable(value: Any, dialect: str) -> Any:
    """The form of a value that the dialect's driver binds."""
    form = _FORMS[dialect].get(type(value))
    return form(value) if form else value
