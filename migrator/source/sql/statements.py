"""SELECT statements of a mapping, in the source's own SQL: checked, with columns, tables and volatile parts located."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import SettingsError
from migrator.source.engines.base import Engine
from migrator.source.engines.connect import SENT_ONCE, engine_at, engine_of
from migrator.source.engines.shared import CLOCKS
from migrator.source.sql.spelling import Edit, Speller, edited, escapes, folded, sqlglot_dialect

# ── Checks users' SQL: it must be one SELECT that only reads; and binds its `:name` parameters ──

# ── The `:name` parameters of a statement: their places, and how their values are bound ──

_BEFORE_A_LIST = re.compile(r"(?P<not>\bNOT\s+)?\bIN\s*(?P<open>\(\s*)?\Z", re.IGNORECASE)


def parameter_names(sql: str, dialect: str) -> frozenset[str]:
    """Parameters; a colon in a string, a quoted name, a comment or a cast does not start one."""
    return frozenset(match["name"] for match in _parameters(sql, dialect))


def has_comment(sql: str, dialect: str) -> bool:
    return any(match["comment"] is not None for match in engine_of(dialect).sql.parameters.finditer(sql))


def masked(sql: str, dialect: str) -> str:
    """The SQL with underscores in place of parameter names, which are not a keyword; positions stay the same."""
    pieces, done = [], 0
    for match in _parameters(sql, dialect):
        pieces += [sql[done : match.start()], ":", "_" * len(match["name"])]
        done = match.end()
    return "".join([*pieces, sql[done:]])


def bound_statement(
    checked: CheckedStatement, params: Mapping[str, Any], before: str = ""
) -> tuple[sa.TextClause, dict[str, Any]]:
    """The statement after `before`, and the parameters' values in the driver's form.

    A list or tuple after IN, with or without parentheses, becomes as many values; elsewhere the driver binds
    it.
    Raises: SettingsError for an empty list after NOT IN, which SQL cannot express, and for an integer too
    large for SQLite.
    """
    dialect = checked.dialect
    bound: dict[str, Any] = {}
    texts, places = _cut(checked.sql, dialect)
    pieces = [before, texts[0]]
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
"""Size of the cache of split statements: a mapping has some dozens, and each length of a list adds one."""
_text = lru_cache(_KEPT)(sa.text)


class _ParameterPlace(Struct, frozen=True):
    """Whether a list is allowed there, after NOT, inside parentheses."""

    name: str
    is_list: bool
    is_negated: bool
    is_open: bool


@lru_cache(_KEPT)
def _cut(sql: str, dialect: str) -> tuple[tuple[str, ...], tuple[_ParameterPlace, ...]]:
    """The texts between the parameters, escaped for SQLAlchemy's text(), and the parameters."""
    texts, places, done = [], [], 0
    for match in _parameters(sql, dialect):
        before = _BEFORE_A_LIST.search(sql, 0, match.start())
        is_negated, is_open = (bool(before and before[word]) for word in ("not", "open"))
        texts.append(_escaped(sql[done : match.start()]))
        places.append(_ParameterPlace(match["name"], before is not None, is_negated, is_open))
        done = match.end()
    return (*texts, _escaped(sql[done:])), tuple(places)


def _listed(place: _ParameterPlace, value: Sequence[Any], dialect: str, bound: dict[str, Any]) -> str:
    if not value and place.is_negated:
        raise SettingsError(f"the list of parameter '{place.name}' is empty, and NOT IN () is not SQL")
    # Nothing is IN (NULL), as nothing is in an empty list.
    values = [_bindable(element, dialect) for element in value] or [None]
    names = [f"{place.name}_{number}" for number in range(len(values))]
    bound.update(zip(names, values, strict=True))
    listed = ", ".join(f":{bound_name}" for bound_name in names)
    return listed if place.is_open else f"({listed})"


def _refuse_beyond(params: Mapping[str, Any], bound: Iterable[Any], engine: Engine) -> None:
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
    return text.replace(":", r"\:")


def _bindable(value: Any, dialect: str) -> Any:
    form = engine_of(dialect).sql.forms.get(type(value))
    return form(value) if form else value


# ── The check of a mapping's SQL: one SELECT that only reads ──
#
# Not a sandbox: a function defined in the source can do what its owner may (see docs/trust.md).

SELECT = "SELECT "


class CheckedStatement(Struct, frozen=True):
    """One SELECT of a mapping in the source's own names, checked by the constructor.

    Raises: SettingsError for anything else, and for a SELECT that writes, locks, or calls functions that
    reach beyond the tables.
    """

    sql: str
    dialect: str

    def __post_init__(self) -> None:
        _check(self.sql, self.dialect)


