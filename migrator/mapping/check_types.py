"""What is wrong with the use of a column's type: no form in an item, a list where text is wanted, too many digits."""

from __future__ import annotations

import re

from migrator.facts import Column, Kind
from migrator.limits import NUMBER_DIGITS
from migrator.mapping.expressions import keeps_every_value
from migrator.model import Ref

NESTED = frozenset({"list", "map", "set"})
_NAME = re.compile(r"[A-Za-z_]\w*")


def refused(path: str, column: Column, *, kept: bool = False) -> str:
    """What to say of a column whose type has no form in an item, and what to write instead."""
    alias, _, name = path.rpartition(".")
    sql = (column.kind.instead or "CAST({column} AS char)").replace("{column}", _quoted(name))
    what = f"'{path}' is of type {column.declared or 'an unknown type'}, which has no form in an item"
    if alias:
        return f"{what}; make a view with {sql} in it, and read that"
    new = f"{name}_text"
    instead = f'write columns: {{{new}: {{sql: "{_escaped(sql)}", type: text}}}} and use {new}'
    without = f", with keep: {{except: [{name}]}}" if kept else ""
    return f"{what}; {instead}{without}"


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _escaped(sql: str) -> str:
    return sql.replace("\\", "\\\\").replace('"', '\\"')


def too_precise(path: str, kind: Kind, ref: Ref | None) -> str:
    """A warning where a number may have more digits than DynamoDB holds; '' where its text is taken."""
    if kind.name != "number" or (kind.precision or 0) <= NUMBER_DIGITS:
        return ""
    if ref is not None and keeps_every_value(ref.filters):
        return ""
    what = f"'{path}' may have {kind.precision} digits, and a number of more than {NUMBER_DIGITS} refuses its row"
    return f"{what}; {path}|text keeps every digit"


def nested_fault(path: str, kind: Kind, ref: Ref, *, text_wanted: bool) -> str:
    """What is wrong with a list or a map where one text is wanted, or behind a filter that takes a single value."""
    if kind.name not in NESTED:
        return ""
    for used in ref.filters:
        if used.name == "json":
            return ""
        if used.name != "or":
            return f"'{path}' is a {kind.name}; of the filters only json takes it, not '{used.name}'"
    return (
        f"'{path}' is a {kind.name}, which has no text of its own; write {path}|json" if text_wanted else ""
    )


def bare_fault(path: str, kind: Kind, doing: str) -> str:
    """What is wrong with a list or a map in a condition, a TTL or a row's key."""
    return f"'{path}' is a {kind.name}; {doing} takes one value" if kind.name in NESTED else ""


def row_key_fault(column: Column) -> str:
    """Why the column cannot name rows; '' where it can."""
    if what := bare_fault(column.name, column.kind, "a row's key"):
        return what
    why = "it has no form" if column.kind.name == "unknown" else column.kind.no_key
    return f"'{column.name}' is of type {column.declared}, which cannot name rows: {why}" if why else ""
