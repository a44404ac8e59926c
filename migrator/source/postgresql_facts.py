"""What PostgreSQL says about tables, in the words of our schema facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.reflection import ObjectKind

from migrator.facts import Column
from migrator.source.postgresql_types import Types

# A partition's rows are its parent's rows too, and are read there. SQLAlchemy's inspector forgets the length and
# scale of a domain's type, and has no word for many types.
_COLUMNS = sa.text("""
    SELECT c.relname AS table_name, a.attname AS name, a.atttypid AS type, a.atttypmod AS modifier,
        NOT (a.attnotnull OR t.typnotnull AND c.relkind IN ('r', 'p')) AS nullable,
        pg_catalog.format_type(a.atttypid, a.atttypmod) AS declared
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    ORDER BY c.relname, a.attnum
""")


def columns(connection: Connection, schema: str | None) -> dict[str, list[Column]]:
    """Per table, view and foreign table, its columns in order, by real names; without partitions."""
    types = Types.of(connection, schema)
    found: dict[str, list[Column]] = {}
    for row in connection.execute(_COLUMNS, {"schema": schema}):
        column = Column(row.name, row.name, types.kind(row.type, row.modifier), row.nullable, row.declared)
        found.setdefault(row.table_name, []).append(column)
    return found


def unique_columns(inspector: Inspector, schema: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Per table, the columns of each unique constraint or index of columns only that holds for every row."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for (_, table), constraints in inspector.get_multi_unique_constraints(schema=schema).items():
        for constraint in constraints:
            found.setdefault(table, {})[tuple(constraint["column_names"])] = None
    for (_, table), indexes in inspector.get_multi_indexes(schema=schema, kind=ObjectKind.ANY).items():
        for columns in _of_whole_indexes(indexes):
            found.setdefault(table, {})[columns] = None
    return {table: list(columns) for table, columns in found.items()}


def _of_whole_indexes(indexes: Iterable[Any]) -> Iterable[tuple[str, ...]]:
    for index in indexes:
        partial = "postgresql_where" in index.get("dialect_options", {})
        if index["unique"] and not partial and not index.get("expressions"):
            yield tuple(index["column_names"])
