"""Checks users' SQL: it must be one SELECT that only reads; and binds its `:name` parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from migrator.runtime.errors import SettingsError
from migrator.source.engines.base import Engine
from migrator.source.engines.connect import engine_of
from migrator.source.sql.spelling import escapes, sqlglot_dialect

# ── The `:name` parameters of a statement: their places, and how their values are bound ──

_BEFORE_A_LIST = re.compile(r"(?P<not>\bNOT\s+)?\bIN\s*(?P<open>\(\s*)?\Z", re.IGNORECASE)


def parameter_names(sql: str, dialect: str) -> frozenset[str]:
    """Names of the parameters; a colon in a string, a quoted name, a comment or a cast begins none."""
    return frozenset(match["name"] for match in _parameters(sql, dialect))


def has_comment(sql: str, dialect: str) -> bool:
    return any(match["comment"] is not None for match in engine_of(dialect).sql.parameters.finditer(sql))


def masked(sql: str, dialect: str) -> str:
    """`sql` with the names of parameters replaced by underscores, which are no keyword; no other character moves."""
    pieces, done = [], 0
    for match in _parameters(sql, dialect):
        pieces += [sql[done : match.start()], ":", "_" * len(match["name"])]
        done = match.end()
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
"""Size of the cache of split statements: a mapping has some dozens, and each length of a list makes another one."""
_text = lru_cache(_KEPT)(sa.text)


class _Place(Struct, frozen=True):
    """A parameter's context: whether a list may stand there, after NOT, inside parentheses."""

    name: str
    is_list: bool
    is_negated: bool
    is_open: bool


@lru_cache(_KEPT)
def _cut(sql: str, dialect: str) -> tuple[tuple[str, ...], tuple[_Place, ...]]:
    """The texts between the parameters, escaped for SQLAlchemy's text(), and the parameters."""
    texts, places, done = [], [], 0
    for match in _parameters(sql, dialect):
        before = _BEFORE_A_LIST.search(sql, 0, match.start())
        is_negated, is_open = (
            (False, False) if before is None else (bool(before["not"]), bool(before["open"]))
        )
        texts.append(_escaped(sql[done : match.start()]))
        places.append(_Place(match["name"], before is not None, is_negated, is_open))
        done = match.end()
    return (*texts, _escaped(sql[done:])), tuple(places)


def _listed(place: _Place, value: Sequence[Any], dialect: str, bound: dict[str, Any]) -> str:
    """The values of a list as SQL; they are added to `bound`."""
    if not value and place.is_negated:
        raise SettingsError(f"the list of parameter '{place.name}' is empty, and NOT IN () is no SQL")
    # Nothing is IN (NULL), as nothing is in an empty list.
    values = [_bindable(element, dialect) for element in value] or [None]
    names = [f"{place.name}_{number}" for number in range(len(values))]
    bound.update(zip(names, values, strict=True))
    listed = ", ".join(f":{bound_name}" for bound_name in names)
    return listed if place.is_open else f"({listed})"


def _refuse_beyond(params: Mapping[str, Any], bound: Iterable[Any], engine: Engine) -> None:
    """Raises: SettingsError for an integer that the engine's driver cannot hold."""
    bits = engine.sql.integer_bits or 0
    beyond = 2 ** (bits - 1)
    if any(isinstance(value, int) and not -beyond <= value < beyond for value in bound):
        named = ", ".join(f"'{name}'" for name in params)
        raise SettingsError(
            f"a parameter ({named}) is an integer that {engine.title} cannot hold ({bits} bits with the sign)"
        )


def _parameters(sql: str, dialect: str) -> Iterator[re.Match[str]]:
    return (match for match in engine_of(dialect).sql.parameters.finditer(sql) if match["name"] is not None)


def _escaped(text: str) -> str:
    """The text with its colons, which begin no parameter, escaped for SQLAlchemy's text()."""
    return text.replace(":", r"\:")


def _bindable(value: Any, dialect: str) -> Any:
    """The form of a value that the dialect's driver binds."""
    form = engine_of(dialect).sql.forms.get(type(value))
    return form(value) if form else value


# ── The check of a mapping's SQL: one SELECT that only reads ──
#
# It is no sandbox: a function defined in the source can do what its owner may (see docs/trust.md).

SELECT = "SELECT "


class CheckedStatement(Struct, frozen=True):
    """One SELECT of a mapping in the source's own names. The constructor checks it, so that no unchecked one exists.

    Raises: SettingsError for anything else, and for a SELECT that writes, locks, or calls what reaches past the tables.
    """

    sql: str
    dialect: str

    def __post_init__(self) -> None:
        _check(self.sql, parsed(self.sql, select_tokens(self.sql, self.dialect), self.dialect), self.dialect)


