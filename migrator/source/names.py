"""Names of tables and columns: as a mapping writes them (snake_case), and as the source has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from sqlglot import exp

from migrator.model.errors import SettingsError
from migrator.model.facts import SchemaFacts, TableFacts
from migrator.source.engines.table import engine_of
from migrator.source.sql.gate import SELECT, parsed, tokens_of
from migrator.source.sql.spelling import Speller, folded
from migrator.source.sql.statements import is_cte

# ── Names of tables and columns as a mapping writes them ──

NameRule = Literal["exact", "snake_case"]

_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_LETTERS = re.compile(r"\W+")


def snake_case(name: str) -> str:
    """`name` in lower case, words joined by '_': TrackId is track_id, HTTPServer http_server."""
    words = _NO_LETTERS.sub(" ", name).strip().replace(" ", "_")
    return _WORD_END.sub("_", words).lower() or name


def written_names(real: Iterable[str], rule: NameRule) -> dict[str, str]:
    """The written name of each real name, in the order given."""
    return {name: snake_case(name) if rule == "snake_case" else name for name in real}


def clashes(written: dict[str, str]) -> list[str]:
    """One sentence for every written name that more than one real name has."""
    owners: dict[str, list[str]] = {}
    for real, name in written.items():
        owners.setdefault(name, []).append(real)
    return [
        f"{' and '.join(repr(real) for real in reals)} are all written {name}"
        for name, reals in owners.items()
        if len(reals) > 1
    ]


# ──
# Names of a mapping in its SQL, where only the source's own names are known: what to write instead of
# each.

Names = Mapping[str, str]
"""By the mapping's name the source's own."""


def statement_advice(sql: str, facts: SchemaFacts, *, refused: bool) -> str:
    """What to write instead of the mapping's names in a SELECT; '' where there are none.

    `refused`: whether the database refuses the statement. Where the source takes an unknown name in double quotes
    for a text (SQLite), these are looked for in any statement.
    """
    return _advice(sql, sql, facts, None, refused=refused)


def expression_advice(sql: str, table: TableFacts, facts: SchemaFacts, *, refused: bool) -> str:
    """As `statement_advice`, of an expression over a row of the table."""
    return _advice(sql, SELECT + sql, facts, table, refused=refused)


def _advice(sql: str, select: str, facts: SchemaFacts, table: TableFacts | None, *, refused: bool) -> str:
    dialect = facts.dialect
    if not refused and not engine_of(dialect).sql.takes_unknown_for_text:
        return ""
    try:
        parsed_select = parsed(select, tokens_of(select, dialect), dialect)
    except SettingsError:
        return ""
    named = _identifiers(parsed_select, facts, table)
    speller = Speller(sql, dialect)
    wrong = [(identifier.name, own) for identifier, own in named if refused or identifier.quoted]
    instead = {name: speller.name(own) for name, own in wrong}
    if not instead:
        return ""
    words = ", ".join(f"{own} for {name}" for name, own in instead.items())
    return f"SQL is in the source's own names (names: snake_case is for the mapping's alone); write {words}"


def _identifiers(
    select: exp.Expr, facts: SchemaFacts, table: TableFacts | None
) -> Iterable[tuple[exp.Identifier, str]]:
    """The identifiers that are names of the mapping and none of the source's, each with the source's own."""
    dialect, words = facts.dialect, engine_of(facts.dialect).sql
    known = {name.rpartition(".")[2]: facts.tables[name] for name in facts.tables}
    tables = {name: one.real for name, one in known.items()}
    nodes = [one for one in select.find_all(exp.Table) if isinstance(one.this, exp.Identifier)]
    nodes = [one for one in nodes if not is_cte(one, dialect)]
    read = [table] if table is not None else [_table_of(known, one.this) for one in nodes]
    columns = {column.name: column.real for one in read if one is not None for column in one.columns}
    given = _given(select)
    for node in nodes:
        if own := _own_name(node.this, tables, dialect, fold=words.tables_in_any_case):
            yield node.this, own
    for column in select.find_all(exp.Column):
        identifier = column.this
        if not isinstance(identifier, exp.Identifier) or identifier.name in given:
            continue
        if own := _own_name(identifier, columns, dialect, fold=words.columns_in_any_case):
            yield identifier, own


def _table_of(tables: Mapping[str, TableFacts], identifier: exp.Identifier) -> TableFacts | None:
    """The table by the mapping's name, else by the source's."""
    written = folded(tables, identifier)
    if written is not None:
        return tables[written]
    return next((table for table in tables.values() if folded([table.real], identifier)), None)


def _given(select: exp.Expr) -> set[str]:
    """Names that the statement itself gives to columns."""
    aliases = {one.alias for one in select.find_all(exp.Alias)}
    return aliases | {column.name for one in select.find_all(exp.TableAlias) for column in one.columns}


def _own_name(identifier: exp.Identifier, names: Names, dialect: str, *, fold: bool) -> str | None:
    """The source's name that is meant; None where the source itself knows it by what is written.

    `fold`: whether the source takes any case of a name for the same.
    """
    if any(_says(identifier, real, dialect, fold=fold) for real in names.values()):
        return None
    known = {**{real: real for real in names.values()}, **names}
    written = folded(known, identifier)
    return None if written is None else known[written]


def _says(identifier: exp.Identifier, real: str, dialect: str, *, fold: bool) -> bool:
    if fold:
        return identifier.name.lower() == real.lower()
    lower = engine_of(dialect).sql.folds_names and not identifier.quoted
    return (identifier.name.lower() if lower else identifier.name) == real