def checked_expression(sql: str, dialect: str) -> str:
    """One expression of a mapping over a row, checked like a CheckedStatement."""
    _check(SELECT + sql, dialect)
    return sql


# ── reading ──


def tokens_of(sql: str, dialect: str) -> list[Token]:
    """Tokens with parameter names as words. Raises: SettingsError if the SQL is empty or cannot be parsed."""
    # Parameters may have any name, even :from, which sqlglot would take for a keyword.
    try:
        tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    except SqlglotError as error:
        raise SettingsError(_unreadable(*_place_in(error))) from None
    if not tokens:
        raise SettingsError("the SQL is empty")
    names = {match.start("name"): match["name"] for match in _parameters(sql, dialect)}
    for token in tokens if names else ():
        token.text = names.get(token.start, token.text)
    return tokens


def select_tokens(sql: str, dialect: str) -> list[Token]:
    """Raises: SettingsError if it does not begin as a SELECT, or is several statements."""
    tokens = tokens_of(sql, dialect)
    _check_single(tokens)
    if tokens[0].token_type not in _BEGINNINGS:
        raise SettingsError("not a SELECT; an access pattern's SQL is one SELECT")
    return tokens


def parsed(sql: str, tokens: list[Token], dialect: str) -> exp.Expr:
    """Raises: SettingsError if it cannot be parsed."""
    try:
        statements = sqlglot_dialect(dialect).parser().parse(tokens, sql)
    except SqlglotError as error:
        # A part that sqlglot has no grammar for (INTO OUTFILE) gets its own message.
        _check_words(tokens, dialect)
        raise SettingsError(_unreadable(*_place_in(error))) from None
    except RecursionError:
        raise SettingsError("the SQL is nested too deeply to be read") from None
    if not statements or statements[0] is None:
        raise SettingsError("the SQL is empty")
    return statements[0]


@lru_cache(maxsize=2_000)
def read_select(sql: str, dialect: str) -> tuple[Sequence[Token], exp.Expr]:
    """Tokens and tree of one SELECT; shared by all callers, which must not change them.

    Raises: SettingsError.
    """
    tokens = select_tokens(sql, dialect)
    return tokens, parsed(sql, tokens, dialect)


_BEGINNINGS = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}


def _check_single(tokens: list[Token]) -> None:
    kinds = [token.token_type for token in tokens]
    while kinds and kinds[-1] == TokenType.SEMICOLON:
        kinds.pop()
    if TokenType.SEMICOLON in kinds:
        token = tokens[kinds.index(TokenType.SEMICOLON)]
        raise SettingsError(f"{_where(token)}: a second statement begins after ';'; write one SELECT")


def _place_in(error: SqlglotError) -> tuple[int, int]:
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


def _check(sql: str, dialect: str) -> None:
    tokens, select = read_select(sql, dialect)
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


# ── text between tokens: blanks and comments, which the server must parse as we do ──

_OTHERWISE = re.compile(
    # MariaDB and MySQL execute statements in comments; a driver's text ends at a NUL.
    r"/\*M?!|\x00"
)


def _check_between(sql: str, tokens: Sequence[Token], dialect: str) -> None:
    """Raises: SettingsError if the server may read the SQL differently: the rest of a comment, or of a name."""
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
    """Whether a quote follows a word directly, as its part on some engine ($), or changes its meaning (U&)."""
    touches = 0 < done == start and (sql[done - 1].isalnum() or sql[done - 1] in "_$")
    return touches and sql[start] in "'\"`$" and _INTRODUCER.search(sql, 0, done) is None


_INTRODUCER = re.compile(r"(?<![\w$])_[A-Za-z0-9]+\Z")


# ── names of functions ──


def _refused_calls(tokens: Sequence[Token], dialect: str) -> Iterator[Token]:
    words = engine_of(dialect).functions.names
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        name = token.text.lower()
        called = _is(after, TokenType.L_PAREN) and _fits(name, words.refused) and name not in words.harmless
        if called or (_is(before, TokenType.DOT) and _fits(name, words.refused_columns)):
            yield token


_MOST_CHARACTERS = 100_000


def _unlimited(tokens: Sequence[Token], dialect: str) -> Iterator[Token]:
    """Calls that may make a value of any size: sized functions without a small number, or nested with a large
    product; format() with a width.
    """
    if not (sized := engine_of(dialect).functions.names.sized):
        return
    for number, (token, after) in enumerate(pairwise(tokens)):
        if _is(after, TokenType.L_PAREN) and _is_large(token.text.lower(), tokens[number + 2 :], sized):
            yield token


