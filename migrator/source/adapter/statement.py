"""One SQL statement of a service: what it writes, its placeholders, and the parser's own log kept silent."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import sqlglot
from sqlglot import Token, TokenType

from migrator.model.errors import UnmarkedError
from migrator.source.engines.base import Engine
from migrator.source.engines.table import engine_of

# ── Placeholders of DB-API drivers: found in a statement, and written for another one ──

NAME = re.compile(r"migrator_p(\d+)")
"""What stands in a placeholder's stead while the statement is read."""
_END_OF_WHERE = (TokenType.RETURNING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.SEMICOLON)
_FORMATTED = re.compile(r"%\((?P<name>[^)]*)\)[sbt]|%[sbt]|%%")


@dataclass(frozen=True, slots=True)
class StatementStyle:
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

    def where(self, spoken: StatementStyle) -> Fragment:
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


def numbered(text: str, spoken: StatementStyle) -> Numbered:
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


# ── What one statement writes, as values ──

Action = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a statement says: a parameter by its place or its name, or (`place` None) written in the text.

    `many`: the parameter is a list of values, as in `= ANY(%s)`.
    """

    place: int | str | None = None
    value: Any = None
    many: bool = False

    def of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Raises: UnmarkedError where the parameters do not have it."""
        return self.value if self.place is None else parameter(parameters, self.place)

    def each_of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | None:
        """The values; None where they are none that can be counted, such as an array that was written as text."""
        found = self.of(parameters)
        if not self.many:
            return [found]
        return found if isinstance(found, (list, tuple)) else None


def parameter(parameters: Sequence[Any] | Mapping[str, Any], place: int | str) -> Any:
    """Raises: UnmarkedError where there is none at that place."""
    try:
        return parameters[place]  # type: ignore[index]
    except (LookupError, TypeError):
        what = "dual write: a statement's parameters do not fit its placeholders"
        raise UnmarkedError(f"{what}; give one for each of them") from None


@dataclass(frozen=True, slots=True)
class Write:
    """One INSERT, UPDATE or DELETE of one table; names as the database would know them.

    `rows`: of an insert, by `columns`; None is a value that only the database knows. `replaces`: an upsert that takes
    the rows away that it meets. `assigned`: what an update, or an upsert of the rows that it meets, sets; `kept`: those
    of them to which an upsert gives the value that they have or that its own row says.
    `wanted`: columns that WHERE ties to one of some values. `where` None: every row. `opaque`: why the rows that it
    writes cannot be read beforehand by its WHERE; '' where they can. `returned`: columns that it gives back ('' for
    anything else, '*' for all).
    """

    action: Action
    schema: str | None
    table: str
    columns: tuple[str, ...] | None = ()
    rows: tuple[tuple[Given | None, ...], ...] = ()
    is_upsert: bool = False
    replaces: bool = False
    assigned: Mapping[str, Given | None] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    wanted: Mapping[str, tuple[Given, ...]] = field(default_factory=dict)
    where: Fragment | None = None
    alias: str = ""
    opaque: str = ""
    returned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """A statement that may write, of which nobody can say what. `tables`: names that it mentions (empty: any)."""

    reason: str
    tables: frozenset[str] = frozenset()


Written: TypeAlias = Write | Opaque | None


def fold(name: str, dialect: str, *, quoted: bool = True) -> str:
    """The name as a database compares it: PostgreSQL folds what stands without quotes, the others know no case."""
    return name if engine_of(dialect).sql.folds_names and quoted else name.lower()


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in lower case."""
    return frozenset(word.lower() for word in re.findall(r"\w+", text))


# ── Silence of sqlglot, which logs the statements that it cannot read, with all their values ──

_READING: ContextVar[bool] = ContextVar("migrator_reading", default=False)


class _Silence(logging.Filter):
    """Drops what is logged while this thread reads a statement; what a service does with sqlglot itself is logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _READING.get()


_SILENCE = _Silence()


@contextmanager
def quietly() -> Iterator[None]:
    # Each time, since a service that sets up its logging may take filters away; for the second time is once.
    logging.getLogger("sqlglot").addFilter(_SILENCE)
    before = _READING.set(True)
    try:
        yield
    finally:
        _READING.reset(before)
