"""Capture on PostgreSQL, by its catalogue: triggers of ours, tables that cannot be captured, images as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.changes import Captured
from migrator.source.capture.design import Found, Trigger
from migrator.source.capture.postgresql import SCHEMA, PostgresqlDdl, quoted
from migrator.source.engines.base import VIEW_ADVICE, Capturing, Decode, Refusal
from migrator.source.engines.postgresql.writers import NAMED, named

# Clones on partitions come and go with their parent's trigger.
_TRIGGERS = sa.text(f"""
    SELECT n.nspname AS schema, c.relname AS name, t.tgname AS trigger, t.tgenabled AS enabled, p.proname AS function,
        p.prosrc || pg_catalog.pg_get_triggerdef(t.oid) AS text
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
    JOIN pg_catalog.pg_namespace ours ON ours.oid = p.pronamespace AND ours.nspname = '{SCHEMA}'
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT t.tgisinternal AND t.tgparentid = 0
    ORDER BY 1, 2, 3
""")
_FUNCTIONS = sa.text(f"""
    SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = '{SCHEMA}' AND p.proname ~ '^capture_[0-9a-f_]+$' ORDER BY 1
""")
_PARTITIONS = sa.text("""
    SELECT n.nspname AS schema, c.relname AS name
    FROM pg_catalog.pg_class p JOIN pg_catalog.pg_namespace s ON s.oid = p.relnamespace
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(p.oid) t
    JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE s.nspname = :schema AND p.relname = :table AND p.relkind = 'p' AND t.level > 0
    ORDER BY 1, 2
""")
_TABLES = sa.text(f"""
    SELECT n.nspname || '.' || c.relname AS name, c.relkind AS kind,
        pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
        EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_heirs
    FROM {NAMED} WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
""")
_VIEWS = sa.text("""
    SELECT n.nspname || '.' || c.relname AS name
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('v', 'm', 'f')
""")
_RIGHTS = sa.text("""
    SELECT CASE WHEN pg_catalog.to_regnamespace(:schema) IS NULL
        THEN pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
        ELSE pg_catalog.has_schema_privilege(:schema, 'CREATE') END
""")
_WHERE_AND_WHO = "SELECT quote_ident(current_database()), quote_ident(current_user)"
_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
_ALWAYS = "A"

# ── triggers of ours ──


def _found(connection: Connection, _: PostgresqlDdl) -> Iterator[Found]:
    for row in connection.execute(_TRIGGERS):
        table = f"{quoted(row.schema)}.{quoted(row.name)}"
        drop = f"DROP TRIGGER {quoted(row.trigger)} ON {table}"
        digest = row.function.rpartition("_")[2]
        yield Found(
            f"{row.schema}.{row.name}", row.trigger, digest, row.enabled == _ALWAYS, (drop,), row.text
        )


def _of_partitions(
    connection: Connection, tables: Sequence[Captured], ddl: PostgresqlDdl
) -> Iterator[Trigger]:
    for one in tables:
        asked = {"schema": one.table.schema or "", "table": one.table.real}
        for row in connection.execute(_PARTITIONS, asked):
            yield ddl.of_partition(one, row.schema, row.name)


def _leftovers(connection: Connection) -> list[str]:
    """Functions, also those of dropped tables."""
    return [f"DROP FUNCTION {SCHEMA}.{name}()" for name in connection.scalars(_FUNCTIONS)]


# ── what cannot be captured ──


def _refusals(connection: Connection, _: PostgresqlDdl, tables: Sequence[Captured]) -> Iterator[Refusal]:
    asked = named(connection, [one.name for one in tables])
    known = {row.name: row for row in connection.execute(_TABLES, asked)}
    if not connection.execute(_RIGHTS, {"schema": SCHEMA}).scalar_one():
        what = f"this user may not make tables in a schema {SCHEMA}"
        database, user = connection.exec_driver_sql(_WHERE_AND_WHO).one()
        yield Refusal(
            f"{what}; GRANT CREATE ON DATABASE {database} TO {user},"
            f" or CREATE SCHEMA {SCHEMA} AUTHORIZATION {user}"
        )
    for one in tables:
        row = known.get(one.name)
        if row is None:
            yield Refusal(f"table {one.name} is gone; pull the schema again")
        elif row.kind in _KINDS:
            yield Refusal(f"{one.name} is {_KINDS[row.kind]}, which has no triggers; {VIEW_ADVICE}")
        elif row.kind == "r" and row.has_heirs:
            what = "has tables that inherit from it, whose changes leave no mark of it"
            yield Refusal(
                f"table {one.name} {what}; partition it, or migrate the heirs as tables of their own"
            )
        elif not row.owned:
            yield Refusal(
                f"table {one.name}: only its owner may make its triggers fire always; connect as the owner",
                triggers_only=True,
            )


# ── images: the type's oid, then its output; read by the connection's own loaders ──


def _decode(connection: Connection, domains: dict[int, int]) -> Decode:
    import psycopg
    from psycopg.adapt import Transformer
    from psycopg.pq import Format

    driver: Any = connection.connection.driver_connection

    def decode(word: str, text: str) -> Any:
        loads = Transformer(driver)
        loads.set_loader_types([_base_type(connection, int(word), domains)], Format.TEXT)
        try:
            return loads.load_sequence([text.encode()])[0]
        except psycopg.DataError:
            return text

    return decode


_LAST = 2**32 - 1
_FIRST_OF_USERS = 16_384
"""Below are PostgreSQL's own types. Source: PostgreSQL, src/include/access/transam.h, FirstNormalObjectId."""


def _base_type(connection: Connection, oid: int, known: dict[int, int]) -> int:
    """The type that the server names when it sends the value: a domain's base. A type that is gone is text."""
    if oid < _FIRST_OF_USERS:
        return oid
    if oid > _LAST:
        raise ValueError("no oid is as large as that")
    if oid not in known:
        asked = "SELECT typbasetype FROM pg_catalog.pg_type WHERE oid = %s AND typtype = 'd'"
        base = connection.exec_driver_sql(asked, (oid,)).scalar()
        known[oid] = oid if base is None else _base_type(connection, int(base), known)
    return known[oid]


CAPTURING = Capturing(
    ddl=lambda _: PostgresqlDdl(),
    schema=SCHEMA,
    prefix="",
    found=_found,
    more_triggers=_of_partitions,
    leftovers=_leftovers,
    refusals=_refusals,
    views=lambda connection, _: set(connection.scalars(_VIEWS)),
    limits=(),
    decode=_decode,
    locks_rows=" FOR UPDATE SKIP LOCKED",
)
