"""What MySQL and MariaDB say about tables, in the words of our schema facts.

By information_schema alone: SQLAlchemy's inspector forgets the prefix of an index and MariaDB's JSON.
"""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint

from migrator.facts import Column
from migrator.source import collations
from migrator.source.reflection import Reflected, the_users
from migrator.source.types_mysql import KINDS

_PRIMARY = "PRIMARY"

# A view whose tables are gone has another comment, which says so.
_COLUMNS = sa.text("""
    SELECT c.TABLE_NAME AS table_name, c.COLUMN_NAME AS name, c.COLUMN_TYPE AS declared,
        c.IS_NULLABLE = 'YES' AS nullable, c.COLLATION_NAME AS collation
    FROM information_schema.TABLES t
    JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME
    WHERE t.TABLE_SCHEMA = COALESCE(:schema, DATABASE())
        AND (t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') OR t.TABLE_TYPE = 'VIEW' AND t.TABLE_COMMENT = 'VIEW')
    ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION
""")

_INDEXES = sa.text("""
    SELECT TABLE_NAME AS table_name, INDEX_NAME AS name, COLUMN_NAME AS column_name, SUB_PART AS prefix
    FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND NON_UNIQUE = 0
    ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX
""")

# The engines that read rows which others keep: of them MERGE says itself that it keeps no key unique.
_UNKEPT = sa.text("""
    SELECT TABLE_NAME AS table_name, ENGINE AS engine FROM information_schema.TABLES
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE())
        AND ENGINE IN ('MRG_MyISAM', 'FEDERATED', 'CONNECT', 'SPIDER')
""")

_FOREIGN_KEYS = sa.text("""
    SELECT TABLE_NAME AS table_name, CONSTRAINT_NAME AS name, COLUMN_NAME AS column_name,
        NULLIF(REFERENCED_TABLE_SCHEMA, TABLE_SCHEMA) AS referred_schema,
        REFERENCED_TABLE_NAME AS referred, REFERENCED_COLUMN_NAME AS referred_column
    FROM information_schema.KEY_COLUMN_USAGE
    WHERE TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND REFERENCED_TABLE_NAME IS NOT NULL
    ORDER BY TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION
""")

_CHECKS = sa.text("""
    SELECT TABLE_NAME AS table_name, CHECK_CLAUSE AS clause
    FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = COALESCE(:schema, DATABASE())
""")
# A name stands in double quotes where the session's sql_mode has ANSI_QUOTES, as ours has.
_JSON_CHECK = re.compile(r"""json_valid\((?P<quote>[`"])(?P<name>.+)(?P=quote)\)""")


def reflected(connection: Connection, schema: str | None) -> Reflected:
    """Tables and views of a schema (None: the default one)."""
    found = columns(connection, schema)
    keys = primary_keys(connection, schema)
    unique = unique_columns(connection, schema)
    return Reflected(
        schema,
        {name: found[name] for name in the_users(found)},
        keys,
        unique,
        foreign_keys(connection, schema),
        doubts={
            table: [(tuple(key), why) for key in [keys.get(table, []), *unique.get(table, [])] if key]
            for table, why in unkept(connection, schema).items()
        },
    )


def columns(connection: Connection, schema: str | None) -> dict[str, list[Column]]:
    """Per table and view, its columns in order, by real names."""
    json = _json_columns(connection, schema)
    found: dict[str, list[Column]] = {}
    rows = connection.execute(_COLUMNS, {"schema": schema}).all()
    alike = collations.on_mysql(connection, (row.collation for row in rows if row.collation is not None))
    for row in rows:
        is_json = (row.table_name, row.name) in json
        kind = KINDS.kind_of("json" if is_json else row.declared)
        # What an ENUM or a SET holds is spelled as it is declared.
        listed = row.declared.startswith(("enum(", "set("))
        column = Column(
            row.name,
            row.name,
            kind,
            bool(row.nullable),
            row.declared,
            alike=() if listed else alike.get(row.collation, ()),
            widest=collations.widest_on_mysql(row.collation),
        )
        found.setdefault(row.table_name, []).append(column)
    return found


def _json_columns(connection: Connection, schema: str | None) -> set[tuple[str, str]]:
    """(table, column) of MariaDB's JSON, which is LONGTEXT with a check; MySQL has a type for it."""
    if not getattr(connection.dialect, "is_mariadb", False):
        return set()
    found = set()
    for row in connection.execute(_CHECKS, {"schema": schema}):
        if check := _JSON_CHECK.fullmatch(row.clause):
            quote = check["quote"]
            found.add((row.table_name, check["name"].replace(2 * quote, quote)))
    return found


def primary_keys(connection: Connection, schema: str | None) -> dict[str, list[str]]:
    """Per table, the columns of its primary key. A prefix that is unique makes the whole column unique."""
    indexes = _unique_indexes(connection, schema)
    return {
        table: [part.column_name for part in found[_PRIMARY]]
        for table, found in indexes.items()
        if _PRIMARY in found
    }


def unique_columns(connection: Connection, schema: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Per table, the columns of each other unique index of whole columns only; an expression has no column."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for table, indexes in _unique_indexes(connection, schema).items():
        for name, parts in indexes.items():
            whole = all(part.column_name is not None and part.prefix is None for part in parts)
            if whole and name != _PRIMARY:
                found.setdefault(table, {})[tuple(part.column_name for part in parts)] = None
    return {table: list(keys) for table, keys in found.items()}


def unkept(connection: Connection, schema: str | None) -> dict[str, str]:
    """Per table whose keys the server does not keep unique, why."""
    rows = connection.execute(_UNKEPT, {"schema": schema})
    return {row.table_name: f"an engine {row.engine} does not keep its keys unique" for row in rows}


def _unique_indexes(connection: Connection, schema: str | None) -> dict[str, dict[str, list[sa.Row[Any]]]]:
    return _grouped(connection, _INDEXES, schema)


def foreign_keys(
    connection: Connection, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    """Per table, its foreign keys; `referred_schema` is None for a table of the same database."""
    return {
        table: [_foreign_key(name, parts) for name, parts in found.items()]
        for table, found in _grouped(connection, _FOREIGN_KEYS, schema).items()
    }


def _foreign_key(name: str, parts: list[sa.Row[Any]]) -> ReflectedForeignKeyConstraint:
    return {
        "name": name,
        "constrained_columns": [part.column_name for part in parts],
        "referred_schema": parts[0].referred_schema,
        "referred_table": parts[0].referred,
        "referred_columns": [part.referred_column for part in parts],
        "options": {},
        "comment": None,
    }


def _grouped(
    connection: Connection, statement: sa.TextClause, schema: str | None
) -> dict[str, dict[str, list[sa.Row[Any]]]]:
    """Per table and name of an index or a constraint, its columns in order."""
    found: dict[str, dict[str, list[sa.Row[Any]]]] = {}
    for row in connection.execute(statement, {"schema": schema}):
        found.setdefault(row.table_name, {}).setdefault(row.name, []).append(row)
    return found
