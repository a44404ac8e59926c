"""Who writes to tables of PostgreSQL: changes that it counts, open transactions, rights and how to take them away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.source.engines.base import Changes, Open, Writers
from migrator.source.engines.servers import split

NAMED = (
    "unnest(CAST(:schemas AS text[]), CAST(:names AS text[])) w (schema_name, table_name)"
    " JOIN pg_catalog.pg_namespace n ON n.nspname = CAST(w.schema_name AS name)"
    " JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = CAST(w.table_name AS name)"
)
"""Tables by their names (see `named`): a server that has thousands visits these alone."""

# PostgreSQL counts what a partition takes there alone, wherever it was written to. By the functions that the view
# pg_stat_user_tables is made of: joined to it, the server visits every table once for every table.
_STATISTICS = sa.text(
    "SELECT n.nspname, c.relname, SUM(pg_stat_get_tuples_inserted(t.id) + pg_stat_get_tuples_updated(t.id)"
    f" + pg_stat_get_tuples_deleted(t.id)) FROM {NAMED}"
    " CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t (id)"
    " WHERE c.relkind IN ('r', 'p') GROUP BY 1, 2"
)
_LOCKED = sa.text(
    "SELECT DISTINCT l.virtualtransaction, n.nspname, c.relname, COALESCE(s.usename || CASE s.application_name"
    " WHEN '' THEN '' ELSE ' (' || s.application_name || ')' END, x.owner || ' (prepared)', '')"
    " FROM pg_catalog.pg_locks l LEFT JOIN LATERAL pg_partition_ancestors(l.relation) a (id) ON true"
    " JOIN pg_catalog.pg_class c ON c.oid = COALESCE(a.id, l.relation)"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " LEFT JOIN pg_catalog.pg_stat_activity s ON s.pid = l.pid"
    " LEFT JOIN pg_catalog.pg_prepared_xacts x ON l.pid IS NULL AND l.virtualtransaction = '-1/' || x.transaction"
    " WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()"
    " AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"
    " AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
)
_WRITING = "('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')"
# information_schema shows a plain user its own rights alone; the catalogue may be read by all. Rights on columns go with
# those on their table, and those on a partition are its own. OFFSET 0: each is looked up, and not all read for each.
_RIGHTS = sa.text(
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
PUBLIC = "PUBLIC"
"""Everybody, as PostgreSQL says it."""


def _changes(connection: Connection, tables: Sequence[str]) -> Changes:
    rows = connection.execute(_STATISTICS, named(connection, tables))
    return {f"{schema}.{name}": str(count) for schema, name, count in rows}, "pg_stat_user_tables", ""


def _open(connection: Connection) -> Open:
    """Locks that a write takes and holds until its transaction ends, prepared ones too; anybody may see them."""
    rows = connection.execute(_LOCKED)
    return {
        f"{holder} {schema}.{name}": (f"{schema}.{name}", str(who)) for holder, schema, name, who in rows
    }, ""


def _may_write(connection: Connection, tables: Sequence[str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, set[str]] = {}
    for schema, table, _, _, role, *_ in connection.execute(_RIGHTS, named(connection, tables)):
        found.setdefault(f"{schema}.{table}", set()).add(PUBLIC if role is None else str(role))
    return {name: sorted(found[name]) for name in tables if name in found}


def named(connection: Connection, tables: Sequence[str]) -> dict[str, list[str]]:
    """The parameters of `NAMED`."""
    found = [split(connection, name) for name in dict.fromkeys(tables)]
    return {"schemas": [schema for schema, _ in found], "names": [table for _, table in found]}


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    rights: dict[tuple[str, str], list[str]] = {}
    granting = set()
    rows = connection.execute(_RIGHTS, named(connection, tables))
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


def _drops(names: Sequence[str]) -> list[str]:
    return [f"DROP TABLE {', '.join(names)}"] if names else []


WRITERS = Writers(
    changes=_changes,
    open=_open,
    marks_ever="SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('{mark}', 'id')::regclass), 0)",
    may_write=_may_write,
    read_only=_read_only,
    drops=_drops,
)
