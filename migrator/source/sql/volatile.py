"""Volatile functions in computed columns: clocks, randomness and other tables change the value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection
from sqlglot import Token, TokenType

from migrator.source.engines.table import engine_at, engine_of
from migrator.source.engines.words import CLOCKS
from migrator.source.sql.gate import masked
from migrator.source.sql.spelling import sqlglot_dialect

_BY_NOW = {
    **dict.fromkeys(["date", "time", "datetime", "julianday", "unixepoch", "unix_timestamp"], 1),
    **dict.fromkeys(["strftime", "age", "timediff"], 2),
}
"""Functions that take the time of day where they are given fewer arguments, or 'now'."""
_NOW = frozenset({"now", "today", "tomorrow", "yesterday"})


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    schema: str = ""
    arguments: int = 0


def volatile_parts(connection: Connection, sql: str) -> list[str]:
    """What in an expression of one row gives another value though the row is the same, each with why."""
    dialect = connection.dialect.name
    tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    known = engine_of(dialect).sql.volatile
    by_now = any(one.token_type == TokenType.STRING and one.text.lower() in _NOW for one in tokens)
    found = {}
    for call in _calls(tokens):
        called = call.name.lower()
        if not call.schema and (called in known or _is_by_now(called, call.arguments, by_now=by_now)):
            found[called] = "the same row gives another value at another time"
        elif why := _declared(connection, call):
            found[called] = why
    if by_now and not found:
        found["'now'"] = "the same row gives another value at another time"
    return [f"{name}: {why}" for name, why in found.items()]


def _calls(tokens: Sequence[Token]) -> Iterator[_Call]:
    """Functions that are called, and words that are functions by themselves."""
    for place, token in enumerate(tokens):
        kinds = [one.token_type for one in tokens[place + 1 : place + 3]]
        is_part = place > 0 and tokens[place - 1].token_type == TokenType.DOT
        if kinds[:1] == [TokenType.L_PAREN] and token.text[:1].isidentifier():
            schema = tokens[place - 2].text if is_part and place > 1 else ""
            yield _Call(token.text, schema, _arguments(tokens[place + 2 :]))
        elif _is_word(token) and not is_part and kinds[:1] != [TokenType.DOT]:
            yield _Call(token.text)


def _is_word(token: Token) -> bool:
    return token.text.lower() in CLOCKS and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _is_by_now(name: str, arguments: int, *, by_now: bool) -> bool:
    return name in _BY_NOW and (by_now or arguments < _BY_NOW[name])


def _arguments(tokens: Sequence[Token]) -> int:
    """How many there are up to the parenthesis that closes."""
    depth, commas = 1, 0
    for place, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth:
            return commas + 1 if place else 0
        commas += depth == 1 and token.token_type == TokenType.COMMA
    return commas + 1


def _declared(connection: Connection, call: _Call) -> str:
    """What the catalogue says against a routine; '' for nothing, and for what it does not know."""
    words = engine_at(connection).sql
    if words.routines is None:
        return ""
    name = call.name.lower() if words.folds_names else call.name
    found = connection.execute(words.routines, {"name": name, "schema": call.schema}).scalars()
    return "; ".join(sorted(found))
