"""The `:name` parameters of a statement: where they stand, and how their values are bound."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from migrator.errors import SettingsError
from migrator.source.engines.base import Engine
from migrator.source.engines.table import engine_of

if TYPE_CHECKING:
    from migrator.source.gate import CheckedStatement

_BEFORE_A_LIST = re.compile(r"(?P<not>\bNOT\s+)?\bIN\s*(?P<open>\(\s*)?\Z", re.IGNORECASE)


def parameter_names(sql: str, dialect: str) -> frozenset[str]:
    """Names of the parameters; a colon in a string, a quoted name, a comment or a cast is none."""
    return frozenset(found["name"] for found in _parameters(sql, dialect))


def has_comment(sql: str, dialect: str) -> bool:
    return any(found["comment"] is not None for found in engine_of(dialect).sql.parameters.finditer(sql))


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
    if engine_of(dialect).sql.integer_bits is not None:
        _refuse_beyond(params, bound.values(), engine_of(dialect))
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


def _refuse_beyond(params: Mapping[str, Any], bound: Iterable[Any], engine: Engine) -> None:
    """Its driver knows no longer integers."""
    bits = engine.sql.integer_bits or 0
    beyond = 2 ** (bits - 1)
    if any(isinstance(one, int) and not -beyond <= one < beyond for one in bound):
        named = ", ".join(f"'{name}'" for name in params)
        raise SettingsError(
            f"a parameter ({named}) is an integer that {engine.title} cannot hold ({bits} bits with the sign)"
        )


def _parameters(sql: str, dialect: str) -> Iterator[re.Match[str]]:
    return (found for found in engine_of(dialect).sql.parameters.finditer(sql) if found["name"] is not None)


def _escaped(text: str) -> str:
    """Other colons than a parameter's, as SQLAlchemy's text() wants them."""
    return text.replace(":", r"\:")


def _bindable(value: Any, dialect: str) -> Any:
    """The form of a value that the dialect's driver binds."""
    form = engine_of(dialect).sql.forms.get(type(value))
    return form(value) if form else value
