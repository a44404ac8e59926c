"""SELECT statements of a mapping, in the source's own SQL: checked, with columns, tables and volatile parts located."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from sqlalchemy.engine import Connection
from sqlglot import Token, TokenType, exp

from migrator.mapping.model.facts import TableFacts
from migrator.runtime.errors import SettingsError
from migrator.source.engines.connect import engine_at, engine_of
from migrator.source.engines.shared import CLOCKS
from migrator.source.sql.gate import (
    SELECT,
    CheckedExpression,
    CheckedStatement,
    has_comment,
    masked,
    parameter_names,
    parsed,
    select_tokens,
    tokens_of,
)
from migrator.source.sql.spelling import Edit, Speller, edited, folded, sqlglot_dialect

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
    """`sql`, one SELECT in the source's SQL, as it was written. `schema`: put before tables that name none.

    Raises: SettingsError when it is not a single SELECT that only reads, or cannot be parsed in the source's dialect.
    """
    try:
        # The original is checked first: tables are looked up only in a SELECT.
        written = CheckedStatement(sql, dialect)
        return written if schema is None else CheckedStatement(_in_schema(sql, dialect, schema), dialect)
    except SettingsError as error:
        raise SettingsError(f"a query of the mapping: {error}") from None


def row_expression(sql: str, table: TableFacts, dialect: str, alias: str | None = None) -> CheckedExpression:
    """`sql`, one expression of the source's SQL over a row of `table`; put it in parentheses.

    `alias`: the table's alias where the expression is used; it is put before each column.
    Raises: SettingsError when it is anything else: several, an aggregate, a subquery, a parameter, a comment.
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
    return CheckedExpression(edited(text, itertools.chain(*edits))[len(SELECT) :], dialect)


def _only_expression(select: str, dialect: str) -> exp.Expr | None:
    """The expression in the SELECT's list, if the SELECT consists of one expression and nothing else."""
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
    """`sql` with the schema's name before every table that names none; the database's own tables stay."""
    select = parsed(sql, select_tokens(sql, dialect), dialect)
    speller = Speller(sql, dialect)
    before = f"{speller.name(schema)}."
    edits: list[Edit] = []
    for table in select.find_all(exp.Table):
        if _is_table_of_the_default_schema(table, dialect):
            edits += speller.prefixed(table.this, before)
    return edited(sql, edits)


def _is_table_of_the_default_schema(table: exp.Table, dialect: str) -> bool:
    """Whether it names a table without a schema, and is no function, no CTE and no system table."""
    if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
        return False
    return not table.name.startswith(_OF_THE_DATABASE) and not is_cte(table, dialect)


def is_cte(table: exp.Table, dialect: str) -> bool:
    """Whether a WITH around the table defines its name."""
    node: exp.Expr = table
    while node.parent is not None:
        if folded(_ctes_seen(node, dialect), table.this) is not None:
            return True
        node = node.parent
    return False


def _ctes_seen(node: exp.Expr, dialect: str) -> list[str]:
    """Names of CTEs visible inside `node`: within a CTE those before it, and itself if recursive."""
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
"""Functions that take the time of day where they are given fewer arguments, or 'now'."""
_NOW = frozenset({"now", "today", "tomorrow", "yesterday"})


class _Call(Struct, frozen=True):
    name: str
    schema: str = ""
    arguments: int = 0


def volatile_parts(connection: Connection, sql: str) -> list[str]:
    """What in an expression of one row gives another value though the row is the same, each with why."""
    dialect = connection.dialect.name
    tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    known = engine_of(dialect).sql.volatile
    by_now = any(token.token_type == TokenType.STRING and token.text.lower() in _NOW for token in tokens)
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
        kinds = [token.token_type for token in tokens[place + 1 : place + 3]]
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
