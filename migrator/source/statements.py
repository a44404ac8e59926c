"""A mapping's SQL in the source's own names: text in, text out, all but the names as it was written."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import replace

from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from migrator.errors import SettingsError
from migrator.facts import SchemaFacts, TableFacts
from migrator.source.names import NameRule
from migrator.source.parameters import has_comment, masked, parameter_names
from migrator.source.renaming import renaming_edits
from migrator.source.scopes import Relation, column_in
from migrator.source.spelling import Speller, edited, sqlglot_dialect

_WRITES = (exp.DML, exp.DDL, exp.Into, exp.Command)
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
_SELECT = "SELECT "
_BEGINNINGS = {TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN}
_EXACT = "or give real names: source: {names: exact}"


def translated(sql: str, facts: SchemaFacts, schema: str | None = None) -> str:
    """`sql`, one SELECT in written names, as the source takes it: real names, quoted where they must be.

    `:name` parameters, aliases and unknown names stay. `schema`: of tables that name none.
    Where written names are the real ones and there is no schema, `sql` is given back unread.
    Raises: SettingsError when it is no single SELECT, or cannot be read as the source's dialect.
    """
    if schema is None and _exact(facts):
        return sql
    tokens = _select_tokens(sql, facts.dialect)
    select = _parsed(sql, tokens, facts.dialect)
    if not isinstance(select, exp.Query) or select.find(*_WRITES) is not None:
        raise SettingsError("the statement would write; an access pattern's SQL is one SELECT")
    return edited(sql, renaming_edits(select, facts, Speller(sql, facts.dialect), schema))


def check_select(sql: str, dialect: str) -> None:
    """Raises: SettingsError for what begins as no SELECT, or is several statements."""
    _select_tokens(sql, dialect)


class Statements:
    """Translates the statements of one source; reads its schema once, where nobody has read it yet.

    `reflect`: reads the schema and gives it to `learn`. Safe to use from many threads at once.
    """

    def __init__(self, names: NameRule, reflect: Callable[[], SchemaFacts]) -> None:
        self._names = names
        self._reflect = reflect
        self._lock = threading.RLock()
        self._facts: SchemaFacts | None = None
        self._known: dict[tuple[str, str | None], str] = {}

    def learn(self, facts: SchemaFacts) -> SchemaFacts:
        """Takes the facts for all statements from now on; gives them back."""
        with self._lock:
            if facts != self._facts:
                self._facts = facts
                self._known.clear()
        return facts

    def translated(self, sql: str, schema: str | None = None) -> str:
        """As the function `translated`; a statement is read once. Raises: SettingsError."""
        if self._names == "exact" and schema is None:
            return sql
        with self._lock:
            facts = self._facts or self._reflect()
            if (sql, schema) not in self._known:
                try:
                    self._known[sql, schema] = translated(sql, _within(facts, schema), schema)
                except SettingsError as error:
                    raise SettingsError(f"a query of the mapping: {error}") from None
            return self._known[sql, schema]


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


def translated_expression(sql: str, table: TableFacts, dialect: str, alias: str | None = None) -> str:
    """`sql`, one expression over a row of `table` in written names, in real ones; put it in parentheses.

    `alias`: what the table is called where the expression will stand; each column then begins with it.
    Raises: SettingsError when it is anything else: several, an aggregate, a subquery, a parameter, a comment.
    """
    if has_comment(sql, dialect) or parameter_names(sql, dialect):
        raise SettingsError("an expression holds neither comments nor parameters")
    # Read behind a SELECT, so that no other statement can be meant.
    text = _SELECT + sql
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
    return edited(text, itertools.chain(*edits))[len(_SELECT) :]


def _only_expression(select: str, dialect: str) -> exp.Expr | None:
    """What the SELECT's list holds, if that is one expression and the SELECT nothing else."""
    try:
        tokens = _tokens(select, dialect)
        found = _parsed(select, tokens, dialect)
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


# ── reading ──


def _tokens(sql: str, dialect: str) -> list[Token]:
    # Parameters may have any name, :from too, which sqlglot would take for a keyword.
    try:
        tokens = sqlglot_dialect(dialect).tokenize(masked(sql, dialect))
    except SqlglotError as error:
        raise SettingsError(_unreadable(*_place_in(error))) from None
    if not tokens:
        raise SettingsError("the SQL is empty")
    return tokens


def _select_tokens(sql: str, dialect: str) -> list[Token]:
    tokens = _tokens(sql, dialect)
    _check_single(tokens)
    if tokens[0].token_type not in _BEGINNINGS:
        raise SettingsError("this is no SELECT; an access pattern's SQL is one SELECT")
    return tokens


def _check_single(tokens: list[Token]) -> None:
    kinds = [token.token_type for token in tokens]
    while kinds and kinds[-1] == TokenType.SEMICOLON:
        kinds.pop()
    if TokenType.SEMICOLON in kinds:
        token = tokens[kinds.index(TokenType.SEMICOLON)]
        where = f"line {token.line}, column {token.col}"
        raise SettingsError(f"{where}: a second statement begins after ';'; write one SELECT")


def _parsed(sql: str, tokens: list[Token], dialect: str) -> exp.Expr:
    try:
        found = sqlglot_dialect(dialect).parser().parse(tokens, masked(sql, dialect))
    except SqlglotError as error:
        raise SettingsError(_unreadable(*_place_in(error))) from None
    except RecursionError:
        raise SettingsError("the SQL is nested too deeply to be read") from None
    if not found or found[0] is None:
        raise SettingsError("the SQL is empty")
    return found[0]


def _place_in(error: SqlglotError) -> tuple[int, int]:
    """Line and column of the fault, (0, 0) where sqlglot does not say; the rest of its message quotes the SQL."""
    for found in getattr(error, "errors", ()):
        return found.get("line") or 0, found.get("col") or 0
    place = re.search(r"from (\d+):(\d+)$", str(error.__cause__))
    return (int(place[1]), int(place[2])) if place else (0, 0)


def _unreadable(line: int, column: int) -> str:
    where = f"line {line}, column {column}: " if line else ""
    return f"{where}the SQL cannot be read here; correct it, {_EXACT}"
