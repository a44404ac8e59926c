"""Schema facts of SQLite: types by affinity, its catalogue, and unique indexes that an upsert may conflict with."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.exc import DBAPIError

from migrator.mapping.model.facts import Column, Kind, UniqueConflict
from migrator.source.engines import catalogue
from migrator.source.engines.catalogue import (
    Kinds,
    Queries,
    Reflected,
    foreign_keys_of,
    primary_keys_of,
    the_users,
)

# ── Unique conflicts of a new row: unique indexes with a collation, an expression or a condition ──

_WORD = r"[^\W\d][\w$]*"
_TOKEN = re.compile(
    rf"""[xX]?'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|{_WORD}|\d[\w.]*|--[^\n]*|/\*.*?\*/|\s+|.""",
    re.DOTALL,
)
_ORDER = re.compile(r"(?i)\s+(?:ASC|DESC)\s*$")
_COLLATED = re.compile(r"(?i)\b(?:UNIQUE|KEY)\s*\([^()]*\bCOLLATE\b")
_NO_COLUMN_AFTER = frozenset({".", "AS", "COLLATE"})

_Parts: TypeAlias = Sequence[sa.Row[tuple[str, int, str, str, str, str]]]
"""The parts of one index."""


def unique_conflicts(connection: Connection, table: str) -> tuple[UniqueConflict, ...]:
    """The conflicts of each unique index of the table that has an expression, a condition or a different collation."""
    rows = connection.execute(QUERIES["unique_indexes"], {"table": table}).all()
    names = {name.lower(): name for name in connection.scalars(QUERIES["columns"], {"table": table})}
    conflicts = []
    for _, group in groupby(rows, lambda row: row.name):
        parts = list(group)
        is_whole = not parts[0].partial and all(part.column_name for part in parts)
        if not is_whole or _is_collated(parts):
            conflicts.append(_unique_conflict(parts, _RowNaming(names), is_whole=is_whole))
    return tuple(conflicts)


def _is_collated(parts: _Parts) -> bool:
    """Whether the index, or the constraint that made it, declares a collation that its columns may not have."""
    own, made_by = parts[0].sql, parts[0].table_sql
    is_declared = bool(re.search(r"(?i)\bCOLLATE\b", own) if own else _COLLATED.search(made_by))
    return is_declared and any(part.coll.upper() != "BINARY" for part in parts)


def _unique_conflict(parts: _Parts, naming: _RowNaming, *, is_whole: bool) -> UniqueConflict:
    part_texts, condition = _split(parts[0].sql) if parts[0].sql else ([], "")
    sides = []
    for number, part in enumerate(parts):
        text = _quoted(part.column_name) if part.column_name else _ORDER.sub("", part_texts[number])
        existing, new = (naming.of(text, side) for side in ("gone", "NEW"))
        sides.append(f"({existing}) = ({new}) COLLATE {_quoted(part.coll)}")
    if condition:
        sides += [f"({naming.of(condition, side)})" for side in ("gone", "NEW")]
    return UniqueConflict(" AND ".join(sides), tuple(dict.fromkeys(naming.seen)), is_whole)


@dataclass
class _RowNaming:
    """Rewrites expressions of an index for a row with an alias. `names`: real names of columns by their lower case."""

    names: Mapping[str, str]

    def __post_init__(self) -> None:
        self.seen: list[str] = []

    def of(self, text: str, row: str) -> str:
        tokens = _tokens(text)
        words = [at for at, token in enumerate(tokens) if not token.isspace()]
        for position, at in enumerate(words):
            before = tokens[words[position - 1]].upper() if position else ""
            after = tokens[words[position + 1]] if position + 1 < len(words) else ""
            name = self.names.get(_plain(tokens[at]).lower())
            if name is not None and before not in _NO_COLUMN_AFTER and after != "(":
                self.seen.append(name)
                tokens[at] = f"{row}.{_quoted(name)}"
        return "".join(tokens).strip()


def _split(sql: str) -> tuple[list[str], str]:
    """The parts in the parentheses of CREATE INDEX, and its condition after WHERE."""
    tokens = iter(_tokens(sql))
    for token in tokens:
        if token == "(":
            break
    parts, depth = [""], 1
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if not depth:
            break
        if token == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += token
    return parts, "".join(tokens).strip()[len("WHERE") :]


def _tokens(text: str) -> list[str]:
    return [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(text)]


def _plain(token: str) -> str:
    if token[0] == "[":
        return token[1:-1]
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in '"`' else token


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# ── SQLite's types: those of types.toml by name, any other by its affinity ──