class CheckedExpression(Struct, frozen=True):
    """One expression of a mapping over a row, checked like a CheckedStatement."""

    sql: str
    dialect: str

    def __post_init__(self) -> None:
        text = SELECT + self.sql
        _check(text, parsed(text, select_tokens(text, self.dialect), self.dialect), self.dialect)


# ── reading ──


def tokens_of(sql: str, dialect: str) -> list[Token]:
    """Raises: SettingsError where there are none, or the SQL cannot be read."""
    # Parameters may have any name, even :from, which sqlglot would take for a keyword.
    try:
        tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    except SqlglotError as error:
        raise SettingsError(_unreadable(*_place_in(error))) from None
    if not tokens:
        raise SettingsError("the SQL is empty")
    return tokens


def select_tokens(sql: str, dialect: str) -> list[Token]:
    """Raises: SettingsError for what begins as no SELECT, or is several statements."""
    tokens = tokens_of(sql, dialect)
    _check_single(tokens)
    if tokens[0].token_type not in _BEGINNINGS:
        raise SettingsError("this is no SELECT; an access pattern's SQL is one SELECT")
    return tokens


def parsed(sql: str, tokens: list[Token], dialect: str) -> exp.Expr:
    """Raises: SettingsError where it cannot be read as the source's dialect."""
    try:
        statements = sqlglot_dialect(dialect).parser().parse(tokens, masked(sql, dialect))
    except SqlglotError as error:
        # A part that sqlglot has no grammar for (INTO OUTFILE) gets its own message.
        _check_words(tokens, dialect)
        raise SettingsError(_unreadable(*_place_in(error))) from None
    except RecursionError:
        raise SettingsError("the SQL is nested too deeply to be read") from None
    if not statements or statements[0] is None:
        raise SettingsError("the SQL is empty")
    return statements[0]


_BEGINNINGS = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}


def _check_single(tokens: list[Token]) -> None:
    kinds = [token.token_type for token in tokens]
    while kinds and kinds[-1] == TokenType.SEMICOLON:
        kinds.pop()
    if TokenType.SEMICOLON in kinds:
        token = tokens[kinds.index(TokenType.SEMICOLON)]
        raise SettingsError(f"{_where(token)}: a second statement begins after ';'; write one SELECT")


def _place_in(error: SqlglotError) -> tuple[int, int]:
    """Line and column of the fault, (0, 0) where sqlglot does not say; the rest of its message quotes the SQL."""
    for details in getattr(error, "errors", ()):
        return details.get("line") or 0, details.get("col") or 0
    place = re.search(r"from (\d+):(\d+)$", str(error.__cause__))
    return (int(place[1]), int(place[2])) if place else (0, 0)


def _unreadable(line: int, column: int) -> str:
    where = f"line {line}, column {column}: " if line else ""
    return f"{where}the SQL cannot be read here; correct it, or make a view of it in the source and select from that"


def _where(token: Token) -> str:
    return f"line {token.line}, column {token.col}"


# ── checking ──

_WOULD_WRITE = "the statement would write; an access pattern's SQL is one SELECT"
_WRITES = (exp.DML, exp.DDL, exp.Into, exp.Command, exp.NextValueFor)


def _check(sql: str, select: exp.Expr, dialect: str) -> None:
    tokens = tokens_of(sql, dialect)
    _check_between(sql, tokens, dialect)
    _check_words(tokens, dialect)
    if not isinstance(select, exp.Query) or select.find(*_WRITES) is not None:
        raise SettingsError(_WOULD_WRITE)
    if select.find(exp.Lock) is not None:
        raise SettingsError("the statement locks rows, which services would wait for; leave FOR … out")
    for token in _refused_calls(tokens, dialect):
        what = f"{_where(token)}: the function {token.text.lower()} reaches past the tables"
        raise SettingsError(
            f"{what} (files, programs, sessions, locks, time); leave it out, see docs/trust.md"
        )

    for token in _unlimited(tokens, dialect):
        what = f"{_where(token)}: {token.text.lower()} may make a value of any size"
        raise SettingsError(f"{what}; write its size as a number up to {_MOST_CHARACTERS}")


def _check_words(tokens: Sequence[Token], dialect: str) -> None:
    for token in tokens:
        if token.token_type == TokenType.INTO:
            raise SettingsError(f"{_where(token)}: {_WOULD_WRITE} without INTO")
        if token.token_type == TokenType.COLON_EQ and engine_of(dialect).sql.sets_variables:
            raise SettingsError(f"{_where(token)}: the statement sets a variable; leave := out")
        if token.token_type == TokenType.HINT and _BAD_HINT.search(token.text):
            raise SettingsError(f"{_where(token)}: a hint sets what holds for us; leave it out")


_BAD_HINT = re.compile(r"SET_VAR|MAX_EXECUTION_TIME|(?s:.)/\*", re.IGNORECASE)


# ── text between tokens: blanks and comments, which the server must read as we do ──

_OTHERWISE = re.compile(
    # Whole statements may stand in a comment that MariaDB and MySQL execute; a driver's text ends at a NUL.
    r"/\*M?!|\x00"
)


