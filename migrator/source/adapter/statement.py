"""Values for one SQL statement of a service: its placeholders and what it writes; and a filter for sqlglot's log."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

import sqlglot
from msgspec import Struct
from sqlglot import Token, TokenType

from migrator.runtime.errors import UnmarkedError
from migrator.source.engines.base import Engine
from migrator.source.engines.connect import engine_of
from migrator.source.sql.spelling import sqlglot_dialect

# ── Placeholders of DB-API drivers: found in a statement, and written for another driver ──

NAME = re.compile(r"migrator_p(\d+)")
"""The name that replaces a placeholder while the statement is parsed."""
_END_OF_WHERE = (TokenType.RETURNING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.SEMICOLON)
_FORMATTED = re.compile(r"%\((?P<name>[^)]*)\)[sbt]|%[sbt]|%%")


class StatementStyle(Struct, frozen=True):
    """How a service's statements are written. `formats`: placeholders begin with %, in quotes as well."""

    dialect: str
    formats: bool = False
    ansi_quotes: bool = False

    @property
    def engine(self) -> Engine:
        return engine_of(self.dialect)

    @property
    def read_as(self) -> Any:
        """sqlglot's reader for the dialect."""
        return sqlglot_dialect(self.dialect) if self.ansi_quotes else self.engine.statements.reader


class Fragment(Struct, frozen=True):
    """A piece of SQL: `texts` with a parameter (from `places`) between each two of them."""

    texts: tuple[str, ...]
    places: tuple[int | str, ...] = ()


class Numbered(Struct, frozen=True):
    """A statement with names instead of its placeholders; `places`: the parameter that each stands for."""

    text: str
    places: tuple[int | str, ...]

    def where(self, spoken: StatementStyle) -> Fragment:
        """The condition of the outermost WHERE."""
        tokens = sqlglot.tokenize(self.text, read=spoken.read_as)
        first = next(i for i, _ in _outer(tokens, (TokenType.WHERE,)))
        last = next((i for i, _ in _outer(tokens[first:], _END_OF_WHERE)), None)
        end = len(self.text) if last is None else tokens[first + last].start
        texts = NAME.split(self.text[tokens[first].end + 1 : end])
        return Fragment(tuple(texts[::2]), tuple(self.places[int(number)] for number in texts[1::2]))


def _outer(tokens: Sequence[Token], kinds: Sequence[TokenType]) -> list[tuple[int, Token]]:
    """Tokens of these kinds outside all parentheses."""
    depth, matching = 0, []
    for number, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0 and token.token_type in kinds:
            matching.append((number, token))
    return matching


def numbered(text: str, spoken: StatementStyle) -> Numbered:
    """The statement with migrator_p0, migrator_p1, … for its placeholders, and % for the drivers' %%.

    A driver that formats by % does so in quotes and comments as well; for the others these hold no placeholders.
    """
    pieces: list[str] = []
    places: list[int | str] = []
    last = 0
    quoted = [] if spoken.formats else _quoted(text, spoken.engine)
    for match in (_FORMATTED if spoken.formats else spoken.engine.statements.bound).finditer(text):
        if any(start <= match.start() < end for start, end in quoted):
            continue
        pieces.append(text[last : match.start()])
        last = match.end()
        if match[0] == "%%":
            pieces.append("%")
            continue
        pieces.append(f"migrator_p{len(places)}")
        places.append(_place(match, len(places)))
    return Numbered("".join([*pieces, text[last:]]), tuple(places))


def _place(match: re.Match[str], number: int) -> int | str:
    """The parameter that a placeholder stands for: by its name, its number, or its position."""
    groups = match.groupdict()
    if groups.get("name") is not None:
        return groups["name"]
    return int(groups["place"]) - 1 if groups.get("place") else number


def _quoted(text: str, engine: Engine) -> list[tuple[int, int]]:
    """The spans of quoted texts and comments."""
    matches = engine.statements.quotes.finditer(text)
    return [(match.start(), match.end()) for match in matches]


def placeholder(paramstyle: str, number: int) -> str:
    """The placeholder of the parameter (from 0) in a statement whose parameters are a sequence."""
    if paramstyle in ("format", "pyformat"):
        return "%s"
    return f"${number + 1}" if paramstyle == "numeric_dollar" else "?"


def escaped(text: str, paramstyle: str) -> str:
    """SQL without placeholders, escaped for a driver that formats by %."""
    return text.replace("%", "%%") if paramstyle in ("format", "pyformat") else text


# ── What one statement writes, as values ──

Action = Literal["insert", "update", "delete"]


class StatementValue(Struct, frozen=True):
    """A value given in a statement: a parameter by its place or its name, or (`place` None) a literal.

    `many`: the parameter is a list of values, as in `= ANY(%s)`.
    """

    place: int | str | None = None
    value: Any = None
    many: bool = False

    def of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Raises: UnmarkedError where the parameters do not have it."""
        return self.value if self.place is None else parameter(parameters, self.place)

    def each_of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | None:
        """The values; None where they cannot be listed, such as an array given as text."""
        value = self.of(parameters)
        if not self.many:
            return [value]
        return value if isinstance(value, (list, tuple)) else None


def parameter(parameters: Sequence[Any] | Mapping[str, Any], place: int | str) -> Any:
    """Raises: UnmarkedError where there is none at that place."""
    try:
        return parameters[place]  # type: ignore[index]
    except (LookupError, TypeError):
        what = "dual write: a statement's parameters do not fit its placeholders"
        raise UnmarkedError(f"{what}; give one for each of them") from None


class StatementWrite(Struct, frozen=True):
    """One INSERT, UPDATE or DELETE of one table, with names as the database resolves them.

    `rows`: of an insert, by `columns`; None is a value that only the database knows. `replaces`: an upsert that deletes
    the rows that it meets. `assigned`: columns that an update sets, or an upsert sets in rows that it meets; `kept`:
    those of them that an upsert sets to their present value or to that of its own row.
    `wanted`: columns that WHERE restricts to certain values. `where` None: every row. `opaque`: why the rows that it
    writes cannot be read beforehand by its WHERE; '' where they can. `returned`: columns that it returns ('' for
    anything else, '*' for all).
    """

    action: Action
    schema: str | None
    table: str
    columns: tuple[str, ...] | None = ()
    rows: tuple[tuple[StatementValue | None, ...], ...] = ()
    is_upsert: bool = False
    replaces: bool = False
    assigned: Mapping[str, StatementValue | None] = {}
    kept: frozenset[str] = frozenset()
    wanted: Mapping[str, tuple[StatementValue, ...]] = {}
    where: Fragment | None = None
    alias: str = ""
    opaque: str = ""
    returned: tuple[str, ...] = ()


class Opaque(Struct, frozen=True):
    """A statement that may write, but not knowably what. `tables`: names that it mentions (empty: any)."""

    reason: str
    tables: frozenset[str] = frozenset()


Written: TypeAlias = StatementWrite | Opaque | None


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in lower case."""
    return frozenset(word.lower() for word in re.findall(r"\w+", text))


# ── A log filter for sqlglot, which would log statements that it cannot parse, with all their values ──

_READING: ContextVar[bool] = ContextVar("migrator_reading", default=False)


class _Silence(logging.Filter):
    """Drops log records while we parse a statement; a service's own use of sqlglot is still logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _READING.get()


_SILENCE = _Silence()


@contextmanager
def quietly() -> Iterator[None]:
    # Added each time, since a service that sets up its logging may remove filters; adding it twice changes nothing.
    logging.getLogger("sqlglot").addFilter(_SILENCE)
    before = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(before)