AFFINITIES = (
    (("INT",), Kind("plain")),
    (("CHAR", "CLOB", "TEXT"), Kind("text")),
    (("BLOB",), Kind("binary")),
    (("REAL", "FLOA", "DOUB"), Kind("float")),
    (("",), Kind("plain")),
)
"""Words in a name that is not listed above, in SQLite's order. Source: sqlite.org/datatype3.html, "Determination Of
Column Affinity". What SQLite makes a number of where it can (INT in the name, or nothing known) may still be text."""


def _by_affinity(type_name: str) -> Kind:
    return next(kind for words, kind in AFFINITIES if any(word in type_name for word in words))


KINDS = Kinds("migrator.source.engines.sqlite", _by_affinity)
"""What each declared type holds."""
QUERIES = Queries("migrator.source.engines.sqlite")


# ── Facts about a table that SQLAlchemy's inspector does not pass on ──

_GENERATED = (2, 3)
"""Of `hidden`. Source: sqlite.org/pragma.html#pragma_table_xinfo"""
_LISTS_TABLES = (3, 37, 0)
"""Source: sqlite.org/pragma.html#pragma_table_list"""
_WHY_NOT = {
    "shadow": "a shadow table, in which SQLite keeps a virtual table such as a full-text index",
    "virtual": "a virtual table, such as a full-text index, which cannot have triggers",
}


def reflected(connection: Connection, _: str | None) -> Reflected:
    """Tables and views of a schema (None: the default one)."""
    inspector = sa.inspect(connection)
    left_out = _left_out(connection)
    names = [
        name
        for name in the_users([*inspector.get_table_names(), *inspector.get_view_names()])
        if name not in left_out
    ]
    keys = primary_keys_of(inspector, None)
    columns = {name: list(_sqlite_columns(connection, inspector, name, keys.get(name, []))) for name in names}
    unique = {name: unique_columns(connection, name) for name in names}
    met = {name: unique_conflicts(connection, name) for name in names}
    foreign_keys = foreign_keys_of(inspector, None)
    for key in (key for keys in foreign_keys.values() for key in keys):
        # PRAGMA defer_foreign_keys defers each of them.
        key["options"] = {**key.get("options", {}), "deferrable": True}
    return Reflected(None, columns, keys, unique, foreign_keys, met, left_out=left_out)


def _left_out(connection: Connection) -> dict[str, str]:
    """A trigger on a shadow table runs inside of the virtual table's own writes, which may crash the service."""
    found = dict.fromkeys(broken_views(connection), "a view of tables that no longer exist")
    if sqlite3.sqlite_version_info >= _LISTS_TABLES:
        for name, kind in connection.execute(QUERIES["not_of_rows"]):
            found[name] = _WHY_NOT[kind]
    return found


def _sqlite_columns(
    connection: Connection, inspector: Inspector, table: str, key: Sequence[str]
) -> Iterator[Column]:
    """The columns with the types that the table's author wrote; SQLAlchemy knows fewer type names."""
    rows = {row.name: row for row in connection.execute(QUERIES["columns"], {"table": table})}
    columns = inspector.get_columns(table)
    alike = catalogue.on_sqlite(connection, table, [column["name"] for column in columns])
    for column in columns:
        name = column["name"]
        # INTEGER PRIMARY KEY is the rowid, which is never NULL whatever the declaration says.
        declared = rows[name].type
        rowid = [name] == list(key) and declared.upper() == "INTEGER"
        yield Column(
            name,
            name,
            KINDS.kind_of(declared),
            column["nullable"] and not rowid,
            declared,
            alike=alike.get(name, ()),
            default=rowid or rows[name].dflt_value not in (None, "NULL"),
            generated=rows[name].hidden in _GENERATED,
        )


def unique_columns(connection: Connection, table: str) -> list[tuple[str, ...]]:
    """The columns of each unique constraint or index of columns only that holds for every row."""
    by_index: dict[str, list[str | None]] = {}
    for index, column in connection.execute(QUERIES["unique_columns"], {"table": table}):
        by_index.setdefault(index, []).append(column)
    names = (tuple(name for name in columns if name) for columns in by_index.values() if None not in columns)
    return list(dict.fromkeys(names))


def broken_views(connection: Connection) -> set[str]:
    """Views that cannot be read because their tables are gone; SQLite keeps such views."""
    return {view for view in connection.scalars(QUERIES["views"]) if not _can_be_read(connection, view)}


def _can_be_read(connection: Connection, view: str) -> bool:
    try:
        connection.execute(QUERIES["columns"], {"table": view}).all()
    except DBAPIError:
        return False
    return True
