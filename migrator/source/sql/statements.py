"""SELECT statements of a mapping, in the source's own SQL: checked, with columns and tables located."""

from __future__ import annotations

import itertools
from functools import lru_cache

from sqlglot import TokenType, exp

from migrator.model.errors import SettingsError
from migrator.model.facts import TableFacts
from migrator.source.engines.table import engine_of
from migrator.source.sql.gate import (
    SELECT,
    CheckedExpression,
    CheckedStatement,
    has_comment,
    parameter_names,
    parsed,
    select_tokens,
    tokens_of,
)
from migrator.source.sql.spelling import Edit, Speller, edited, folded

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
    """`sql`, one SELECT of the source's, as it was written. `schema`: put before tables that name none.

    Raises: SettingsError when it is no single SELECT that only reads, or cannot be read as the source's dialect.
    """
    try:
        # As it was written first: nothing is looked for in what is no SELECT.
        written = CheckedStatement(sql, dialect)
        return written if schema is None else CheckedStatement(_in_schema(sql, dialect, schema), dialect)
    except SettingsError as error:
        raise SettingsError(f"a query of the mapping: {error}") from None


def row_expression(sql: str, table: TableFacts, dialect: str, alias: str | None = None) -> CheckedExpression:
    """`sql`, one expression of the source's over a row of `table`; put it in parentheses.

    `alias`: what the table is called where the expression will stand; each of its columns then begins with it.
    Raises: SettingsError when it is anything else: several, an aggregate, a subquery, a parameter, a comment.
    """
    if has_comment(sql, dialect) or parameter_names(sql, dialect):
        raise SettingsError("an expression holds neither comments nor parameters")
    # Read behind a SELECT, so that no other statement can be meant.
    text = SELECT + sql
    found = _only_expression(text, dialect)
    if found is None:
        raise SettingsError("this is not one expression of the source's SQL")
    if found.find(*_NOT_OF_ONE_ROW) is not None:
        raise SettingsError(
            "this is not one value of one row (an aggregate, a subquery, a star, an alias or a list)"
        )
    columns = list(found.find_all(exp.Column))
    if any(column.args.get("table") is not None for column in columns):
        raise SettingsError(f"write the columns of {table.name} without the table's name")
    speller = Speller(text, dialect)
    before = f"{speller.name(alias)}." if alias else ""
    own = {column.real for column in table.columns}
    edits = [speller.prefixed(column.this, before) for column in columns if folded(own, column.this)]
    return CheckedExpression(edited(text, itertools.chain(*edits))[len(SELECT) :], dialect)


def _only_expression(select: str, dialect: str) -> exp.Expr | None:
    """What the SELECT's list holds, if that is one expression and the SELECT nothing else."""
    try:
        tokens = tokens_of(select, dialect)
        found = parsed(select, tokens, dialect)
    except SettingsError:
        return None
    only = [name for name, value in found.args.items() if value] == ["expressions"]
    single = not any(token.token_type == TokenType.SEMICOLON for token in tokens)
    return found.expressions[0] if only and single and len(found.expressions) == 1 else None


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
    """Whether it names a table without its schema: no function, no CTE, none of the database's own."""
    if not isinstance(table.this, exp.Identifier) or table.args.get("db") is not None:
        return False
    return not table.name.startswith(_OF_THE_DATABASE) and not is_cte(table, dialect)


def is_cte(table: exp.Table, dialect: str) -> bool:
    """Whether a WITH around the table gives its name."""
    node: exp.Expr = table
    while node.parent is not None:
        if folded(_ctes_seen(node, dialect), table.this) is not None:
            return True
        node = node.parent
    return False


def _ctes_seen(node: exp.Expr, dialect: str) -> list[str]:
    """Names that the WITH above `node` gives to what is in `node`: to a CTE those before it, and itself if recursive."""
    above = node.parent
    if isinstance(above, exp.With):
        names = [cte.alias for cte in above.expressions]
        recursive = bool(above.args.get("recursive")) or engine_of(dialect).sql.recurses_unasked
        place = next(number for number, cte in enumerate(above.expressions) if cte is node)
        return names[: place + (recursive and isinstance(node.this, exp.SetOperation))]
    with_ = above.args.get("with_") if above is not None else None
    return [cte.alias for cte in with_.expressions] if with_ is not None and with_ is not node else []
