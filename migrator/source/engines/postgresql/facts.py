"""Schema facts of PostgreSQL, from its catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Inspector
from sqlalchemy.engine.interfaces import ReflectedForeignKeyConstraint
from sqlalchemy.engine.reflection import ObjectKind

from migrator.mapping.model.facts import Column
from migrator.source.engines import catalogue
from migrator.source.engines.catalogue import Reflected, foreign_keys_of, primary_keys_of, the_users
from migrator.source.engines.postgresql.types import Types

_OF_EXTENSION = """EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'
            AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass)"""

# NOT NULL on a foreign table is not enforced, and one that is NOT VALID has not been for all rows: PostgreSQL 18 has such.
# A partition's rows are its parent's rows too, and are read there.
# SQLAlchemy's inspector omits the length and scale of a domain's type, and does not know many types.
_COLUMNS = sa.text(f"""
    SELECT c.relname AS table_name, a.attname AS name, a.attnum AS number, a.atttypid AS type, a.atttypmod AS modifier,
        NOT ((a.attnotnull OR t.typnotnull) AND c.relkind IN ('r', 'p')) OR EXISTS (SELECT FROM pg_catalog.pg_constraint k
            WHERE k.conrelid = c.oid AND k.contype = 'n' AND k.conkey = ARRAY[a.attnum] AND NOT k.convalidated) AS nullable,
        pg_catalog.format_type(a.atttypid, a.atttypmod) AS declared, a.attcollation AS collation,
        a.attgenerated <> '' AS computed, a.attgenerated = 'v' AS virtual,
        CASE WHEN a.attgenerated <> '' THEN (SELECT pg_catalog.pg_get_expr(x.adbin, x.adrelid)
            FROM pg_catalog.pg_attrdef x WHERE x.adrelid = c.oid AND x.adnum = a.attnum) END AS expression,
        a.atthasdef OR a.attidentity <> '' AS has_default,
        CASE pg_catalog.getdatabaseencoding() WHEN 'UTF8' THEN 4 WHEN 'SQL_ASCII' THEN 4 ELSE 3 END AS widest
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND c.relispopulated
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AND NOT {_OF_EXTENSION}
    ORDER BY c.relname, a.attnum
""")

_LEFT_OUT = sa.text(f"""
    SELECT c.relname, CASE WHEN {_OF_EXTENSION} THEN :of_extension
        WHEN c.relispopulated THEN :unreadable ELSE :unpopulated END
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
        AND NOT (c.relispopulated AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
            AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AND NOT {_OF_EXTENSION})
    ORDER BY c.relname