def _is_large(name: str, behind: Sequence[Token], sized: Mapping[str, int]) -> bool:
    if name in sized:
        return _size(behind, sized[name]) * _largest(behind, sized) > _MOST_CHARACTERS
    if name in _SPREADS:
        return math.prod(size for size, _ in _sizes(behind, sized)) > _MOST_CHARACTERS
    return name == "format" and any(_WIDE.search(one.text) for one in _argument(behind, 0))


_SPREADS = frozenset({"replace", "regexp_replace"})
"""Functions that may replace each character of one argument by another."""
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\*|\d{5})")


def _size(tokens: Sequence[Token], place: int) -> float:
    size = _argument(tokens, place)
    is_number = len(size) == 1 and size[0].token_type == TokenType.NUMBER
    return float(size[0].text) if is_number else math.inf


def _sizes(tokens: Sequence[Token], sized: Mapping[str, int]) -> Iterator[tuple[float, Sequence[Token]]]:
    inside = _inside(tokens)
    for number, (token, after) in enumerate(pairwise(inside)):
        place = sized.get(token.text.lower())
        if place is not None and _is(after, TokenType.L_PAREN):
            behind = inside[number + 2 :]
            yield _size(behind, place), behind


def _largest(tokens: Sequence[Token], sized: Mapping[str, int]) -> float:
    return max((size * _largest(behind, sized) for size, behind in _sizes(tokens, sized)), default=1.0)


def _inside(tokens: Sequence[Token]) -> Sequence[Token]:
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth < 0:
            return tokens[:number]
    return tokens


def _argument(tokens: Sequence[Token], place: int) -> list[Token]:
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


_OF_THE_DATABASE = ("pg_", "sqlite_")
_NOT_OF_ONE_ROW = (
    exp.Query,
    exp.AggFunc,
    exp.Window,
    exp.Alias,
    exp.Aliases,
    exp.Star,
    exp.Tuple,
    exp.Placeholder,
    exp.Parameter,
)


@lru_cache(maxsize=1_000)
def checked_statement(sql: str, dialect: str, schema: str | None = None) -> CheckedStatement:
    """`schema`: added to tables without one.

    Raises: SettingsError if it is not a single read-only SELECT, or cannot be parsed in the source's dialect.
    """
    try:
        # The original is checked first: tables are looked up only in a SELECT.
        written = CheckedStatement(sql, dialect)
        return written if schema is None else CheckedStatement(_in_schema(sql, dialect, schema), dialect)
    except SettingsError as error:
        raise SettingsError(f"a query of the mapping: {error}") from None


def examine(calls: Sequence[tuple[CheckedStatement, Mapping[str, Any]]], connection: Connection) -> None:
    """Plan the statements without running them; raises the driver's errors."""
    word = engine_at(connection).server.explain(connection.dialect)
    for checked, params in calls:
        statement, bound = bound_statement(checked, params, f"{word} ")
        connection.execute(statement, bound, execution_options=SENT_ONCE).close()


def row_expression(sql: str, table: TableFacts, dialect: str, alias: str | None = None) -> str:
    """One expression over a row of `table`; must be put in parentheses.

    `alias`: added to each column.
    Raises: SettingsError for anything else: several expressions, an aggregate, a subquery, a parameter, a
    comment.
    """
    if has_comment(sql, dialect) or parameter_names(sql, dialect):
        raise SettingsError("an expression holds neither comments nor parameters")
    # Parsed after a SELECT, so that it cannot be another statement.
    text = SELECT + sql
    expression = _only_expression(text, dialect)
    if expression is None:
        raise SettingsError("this is not one expression of the source's SQL")
    if expression.find(*_NOT_OF_ONE_ROW) is not None:
        raise SettingsError(
            "this is not one value of one row (an aggregate, a subquery, a star, an alias or a list)"
        )
    columns = list(expression.find_all(exp.Column))
    if any(column.args.get("table") is not None for column in columns):
        raise SettingsError(f"write the columns of {table.name} without the table's name")
    speller = Speller(text, dialect)
    before = f"{speller.name(alias)}." if alias else ""
    own = {column.real for column in table.columns}
    edits = [speller.prefixed(column.this, before) for column in columns if folded(own, column.this)]
    return checked_expression(edited(text, itertools.chain(*edits))[len(SELECT) :], dialect)


