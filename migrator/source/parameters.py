"""The `:name` parameters of a statement: where they stand, and how their values are bound."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    return _replaced(sql, dialect, lambda found: ":" + "_" * len(found["name"]))


def bound_statement(
    checked: CheckedStatement, params: Mapping[str, Any]
) -> tuple[sa.TextClause, dict[str, Any]]:
    """The statement with the values of its parameters in the form that the dialect's driver takes.

    A list or tuple after IN, in parentheses or without, is as many values; elsewhere it is the driver's to bind.
    Raises: SettingsError for an empty list after NOT IN, which SQL cannot say, and for an integer that SQLite cannot hold.
    """
    sql, dialect = checked.sql, checked.dialect
    bound: dict[str, Any] = {}

    def put(found: re.Match[str]) -> str:
        name = found["name"]
        value = params.get(name)
        listed = _BEFORE_A_LIST.search(sql, 0, found.start())
        if listed is None or not isinstance(value, (list, tuple)):
            if name in params:
                bound[name] = _bindable(value, dialect)
            return f":{name}"
        if not value and listed["not"]:
            raise SettingsError(f"the list of parameter '{name}' is empty, and NOT IN () is no SQL")
        # Nothing is IN (NULL), as nothing is in an empty list.
        values = [_bindable(one, dialect) for one in value] or [None]
        names = [f"{name}_{number}" for number in range(len(values))]
        bound.update(zip(names, values, strict=True))
        places = ", ".join(f":{one}" for one in names)
        return places if listed["open"] else f"({places})"

    statement = sa.text(_replaced(sql, dialect, put, escaped=True))
    if engine_of(dialect).sql.integer_bits is not None:
        _refuse_beyond(params, bound.values(), engine_of(dialect))
    return statement, bound


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


def _replaced(sql: str, dialect: str, put: Callable[[re.Match[str]], str], *, escaped: bool = False) -> str:
    """`sql` with `put` in the place of each parameter; `escaped`: other colons as SQLAlchemy's text() wants them."""
    pieces, done = [], 0
    for found in _parameters(sql, dialect):
        pieces += [_kept(sql[done : found.start()], escaped), put(found)]
        done = found.end()
    return "".join([*pieces, _kept(sql[done:], escaped)])


def _kept(text: str, escaped: bool) -> str:
    return text.replace(":", r"\:") if escaped else text


def _bindable(value: Any, dialect: str) -> Any:
    """The form of a value that the dialect's driver binds."""
    form = engine_of(dialect).sql.forms.get(type(value))
    return form(value) if form else value
