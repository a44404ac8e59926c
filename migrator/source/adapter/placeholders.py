"""Placeholders of DB-API drivers: found in a statement, and written for another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import Token, TokenType

from migrator.source.engines.base import Engine
from migrator.source.engines.table import engine_of

NAME = re.compile(r"migrator_p(\d+)")
"""What stands in a placeholder's stead while the statement is read."""
_END_OF_WHERE = (TokenType.RETURNING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.SEMICOLON)
_FORMATTED = re.compile(r"%\((?P<name>[^)]*)\)[sbt]|%[sbt]|%%")


@dataclass(frozen=True, slots=True)
class Spoken:
    """How a service's statements are written. `formats`: parameters stand where % says so, in quotes as well."""

    dialect: str
    formats: bool = False
    ansi_quotes: bool = False

    @property
    def engine(self) -> Engine:
        return engine_of(self.dialect)

    @property
    def read_as(self) -> Any:
        """sqlglot's word for the dialect."""
        return self.engine.sql.reader if self.ansi_quotes else self.engine.statements.reader


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of SQL: `texts`, and between any two of them a parameter, by `places`."""

    texts: tuple[str, ...]
    places: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A statement with names in the stead of its placeholders; `places`: the parameter that each stands for."""

    text: str
    places: tuple[int | str, ...]

    def where(self, spoken: Spoken) -> Fragment:
        """The text behind the outermost WHERE, up to what follows it."""
        tokens = sqlglot.tokenize(self.text, read=spoken.read_as)
        first = next(i for i, _ in _outer(tokens, (TokenType.WHERE,)))
        last = next((i for i, _ in _outer(tokens[first:], _END_OF_WHERE)), None)
        end = len(self.text) if last is None else tokens[first + last].start
        texts = NAME.split(self.text[tokens[first].end + 1 : end])
        return Fragment(tuple(texts[::2]), tuple(self.places[int(one)] for one in texts[1::2]))


def _outer(tokens: Sequence[Token], kinds: Sequence[TokenType]) -> list[tuple[int, Token]]:
    """Tokens of the kinds outside of all parentheses."""
    depth, found = 0, []
    for number, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type in kinds:
            found.append((number, token))
    return found


def numbered(text: str, spoken: Spoken) -> Numbered:
    """The statement with migrator_p0, migrator_p1, … for its placeholders, and % where drivers want %%.

    A driver that formats by % does so in quotes and comments as well; for the others these hold no placeholders.
    """
    pieces: list[str] = []
    places: list[int | str] = []
    last = 0
    quoted = [] if spoken.formats else _quoted(text, spoken.engine)
    for found in (_FORMATTED if spoken.formats else spoken.engine.statements.bound).finditer(text):
        if any(start <= found.start() < end for start, end in quoted):
            continue
        pieces.append(text[last : found.start()])
        last = found.end()
        if found[0] == "%%":
            pieces.append("%")
            continue
        pieces.append(f"migrator_p{len(places)}")
        places.append(_place(found, len(places)))
    return Numbered("".join([*pieces, text[last:]]), tuple(places))


def _place(found: re.Match[str], number: int) -> int | str:
    """The parameter that a placeholder stands for: by its name, by the number it says, or by its turn."""
    said = found.groupdict()
    if said.get("name") is not None:
        return said["name"]
    return int(said["place"]) - 1 if said.get("place") else number


def _quoted(text: str, engine: Engine) -> list[tuple[int, int]]:
    """Where quoted text and comments stand."""
    found = engine.statements.quotes.finditer(text)
    return [(one.start(), one.end()) for one in found]


def placeholder(paramstyle: str, number: int) -> str:
    """The placeholder of the parameter (from 0) in a statement whose parameters are a sequence."""
    if paramstyle in ("format", "pyformat"):
        return "%s"
    return f"${number + 1}" if paramstyle == "numeric_dollar" else "?"


def escaped(text: str, paramstyle: str) -> str:
    """SQL that is no placeholder, for a driver that formats by %."""
    return text.replace("%", "%%") if paramstyle in ("format", "pyformat") else text
