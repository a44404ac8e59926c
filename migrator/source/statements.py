"""A mapping's SQL in the source's own names: text in, text out, all but the names as it was written."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

from sqlglot import TokenType, exp

from migrator.errors import SettingsError
from migrator.facts import SchemaFacts, TableFacts
from migrator.source.gate import (
    SELECT,
    CheckedExpression,
    CheckedStatement,
    parsed,
    select_tokens,
    tokens_of,
)
from migrator.source.names import NameRule
from migrator.source.parameters import has_comment, parameter_names
from migrator.source.renaming import renaming_edits
from migrator.source.scopes import Relation, column_in
from migrator.source.spelling import Speller, edited

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


def translated(sql: str, facts: SchemaFacts, schema: str | None = None) -> CheckedStatement:
    """`sql`, one SELECT in written names, as the source takes it: real names, quoted where they must be.

    `:name` parameters, aliases and unknown names stay. `schema`: of tables that name none.
    Where written names are the real ones and there is no schema, `sql` stays as it is.
    Raises: SettingsError when it is no single SELECT that only reads, or cannot be read as the source's dialect.
    """
    if schema is None and _exact(facts):
        return CheckedStatement(sql, facts.dialect)
    # As it was written first: what writes has no scopes of names to be followed.
    written = CheckedStatement(sql, facts.dialect)
    select = parsed(sql, select_tokens(sql, facts.dialect), facts.dialect)
    edits = renaming_edits(select, facts, Speller(sql, facts.dialect), schema)
    return CheckedStatement(edited(written.sql, edits), facts.dialect)


class Statements:
    """Translates the statements of one source; reads its schema once, where nobody has read it yet.

    `reflect`: reads the schema and gives it to `learn`. Safe to use from many threads at once.
    """

    def __init__(self, names: NameRule, dialect: str, reflect: Callable[[], SchemaFacts]) -> None:
        self._names = names
        self._dialect = dialect
        self._reflect = reflect
        self._lock = threading.RLock()
        self._facts: SchemaFacts | None = None
        self._known: dict[tuple[str, str | None], CheckedStatement] = {}

    def learn(self, facts: SchemaFacts) -> SchemaFacts:
        """Takes the facts for all statements from now on; gives them back."""
        with self._lock:
            if facts != self._facts:
                self._facts = facts
                self._known.clear()
        return facts

    def translated(self, sql: str, schema: str | None = None) -> CheckedStatement:
        """As the function `translated`; a statement is read once. Raises: SettingsError."""
        with self._lock:
            if (sql, schema) not in self._known:
                try:
                    self._known[sql, schema] = self._read(sql, schema)
                except SettingsError as error:
                    raise SettingsError(f"a query of the mapping: {error}") from None
            return self._known[sql, schema]

    def _read(self, sql: str, schema: str | None) -> CheckedStatement:
        if self._names == "exact" and schema is None:
            return CheckedStatement(sql, self._dialect)
        return translated(sql, _within(self._facts or self._reflect(), schema), schema)


def _within(facts: SchemaFacts, schema: str | None) -> SchemaFacts:
    """The facts as they are seen from inside of a schema: its tables without its name."""
    if schema is None:
        return facts
    own = {
        name.removeprefix(f"{schema}."): one
        for name, one in facts.tables.items()
        if name.startswith(f"{schema}.")
    }
    return replace(facts, tables={**facts.tables, **own})


def translated_expression(
    sql: str, table: TableFacts, dialect: str, alias: str | None = None
) -> CheckedExpression:
    """`sql`, one expression over a row of `table` in written names, in real ones; put it in parentheses.

    `alias`: what the table is called where the expression will stand; each column then begins with it.
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
    if any(one.args.get("table") is not None for one in columns):
        raise SettingsError(f"write the columns of {table.name} without the table's name")
    speller = Speller(text, dialect)
    before = f"{speller.name(alias)}." if alias else ""
    relation = Relation(None, {column.name: column.real for column in table.columns})
    known = [(one.this, column_in(relation, one.this)) for one in columns]
    edits = [speller.edit(name, real, before=before) for name, real in known if real is not None]
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


def _exact(facts: SchemaFacts) -> bool:
    tables = facts.tables.values()
    return all(table.name == table.real for table in tables) and all(
        column.name == column.real for table in tables for column in table.columns
    )
