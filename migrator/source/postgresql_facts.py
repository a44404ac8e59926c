"""What PostgreSQL says about tables, in the words of our schema facts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect, Inspector
from sqlalchemy.engine.reflection import ObjectKind
from sqlalchemy.types import TypeEngine

from migrator.facts import Kind
from migrator.source.kinds import kind_of

_PARTITIONS = sa.text(
    "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relispartition AND n.nspname = :schema"
)

# SQLAlchemy's inspector forgets the length and scale of a domain's type, and gets some domains wrong.
_DOMAINS = sa.text("""
    WITH RECURSIVE resolved (domain, base, typmod) AS (
        SELECT oid, typbasetype, typtypmod FROM pg_catalog.pg_type WHERE typtype = 'd'
        UNION ALL
        SELECT r.domain, t.typbasetype, CASE WHEN r.typmod = -1 THEN t.typtypmod ELSE r.typmod END
        FROM resolved r JOIN pg_catalog.pg_type t ON t.oid = r.base WHERE t.typtype = 'd'
    )
    SELECT c.relname, a.attname,
        CASE b.typtype WHEN 'e' THEN 'text' ELSE pg_catalog.format_type(r.base, r.typmod) END AS base
    FROM resolved r
    JOIN pg_catalog.pg_type b ON b.oid = r.base AND b.typtype <> 'd'
    JOIN pg_catalog.pg_attribute a ON a.atttypid = r.domain AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
""")


def partitions(connection: Connection, schema: str | None) -> set[str]:
    """Tables whose rows are another table's rows too."""
    return set(connection.scalars(_PARTITIONS, {"schema": schema}))


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


def domain_bases(connection: Connection, schema: str | None) -> dict[tuple[str, str], str]:
    """By (table, column), what the column's domain is made of, with its length or scale."""
    rows = connection.execute(_DOMAINS, {"schema": schema})
    return {(row.relname, row.attname): row.base for row in rows}


def kind_of_type(type_: TypeEngine[Any], dialect: Dialect) -> Kind:
    """An enum is text, everything else what its name says."""
    if isinstance(type_, sa.Enum):
        return Kind("text")
    return kind_of(declared_type(type_, dialect), "postgresql")


def declared_type(type_: TypeEngine[Any], dialect: Dialect) -> str:
    """The type in PostgreSQL's words; '' for one that SQLAlchemy has no word for."""
    return "" if isinstance(type_, sa.types.NullType) else str(type_.compile(dialect))
