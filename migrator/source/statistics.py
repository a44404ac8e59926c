"""How many rows a table must have by the catalogue's own statistics, which no policy and no condition of a view touches."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import TableFacts

FEW = 100
"""Statistics of fewer rows say nothing: what they count is late by as many."""

# Changes since the last ANALYZE may all have been deletes. Of a table that was emptied since, nothing is known (-1).
_POSTGRESQL = sa.text("""
    SELECT CAST(SUM(GREATEST(t.reltuples, 0)) AS bigint)
        - CAST(SUM(COALESCE(pg_stat_get_mod_since_analyze(t.oid), 0)) AS bigint)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) p (id)
    JOIN pg_catalog.pg_class t ON t.oid = p.id AND t.relkind = 'r'
    WHERE c.relkind IN ('r', 'p') AND n.nspname = COALESCE(:schema, current_schema()) AND c.relname = :name
""")
# Not of a versioned table, where rows that are history count.
_MARIADB = sa.text("""
    SELECT TABLE_ROWS FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'
        AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :name
""")


def rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A number of rows that the table has in all likelihood; None where the database has no statistics to go by.

    Of PostgreSQL three quarters of what the last ANALYZE found, less all changes since; of MariaDB, which samples
    some pages, a quarter of what it expects. SQLite keeps none, MySQL none younger than a day, a view has none.
    """
    if connection.dialect.name == "postgresql":
        return _part(connection, _POSTGRESQL, table, of=3, by=4)
    if getattr(connection.dialect, "is_mariadb", False):
        return _part(connection, _MARIADB, table, of=1, by=4)
    return None


def _part(
    connection: Connection, statement: sa.TextClause, table: TableFacts, *, of: int, by: int
) -> int | None:
    rows = connection.execute(statement, {"schema": table.schema, "name": table.real}).scalar()
    return None if rows is None or int(rows) < FEW else int(rows) * of // by
