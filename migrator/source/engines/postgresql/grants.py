"""Rights on PostgreSQL: what a role needs, whether it has it, and the GRANT that gives it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.source.engines.postgresql.capture import SCHEMA, quoted
from migrator.source.engines.postgresql.row_writing import SEQUENCES
from migrator.source.rights import WRITES, Grant, Granting, Place, SqlRole

_MOVES = ("SELECT", "UPDATE")
"""Rights on the sequence of a table that gets rows, which is moved past their keys."""
OWN = {"mark": (SCHEMA, "mark"), "ticket": (SCHEMA, "ticket")}

_HAS_LOG = f"""
    SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = '{SCHEMA}' AND c.relname = 'log')
"""
"""Whether capture reads the log (source/capture/log/)."""
_OWNERS = sa.text("""
    SELECT DISTINCT pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name
""")
_HAS = {
    "table": sa.text("""
        SELECT pg_catalog.has_table_privilege(c.oid, :right) FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name
    """),
    "sequence": sa.text("""
        SELECT pg_catalog.has_sequence_privilege(c.oid, :right) FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relname = :name
    """),
    "schema": sa.text(
        "SELECT pg_catalog.has_schema_privilege(oid, :right) FROM pg_catalog.pg_namespace WHERE nspname = :name"
    ),
    "database": sa.text("SELECT pg_catalog.has_database_privilege(:name, :right)"),
    "attribute": sa.text(
        "SELECT rolsuper OR rolreplication OR EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'"
        " AND pg_catalog.pg_has_role(oid, 'MEMBER')) FROM pg_catalog.pg_roles WHERE rolname = current_user"
    ),
    "owner": sa.text("SELECT pg_catalog.pg_has_role(oid, :right) FROM pg_catalog.pg_roles WHERE rolname = :name"),
}  # fmt: skip


def _needed(
    connection: Connection,
    role: SqlRole,
    read: Collection[Place],
    captured: Collection[Place],
    written: Collection[Place],
) -> Iterator[Grant]:
    database = str(connection.exec_driver_sql("SELECT current_database()").scalar_one())
    yield Grant("database", "", database, "CONNECT")
    if role.installs:
        yield Grant("database", "", database, "CREATE")
        owners = {
            owner for schema, name in captured for owner in connection.scalars(_OWNERS, _named(schema, name))
        }
        yield from (Grant("owner", "", str(owner), "MEMBER") for owner in owners)
    rights = [(*place, "SELECT") for place in read]
    for own, listed in ((OWN["ticket"], role.ticket), (OWN["mark"], role.mark)):
        rights += [(*own, right) for right in listed]
    if connection.exec_driver_sql(_HAS_LOG).scalar_one():
        rights += [(SCHEMA, "log", right) for right in (_MOVES if "DELETE" in role.mark else role.ticket[:1])]
        if role.installs or "DELETE" in role.mark:
            yield Grant("attribute", "", "", "REPLICATION")
    rights += [(*place, right) for place in written for right in WRITES]
    schemas = {schema for schema, _, _ in rights}
    if role.installs:
        schemas |= {schema for schema, _ in captured}
    for schema in schemas:
        yield Grant("schema", "", schema, "USAGE")
    if role.counts:
        yield Grant("sequence", SCHEMA, "mark_id_seq", "USAGE")
    for schema, name in written:
        for row in connection.execute(SEQUENCES, {"table": name, "schema": schema}):
            yield from (Grant("sequence", row.schema, row.name, right) for right in _MOVES)
    yield from (Grant("table", schema, name, right) for schema, name, right in rights)


def _missing(connection: Connection, grants: Sequence[Grant]) -> list[Grant]:
    return [grant for grant in grants if not connection.execute(_HAS[grant.kind], _asked(grant)).scalar()]


def _asked(grant: Grant) -> dict[str, str]:
    if grant.kind == "attribute":
        return {}
    named = {"name": grant.name, "right": grant.right}
    return {**named, "schema": grant.schema} if grant.schema else named


def _named(schema: str, name: str) -> dict[str, str]:
    return {"schema": schema, "name": name}


def _statement(grants: Sequence[Grant], user: str) -> str:
    first, to = grants[0], quoted(user)
    if first.kind == "attribute":
        return f"ALTER ROLE {to} REPLICATION"
    if first.kind == "owner":
        return f"GRANT {quoted(first.name)} TO {to}"
    on = f"{quoted(first.schema)}.{quoted(first.name)}" if first.schema else quoted(first.name)
    return f"GRANT {', '.join(grant.right for grant in grants)} ON {first.kind.upper()} {on} TO {to}"


GRANTING = Granting(_needed, _missing, _statement)
