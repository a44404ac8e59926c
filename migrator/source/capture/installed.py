"""Triggers of ours that a source has, by its own catalogue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.source.capture import postgresql, sqlite
from migrator.source.capture.design import Ddl, Found
from migrator.source.capture.mysql import MysqlDdl
from migrator.source.capture.mysql import quoted as backticked

# Clones on partitions come and go with their parent's trigger.
_POSTGRESQL = sa.text(f"""
    SELECT n.nspname AS schema, c.relname AS name, t.tgname AS trigger, t.tgenabled AS enabled, p.proname AS function,
        p.prosrc || pg_catalog.pg_get_triggerdef(t.oid) AS text
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    JOIN pg_catalog.pg_namespace ours ON ours.oid = p.pronamespace AND ours.nspname = '{postgresql.SCHEMA}'
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT t.tgisinternal AND t.tgparentid = 0
    ORDER BY 1, 2, 3
""")
_FUNCTIONS = sa.text(f"""
    SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = '{postgresql.SCHEMA}' AND p.proname ~ '^capture_[0-9a-f_]+$' ORDER BY 1
""")
_PARTITIONS = sa.text("""
    SELECT n.nspname AS schema, c.relname AS name
    FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace s ON s.oid = p.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(p.oid) t
    JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE s.nspname = :schema AND p.relname = :table AND p.relkind = 'p' AND t.level > 0
    ORDER BY 1, 2
""")
_MYSQL = sa.text("""
    SELECT TRIGGER_SCHEMA AS `schema`, EVENT_OBJECT_TABLE AS name, TRIGGER_NAME AS `trigger`, ACTION_STATEMENT AS body
    FROM information_schema.TRIGGERS ORDER BY 1, 2, 3
""")
_SQLITE = sa.text(
    "SELECT tbl_name AS name, name AS trigger_name, sql AS text FROM sqlite_master WHERE type = 'trigger' ORDER BY 1, 2"
)
_OURS = re.compile(r"migrator_[0-9a-f]{8}_[a-z]+_([0-9a-f]{8})")
_ALWAYS = "A"


def found_triggers(connection: Connection, ddl: Ddl) -> list[Found]:
    """In the order of their tables."""
    readers: dict[str, Callable[[Connection, Ddl], Iterator[Found]]] = {
        "postgresql": _of_postgresql,
        "mysql": _of_mysql,
        "sqlite": _of_sqlite,
    }
    return list(readers[connection.dialect.name](connection, ddl))


def partitions(connection: Connection, schema: str, table: str) -> list[tuple[str, str]]:
    """(schema, name) of all partitions of a table of PostgreSQL's, those of partitions too."""
    found = connection.execute(_PARTITIONS, {"schema": schema, "table": table})
    return [(row.schema, row.name) for row in found]


def leftovers(connection: Connection) -> list[str]:
    """Statements that drop what triggers leave behind: PostgreSQL's functions, also those of dropped tables."""
    if connection.dialect.name != "postgresql":
        return []
    return [f"DROP FUNCTION {postgresql.SCHEMA}.{name}()" for name in connection.scalars(_FUNCTIONS)]


def has_tables(connection: Connection, ddl: Ddl) -> bool:
    """Whether capture was installed: its counter is there."""
    return _has(connection, "ticket")


def has_marks(connection: Connection, ddl: Ddl) -> bool:
    """Whether the marks' table is there; somebody may have dropped it alone."""
    return _has(connection, "mark")


def _has(connection: Connection, name: str) -> bool:
    looked = sa.inspect(connection)
    if connection.dialect.name == "postgresql":
        return looked.has_table(name, schema=postgresql.SCHEMA)
    return looked.has_table(f"migrator_{name}")


def _of_postgresql(connection: Connection, _: Ddl) -> Iterator[Found]:
    for row in connection.execute(_POSTGRESQL):
        table = f"{postgresql.quoted(row.schema)}.{postgresql.quoted(row.name)}"
        drop = f"DROP TRIGGER {postgresql.quoted(row.trigger)} ON {table}"
        digest = row.function.rpartition("_")[2]
        yield Found(
            f"{row.schema}.{row.name}", row.trigger, digest, row.enabled == _ALWAYS, (drop,), row.text
        )


def _of_mysql(connection: Connection, ddl: Ddl) -> Iterator[Found]:
    assert isinstance(ddl, MysqlDdl)
    for row in connection.execute(_MYSQL):
        ours = _OURS.fullmatch(row.trigger)
        # Another database of the server may have a capture of its own.
        if ours is None or f"INSERT INTO {ddl.mark} " not in row.body:
            continue
        table = row.name if row.schema == ddl.home else f"{row.schema}.{row.name}"
        drop = f"DROP TRIGGER {backticked(row.schema)}.{backticked(row.trigger)}"
        yield Found(table, row.trigger, ours[1], drop=(drop,), text=row.body)


def _of_sqlite(connection: Connection, _: Ddl) -> Iterator[Found]:
    for row in connection.execute(_SQLITE):
        if ours := _OURS.fullmatch(row.trigger_name):
            drop = f"DROP TRIGGER {sqlite.quoted(row.trigger_name)}"
            yield Found(row.name, row.trigger_name, ours[1], drop=(drop,), text=row.text)
