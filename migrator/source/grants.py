"""Who may write to tables of the source, by its own catalogue, and the SQL that takes the right away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

NAMED = (
    "unnest(CAST(:schemas AS text[]), CAST(:names AS text[])) w (schema_name, table_name)"
    " JOIN pg_catalog.pg_namespace n ON n.nspname = CAST(w.schema_name AS name)"
    " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = CAST(w.table_name AS name)"
)
"""Tables by their names (see `named`): a server that has thousands visits these alone."""
_WRITING = "('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')"
# information_schema shows a plain user its own rights alone; the catalogue may be read by all. Rights on columns go with
# those on their table, and those on a partition are its own. OFFSET 0: each is looked up, and not all read for each.
_POSTGRESQL = sa.text(
    "SELECT n.nspname, c.relname, tn.nspname, tc.relname, r.rolname, a.privilege_type, bool_or(a.is_grantable)"
    f" FROM {NAMED}"
    " CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t (id)"
    " CROSS JOIN LATERAL (SELECT * FROM pg_catalog.pg_class WHERE oid = t.id OFFSET 0) tc"
    " JOIN pg_catalog.pg_namespace tn ON tn.oid = tc.relnamespace"
    " CROSS JOIN LATERAL (SELECT * FROM aclexplode(COALESCE(tc.relacl, acldefault('r', tc.relowner)))"
    " UNION ALL SELECT x.* FROM pg_catalog.pg_attribute f, aclexplode(f.attacl) x"
    " WHERE f.attrelid = tc.oid AND NOT f.attisdropped) a"
    " LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee"
    " WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"
    f" AND a.privilege_type IN {_WRITING} AND (a.grantee = 0 OR r.oid IS NOT NULL)"
    " GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6"
)
_ABOVE = sa.text(
    "SELECT rolname FROM pg_catalog.pg_roles"
    " WHERE rolcanlogin AND pg_has_role(oid, 'pg_write_all_data', 'MEMBER') ORDER BY 1"
)
_MYSQL = sa.text(
    "SELECT TABLE_SCHEMA, TABLE_NAME, GRANTEE, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES"
    f" WHERE PRIVILEGE_TYPE IN {_WRITING} ORDER BY 1, 2, 3, 4"
)
_DENIED = (1044, 1142, 1227)
PUBLIC = "PUBLIC"
"""Everybody, as PostgreSQL says it."""


def writers_of(connection: Connection, tables: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Roles that may write, by table; nothing of an engine that does not tell it to everybody."""
    if connection.dialect.name != "postgresql":
        return {}
    found: dict[str, set[str]] = {}
    for schema, table, _, _, role, *_ in connection.execute(_POSTGRESQL, named(connection, tables)):
        found.setdefault(f"{schema}.{table}", set()).add(PUBLIC if role is None else str(role))
    return {name: sorted(found[name]) for name in tables if name in found}


def read_only_sql(connection: Connection, tables: Sequence[str]) -> list[str]:
    """Statements that take the right to write away from everybody who has it; what cannot be told is a comment."""
    return list(_SQL[connection.dialect.name](connection, tables))


def named(connection: Connection, tables: Sequence[str]) -> dict[str, list[str]]:
    """The parameters of `NAMED`."""
    found = [split(connection, name) for name in dict.fromkeys(tables)]
    return {"schemas": [schema for schema, _ in found], "names": [table for _, table in found]}


def split(connection: Connection, name: str) -> tuple[str, str]:
    """Schema and table; the default schema where the name has none."""
    schema, _, table = name.rpartition(".")
    return schema or str(sa.inspect(connection).default_schema_name), table


def _postgresql(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    rights: dict[tuple[str, str], list[str]] = {}
    granting = set()
    rows = connection.execute(_POSTGRESQL, named(connection, tables))
    for _, _, own_schema, own, role, right, is_grantable in rows:
        key = (f"{quote(own_schema)}.{quote(own)}", PUBLIC if role is None else quote(str(role)))
        if right not in rights.setdefault(key, []):
            rights[key].append(str(right))
        if is_grantable:
            granting.add(key)
    for key, granted in rights.items():
        # Who may grant it on may have done so; the owner's REVOKE does not reach those by itself.
        yield f"REVOKE {', '.join(granted)} ON {key[0]} FROM {key[1]}{' CASCADE' if key in granting else ''}"
    if above := [" ".join(str(name).split()) for (name,) in connection.execute(_ABOVE)]:
        yield f"-- superusers and members of pg_write_all_data may write all the same: {', '.join(above)}"


def _mysql(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    wanted = {split(connection, name) for name in tables}
    rights: dict[tuple[str, str], list[str]] = {}
    quote = connection.dialect.identifier_preparer.quote
    for schema, table, grantee, right in connection.execute(_MYSQL):
        if (schema, table) in wanted:
            rights.setdefault((f"{quote(schema)}.{quote(table)}", str(grantee)), []).append(str(right))
    for (table, grantee), granted in rights.items():
        yield f"REVOKE {', '.join(granted)} ON {table} FROM {grantee}"
    if not _sees_all(connection):
        what = "-- the source's user is shown its own rights alone: who else may write is not known here"
        yield f"{what}; ask a user that may SELECT from mysql.*"
    yield "-- rights on whole schemas or servers (SHOW GRANTS) are to be taken away, too"


def _sees_all(connection: Connection) -> bool:
    """Whether information_schema shows this user the rights of others."""
    try:
        connection.exec_driver_sql("SELECT 1 FROM mysql.tables_priv LIMIT 0")
    except DBAPIError as error:
        if getattr(error.orig, "args", ("",))[0] not in _DENIED:
            raise
        return False
    return True


def _sqlite(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    yield "-- SQLite has no users: take the right to write from the file (chmod a-w), once nothing of ours writes"


_SQL = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite}