""")

# Indexes of columns only that cover every row: those from unique_columns, and the primary key.
_INDEXES = sa.text("""
    SELECT c.relname AS table_name, i.indisvalid AND i.indisready AS valid, i.indimmediate AS immediate,
        ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int[]) WITH ORDINALITY k(number, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
            WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS names,
        EXISTS (SELECT FROM pg_catalog.pg_inherits h JOIN pg_catalog.pg_class heir ON heir.oid = h.inhrelid
            WHERE h.inhparent = c.oid AND NOT heir.relispartition) AS inherited
    FROM pg_catalog.pg_index i
    JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
    WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL
""")

# Without those that the server does not enforce, and those of a PERIOD, which another one covers and need not equal:
# PostgreSQL 18 has both.
_FOREIGN_KEYS = sa.text("""
    SELECT c.relname AS table_name, k.conname AS name, k.convalidated AS proved
    FROM pg_catalog.pg_constraint k
    JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = :schema
    WHERE k.contype = 'f' AND COALESCE(to_jsonb(k) ->> 'conenforced', 'true') = 'true'
        AND COALESCE(to_jsonb(k) ->> 'conperiod', 'false') = 'false'
""")


def reflected(connection: Connection, schema: str | None) -> Reflected:
    """Tables and views of a schema (None: the default one)."""
    inspector = sa.inspect(connection)
    schema = schema or inspector.default_schema_name
    columns_by_table = columns(connection, schema)
    keys = primary_keys_of(inspector, schema)
    unique = unique_columns(inspector, schema)
    return Reflected(
        schema,
        {name: columns_by_table[name] for name in the_users(columns_by_table)},
        keys,
        unique,
        _foreign_keys(connection, inspector, schema),
        doubts=doubts(connection, schema),
        left_out=_left_out(connection, schema),
    )


def _left_out(connection: Connection, schema: str | None) -> dict[str, str]:
    unpopulated = "a materialized view that is not populated; REFRESH MATERIALIZED VIEW fills it"
    why = {
        "of_extension": "a table of an extension, not of the application",
        "unpopulated": unpopulated,
        "unreadable": catalogue.UNREADABLE,
    }
    found = {row[0]: row[1] for row in connection.execute(_LEFT_OUT, {"schema": schema, **why})}
    return {name: found[name] for name in the_users(found)}


def columns(connection: Connection, schema: str | None) -> dict[str, list[Column]]:
    """Per table, view and foreign table, its columns in order, by real names; without partitions."""
    types = Types.of(connection, schema)
    alike = catalogue.on_postgresql(connection)
    by_table: dict[str, list[Column]] = {}
    for row in connection.execute(_COLUMNS, {"schema": schema}):
        column = Column(
            row.name,
            row.name,
            types.column_kind(row.type, row.modifier),
            row.nullable,
            row.declared,
            alike=types.alike(row.type) or alike.get(row.collation, ()),
            widest=row.widest,
            default=row.has_default,
            generated=row.computed,
            words=(
                f"@{row.number}",
                *types.words(row.type),
                *([f"= {row.expression}"] if row.expression else []),
            ),
            virtual=row.expression if row.virtual else "",
        )
        by_table.setdefault(row.table_name, []).append(column)
    return by_table


def _foreign_keys(
    connection: Connection, inspector: Inspector, schema: str | None
) -> dict[str, list[ReflectedForeignKeyConstraint]]:
    """Per table, its foreign keys; one that is NOT VALID is not proved."""
    proved = {row[:2]: row.proved for row in connection.execute(_FOREIGN_KEYS, {"schema": schema})}
    by_table = foreign_keys_of(inspector, schema)
    for table, keys in by_table.items():
        keys[:] = [key for key in keys if (table, key["name"]) in proved]
        for key in keys:
            key["options"]["proved"] = proved[table, key["name"]]
    return by_table


def unique_columns(inspector: Inspector, schema: str | None) -> dict[str, list[tuple[str, ...]]]:
    """Per table, the columns of each unique constraint or index of columns only that holds for every row."""
    by_table: dict[str, dict[tuple[str, ...], None]] = {}
    for (_, table), constraints in inspector.get_multi_unique_constraints(schema=schema).items():
        for constraint in constraints:
            by_table.setdefault(table, {})[tuple(constraint["column_names"])] = None
    for (_, table), indexes in inspector.get_multi_indexes(schema=schema, kind=ObjectKind.ANY).items():
        for columns in _of_whole_indexes(indexes):
            by_table.setdefault(table, {})[columns] = None
    return {table: list(columns) for table, columns in by_table.items()}


def _of_whole_indexes(indexes: Iterable[Any]) -> Iterable[tuple[str, ...]]:
    for index in indexes:
        partial = "postgresql_where" in index.get("dialect_options", {})
        if index["unique"] and not partial and not index.get("expressions"):
            yield tuple(index["column_names"])


def doubts(connection: Connection, schema: str | None) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Per table, unique columns in which two of its rows may still be equal, and why."""
    proven: set[tuple[str, frozenset[str]]] = set()
    doubted: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for row in connection.execute(_INDEXES, {"schema": schema}):
        if why := _why_not_unique(row):
            doubted.setdefault(row.table_name, []).append((tuple(row.names), why))
        else:
            proven.add((row.table_name, frozenset(row.names)))
    return {
        table: [(key, why) for key, why in keys if (table, frozenset(key)) not in proven]
        for table, keys in doubted.items()
    }


def _why_not_unique(index: sa.Row[Any]) -> str:
    if index.inherited:
        return "tables inherit from it, and their rows, which are read as its own, have keys of their own"
    if not index.valid:
        return "its unique index is INVALID (drop it and build it again)"
    return (
        "" if index.immediate else "its constraint is DEFERRABLE, and holds only when a transaction commits"
    )