def _check_between(sql: str, tokens: Sequence[Token], dialect: str) -> None:
    """Raises: SettingsError where the server may read what we do not: the rest of a comment, or of a name."""
    fault = "the server may read a comment, a quote or a NUL in this otherwise than it stands here; write it plainly"
    if _OTHERWISE.search(sql):
        raise SettingsError(fault)
    words, done = engine_of(dialect).sql, 0
    for token in tokens:
        if not words.between.fullmatch(sql, done, token.start) or _runs_on(sql, done, token.start):
            raise SettingsError(f"{_where(token)}: {fault}")
        done = token.end + 1
    if not words.between.fullmatch(sql, done) or escapes(sql, dialect):
        raise SettingsError(fault)


def _runs_on(sql: str, done: int, start: int) -> bool:
    """Whether a quote stands at the end of a word, of which it may be a part elsewhere ($) or change the meaning (U&)."""
    touches = 0 < done == start and (sql[done - 1].isalnum() or sql[done - 1] in "_$")
    return touches and sql[start] in "'\"`$" and _INTRODUCER.search(sql, 0, done) is None


_INTRODUCER = re.compile(r"(?<![\w$])_[A-Za-z0-9]+\Z")


# ── names of functions ──


def _refused_calls(tokens: Sequence[Token], dialect: str) -> Iterator[Token]:
    words = engine_of(dialect).sql
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        name = token.text.lower()
        called = _is(after, TokenType.L_PAREN) and _fits(name, words.refused) and name not in _HARMLESS
        if called or (_is(before, TokenType.DOT) and _fits(name, words.refused_columns)):
            yield token


_MOST_CHARACTERS = 100_000


def _unlimited(tokens: Sequence[Token], dialect: str) -> Iterator[Token]:
    """Calls in any schema that may make a value of any size: of sized functions, without a small number as the size or one
    in the other with a large product; format() by a width."""
    if not (sized := engine_of(dialect).sql.sized):
        return
    for number, (token, after) in enumerate(pairwise(tokens)):
        if _is(after, TokenType.L_PAREN) and _is_large(token.text.lower(), tokens[number + 2 :], sized):
            yield token


def _is_large(name: str, behind: Sequence[Token], sized: Mapping[str, int]) -> bool:
    if name in sized:
        return _size(behind, sized[name]) * _largest(behind, sized) > _MOST_CHARACTERS
    if name in _SPREADS:
        return _product(behind, sized) > _MOST_CHARACTERS
    return name == "format" and any(_WIDE.search(one.text) for one in _argument(behind, 0))


_SPREADS = frozenset({"replace", "regexp_replace"})
"""Functions that may put one argument in place of each character of another."""
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\*|\d{5})")


def _size(tokens: Sequence[Token], place: int) -> float:
    """The size that a call names; infinite where it is no number."""
    size = _argument(tokens, place)
    is_number = len(size) == 1 and size[0].token_type == TokenType.NUMBER
    return float(size[0].text) if is_number else math.inf


def _sizes(tokens: Sequence[Token], sized: Mapping[str, int]) -> Iterator[tuple[float, Sequence[Token]]]:
    """Of the sized calls among the arguments of a call their size, and what is behind their parenthesis."""
    inside = _inside(tokens)
    for number, (token, after) in enumerate(pairwise(inside)):
        place = sized.get(token.text.lower())
        if place is not None and _is(after, TokenType.L_PAREN):
            behind = inside[number + 2 :]
            yield _size(behind, place), behind


def _largest(tokens: Sequence[Token], sized: Mapping[str, int]) -> float:
    """The most characters that one argument of a call may make of each of its own."""
    return max((size * _largest(behind, sized) for size, behind in _sizes(tokens, sized)), default=1.0)


def _product(tokens: Sequence[Token], sized: Mapping[str, int]) -> float:
    return math.prod(size for size, _ in _sizes(tokens, sized))


def _inside(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens up to the parenthesis that ends the call."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth < 0:
            return tokens[:number]
    return tokens


def _argument(tokens: Sequence[Token], place: int) -> list[Token]:
    """The tokens of one argument of a call; `tokens`: behind its parenthesis."""
    found, depth = list[Token](), 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth < 0 or place < 0:
            break
        if depth == 0 and token.token_type == TokenType.COMMA:
            place -= 1
        elif place == 0:
            found.append(token)
    return found


_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}


def _is(token: Token | None, kind: TokenType) -> bool:
    return token is not None and token.token_type == kind


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_HARMLESS = frozenset(
    (
        *("pg_typeof", "pg_column_size", "pg_column_compression", "pg_size_pretty", "pg_size_bytes"),
        *(
            "pg_collation_for",
            "pg_input_is_valid",
            "pg_client_encoding",
            "pg_backend_pid",
            "pg_is_in_recovery",
        ),
    )
)