def _only_expression(select: str, dialect: str) -> exp.Expr | None:
    try:
        tokens = tokens_of(select, dialect)
        select_tree = parsed(select, tokens, dialect)
    except SettingsError:
        return None
    only = [name for name, value in select_tree.args.items() if value] == ["expressions"]
    single = not any(token.token_type == TokenType.SEMICOLON for token in tokens)
    return select_tree.expressions[0] if only and single and len(select_tree.expressions) == 1 else None


# ── tables of a schema ──


def _in_schema(sql: str, dialect: str, schema: str) -> str:
    _, select = read_select(sql, dialect)
    speller = Speller(sql, dialect)
    before = f"{speller.name(schema)}."
    edits: list[Edit] = []
    for table in select.find_all(exp.Table):
        if _is_table_of_the_default_schema(table, dialect):
            edits += speller.prefixed(table.this, before)
    return edited(sql, edits)


def _is_table_of_the_default_schema(table: exp.Table, dialect: str) -> bool:
    if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
        return False
    return not table.name.startswith(_OF_THE_DATABASE) and not is_cte(table, dialect)


def is_cte(table: exp.Table, dialect: str) -> bool:
    node: exp.Expr = table
    while node.parent is not None:
        if folded(_ctes_seen(node, dialect), table.this) is not None:
            return True
        node = node.parent
    return False


def _ctes_seen(node: exp.Expr, dialect: str) -> list[str]:
    above = node.parent
    if isinstance(above, exp.With):
        names = [cte.alias for cte in above.expressions]
        recursive = bool(above.args.get("recursive")) or engine_of(dialect).sql.recurses_unasked
        place = next(number for number, cte in enumerate(above.expressions) if cte is node)
        return names[: place + (recursive and isinstance(node.this, exp.SetOperation))]
    with_ = above.args.get("with_") if above is not None else None
    return [cte.alias for cte in with_.expressions] if with_ is not None and with_ is not node else []


# ── Volatile functions in computed columns: clocks, randomness and other tables change the value ──

_BY_NOW = {
    **dict.fromkeys(["date", "time", "datetime", "julianday", "unixepoch", "unix_timestamp"], 1),
    **dict.fromkeys(["strftime", "age", "timediff"], 2),
}
"""Functions that read the time of day if they get fewer arguments, or 'now'."""
_NOW = frozenset({"now", "today", "tomorrow", "yesterday"})


class _Call(Struct, frozen=True):
    name: str
    schema: str = ""
    arguments: int = 0


def volatile_parts(connection: Connection, sql: str) -> list[str]:
    """Parts of a row expression that can change although the row does not, each with the reason."""
    dialect = connection.dialect.name
    tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    known = CLOCKS | engine_of(dialect).functions.names.volatile
    by_now = any(token.token_type == TokenType.STRING and token.text.lower() in _NOW for token in tokens)
    found = {}
    for call in _calls(tokens):
        called = call.name.lower()
        reads_clock = called in _BY_NOW and (by_now or call.arguments < _BY_NOW[called])
        if not call.schema and (called in known or reads_clock):
            found[called] = "the same row gives another value at another time"
        elif why := _declared(connection, call):
            found[called] = why
    if by_now and not found:
        found["'now'"] = "the same row gives another value at another time"
    return [f"{name}: {why}" for name, why in found.items()]


def _calls(tokens: Sequence[Token]) -> Iterator[_Call]:
    for place, token in enumerate(tokens):
        kinds = [token.token_type for token in tokens[place + 1 : place + 3]]
        is_part = place > 0 and tokens[place - 1].token_type == TokenType.DOT
        if kinds[:1] == [TokenType.L_PAREN] and token.text[:1].isidentifier():
            schema = tokens[place - 2].text if is_part and place > 1 else ""
            yield _Call(token.text, schema, _arguments(tokens[place + 2 :]))
        elif _is_word(token) and not is_part and kinds[:1] != [TokenType.DOT]:
            yield _Call(token.text)


def _is_word(token: Token) -> bool:
    return token.text.lower() in CLOCKS and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)


def _arguments(tokens: Sequence[Token]) -> int:
    depth, commas = 1, 0
    for place, token in enumerate(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth:
            return commas + 1 if place else 0
        commas += depth == 1 and token.token_type == TokenType.COMMA
    return commas + 1


def _declared(connection: Connection, call: _Call) -> str:
    engine = engine_at(connection)
    if "routines" not in engine.queries.names():
        return ""
    name = call.name.lower() if engine.sql.folds_names else call.name
    found = connection.execute(engine.queries["routines"], {"name": name, "schema": call.schema}).scalars()
    return "; ".join(sorted(found))
