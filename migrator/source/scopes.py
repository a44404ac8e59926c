"""Which column each name in a parsed SELECT means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from migrator.source.engines.table import engine_of
from migrator.source.spelling import folded

Columns = dict[str, str]
"""By written name the real one, or GIVEN."""

GIVEN = ""
"""In a real name's place: the statement gave the name itself (an alias), so it stays as it is written."""


@dataclass(frozen=True)
class Relation:
    """Something in a FROM, under the name that columns call it. `columns` None: only the database knows them.

    `real`: what its name must say where columns use it; None where it has an alias.
    """

    name: exp.Identifier | None
    columns: Columns | None
    real: str | None = None


@dataclass(frozen=True)
class Scope:
    """One SELECT: its relations, the aliases of its own list, and the SELECT around it."""

    relations: tuple[Relation, ...]
    aliases: Columns
    outer: Scope | None


def relation_called(qualifier: exp.Identifier, scope: Scope | None) -> Relation | None:
    """The relation that a column's qualifier means, searched for from the inside out."""
    while scope is not None:
        for relation in scope.relations:
            if relation.name is not None and folded({relation.name.name: GIVEN}, qualifier):
                return relation
        scope = scope.outer
    return None


def meant(column: exp.Column, scope: Scope, dialect: str) -> str | None:
    """The real name of an unqualified column, or GIVEN; None where only the database knows."""
    identifier: exp.Identifier = column.this
    alias = folded(scope.aliases, identifier) is not None
    if alias and _sees_alias(column, dialect):
        return GIVEN
    around: Scope | None = scope
    while around is not None:
        found = own(identifier, around)
        unknown = any(relation.columns is None for relation in around.relations)
        if found is not None or unknown or folded(around.aliases, identifier) is not None:
            return found
        around = around.outer
    return None


def _sees_alias(column: exp.Column, dialect: str) -> bool:
    """Whether an alias of the list comes before a column of a table.

    It does as a whole term of ORDER BY; on MySQL and MariaDB outside of aggregates in HAVING too.
    """
    parent = column.parent
    if isinstance(parent, exp.Ordered):
        return isinstance(parent.parent, exp.Order) and isinstance(parent.parent.parent, exp.Query)
    within = column.find_ancestor(exp.Having, exp.AggFunc, exp.Query)
    return isinstance(within, exp.Having) and engine_of(dialect).sql.having_sees_aliases


def own(identifier: exp.Identifier, scope: Scope) -> str | None:
    """The real name that the scope's relations have for it, or GIVEN; None where none of them knows it.

    Where they do not agree it is GIVEN too: the database then says that the name is ambiguous.
    """
    found = {column_in(relation, identifier) for relation in scope.relations} - {None}
    return found.pop() if len(found) == 1 else GIVEN if found else None


def column_in(relation: Relation, identifier: exp.Identifier) -> str | None:
    """The real name of the relation's column, or GIVEN; None where it has no such column."""
    columns = relation.columns or {}
    written = folded(columns, identifier)
    if written is not None:
        return columns[written]
    return identifier.name if identifier.name in columns.values() else None


def under_names(columns: Columns | None, names: Sequence[exp.Identifier]) -> Columns | None:
    """The columns under the names that an alias gives to the first of them."""
    if not names:
        return columns
    rest = list((columns or {}).items())[len(names) :]
    return {**{name.name: GIVEN for name in names}, **dict(rest)}


def columns_given(expressions: Sequence[exp.Expr], scope: Scope) -> Columns | None:
    """The columns that a SELECT's list gives; None where a star stands for unknown ones."""
    given: Columns = {}
    for number, one in enumerate(expressions):
        qualified = isinstance(one, exp.Column) and isinstance(one.this, exp.Star)
        if not qualified and not isinstance(one, exp.Star):
            given[one.alias_or_name or f"?{number}"] = GIVEN
            continue
        called = relation_called(one.args["table"], scope) if qualified else None
        for relation in scope.relations if called is None else (called,):
            if relation.columns is None:
                return None
            given = {**relation.columns, **given}
    return given
