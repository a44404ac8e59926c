"""What capture from the log needs of a PostgreSQL server, of its user and of each table: everything that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, columns_of
from migrator.source.capture.log.place import slot_named
from migrator.source.engines.postgresql.capture import quoted
from migrator.source.engines.postgresql.server import NAMED, named

OLDEST = 150_000
_OLDEST_THAT_FAILS_OVER = 170_000

_SERVER = """
    SELECT current_setting('server_version_num')::integer AS version, current_setting('wal_level') AS wal_level,
        current_setting('max_replication_slots')::integer AS slots, current_setting('max_wal_senders')::integer AS senders,
        (SELECT count(*) FROM pg_catalog.pg_replication_slots) AS slots_used,
        (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'walsender') AS senders_used,
        (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size') AS keep_mb,
        EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication') AS is_rds,
        quote_ident(current_user) AS who, quote_ident(current_database()) AS database, current_database() AS name,
        has_database_privilege(current_database(), 'CREATE') AS may_create,
        (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = current_user)
            OR EXISTS (SELECT FROM pg_catalog.pg_roles
                WHERE rolname = 'rds_replication' AND pg_catalog.pg_has_role(oid, 'MEMBER')) AS may_replicate
"""
_TABLES = sa.text(f"""
    SELECT n.nspname || '.' || c.relname AS name, pg_catalog.pg_has_role(c.relowner, 'USAGE') AS owned,
        CASE WHEN c.relkind = 'p' THEN leaf.oid::regclass::text ELSE '' END AS partition,
        leaf.relpersistence AS persistence, leaf.relreplident AS identity,
        quote_ident(ln.nspname) || '.' || quote_ident(leaf.relname) AS quoted,
        CASE leaf.relreplident
            WHEN 'd' THEN (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i
                JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum = ANY (i.indkey)
                WHERE i.indrelid = leaf.oid AND i.indisprimary)
            WHEN 'i' THEN (SELECT array_agg(a.attname::text) FROM pg_catalog.pg_index i
                JOIN pg_catalog.pg_attribute a ON a.attrelid = leaf.oid AND a.attnum = ANY (i.indkey)
                WHERE i.indrelid = leaf.oid AND i.indisreplident)
        END AS key
    FROM {NAMED}
    CROSS JOIN LATERAL (
        SELECT l.* FROM pg_catalog.pg_class l WHERE c.relkind <> 'p' AND l.oid = c.oid
        UNION ALL
        SELECT l.* FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class l ON l.oid = t.relid
        WHERE c.relkind = 'p' AND t.isleaf
    ) leaf
    JOIN pg_catalog.pg_namespace ln ON ln.oid = leaf.relnamespace
    WHERE c.relkind IN ('r', 'p') ORDER BY 1, 3
""")


def server_faults(connection: Connection, slot: str) -> Iterator[str]:
    """Why the log of this server cannot be captured by this user, each with what to do."""
    row = connection.exec_driver_sql(_SERVER).one()
    own = slot_named(connection, slot)
    if row.version < OLDEST:
        yield "capture from the log needs PostgreSQL 15 or newer; install without --from-log"
    if row.wal_level != "logical":
        yield (
            f"wal_level is {row.wal_level}, and the log has rows only at logical; ALTER SYSTEM SET wal_level = 'logical' and"
            " restart the server (RDS and Aurora: set rds.logical_replication = 1 in the parameter group, then reboot)"
        )
    if not row.may_replicate:
        right = f"GRANT rds_replication TO {row.who}" if row.is_rds else f"ALTER ROLE {row.who} REPLICATION"
        yield f"this user may not read the log; {right} (RDS and Aurora: GRANT rds_replication TO {row.who})"
    if not row.may_create:
        yield f"this user may not create a publication; GRANT CREATE ON DATABASE {row.database} TO {row.who}"
    if own is None and row.slots_used >= row.slots:
        yield (
            f"all {row.slots} replication slots are in use; raise max_replication_slots and restart, or drop an unused one"
            " (pg_replication_slots lists them)"
        )
    if (own is None or own.active_pid is None) and row.senders_used >= row.senders:
        yield f"all {row.senders} replication connections are in use; raise max_wal_senders and restart"
    if own is not None and (own.database, own.plugin) != (row.name, "pgoutput"):
        yield (
            f"the replication slot {slot} is of another database or plugin; give the job another name, or drop that slot"
        )


def server_limits(connection: Connection) -> Iterator[str]:
    """What a slot costs, and what it does not survive."""
    row = connection.exec_driver_sql(_SERVER).one()
    if row.keep_mb < 0:
        yield (
            "the server keeps all of its log while no relay reads it, until the disk is full: max_slot_wal_keep_size has no"
            " limit; set one, and an alert on the bytes that `migrator capture status` shows"
        )
    else:
        yield (
            f"a slot that is more than max_slot_wal_keep_size ({row.keep_mb:,} MB) behind is lost, and the relay stops:"
            " `migrator capture install` and `migrator verify --repair` are needed then"
        )
    if row.version < _OLDEST_THAT_FAILS_OVER:
        yield "the slot does not survive a fail-over before PostgreSQL 17; the relay stops then, with the same remedy"
    yield (
        "a published table must keep its replica identity: the server refuses UPDATE and DELETE of one that loses its"
        " primary key, and of a partition that is attached without one"
    )
    yield "DETACH, ATTACH and DROP of a partition are not in the log; run `migrator verify --repair` after them"


def table_faults(connection: Connection, tables: Sequence[Captured]) -> Iterator[str]:
    """Why a table's changes would not all be in the log, or its writes would be refused; with the owner's statements."""
    by_name = {table.name: table for table in tables}
    for row in connection.execute(_TABLES, named(connection, list(by_name))):
        captured = by_name[row.name]
        what = f"table {row.name}" + (f", partition {row.partition}" if row.partition else "")
        if not row.owned:
            yield f"table {row.name}: only its owner may publish it; connect as the owner"
        if row.persistence == "u":
            yield f"{what} is UNLOGGED, so the log has no change of it; ALTER TABLE {row.quoted} SET LOGGED"
            continue
        missing = _missing(row, captured)
        if row.identity != "f" and row.key is None:
            yield (
                f"{what} has no replica identity: once it is published, the server would refuse every UPDATE and DELETE of"
                f" it; its owner can run {_full(row.quoted)}"
            )
        elif missing:
            yield (
                f"{what}: its replica identity does not hold {', '.join(missing)}, which keys and links are made of, so the"
                f" log would not say which rows a change concerned; its owner can run {_full(row.quoted)}"
            )
    for table in tables:
        yield from _unreadable(table)


def unheld(connection: Connection, tables: Sequence[Captured]) -> dict[str, tuple[str, ...]]:
    """By table the columns of keys and links that its replica identity does not hold."""
    by_name = {table.name: table for table in tables}
    found: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(_TABLES, named(connection, list(by_name))):
        if missing := _missing(row, by_name[row.name]):
            found[row.name] = tuple(sorted({*found.get(row.name, ()), *missing}))
    return found


def _missing(row: sa.Row[Any], captured: Captured) -> list[str]:
    """Columns of keys and links that the row's replica identity does not hold."""
    if row.identity == "f":
        return []
    needed = {column.real for column in columns_of(captured, captured.columns)}
    return sorted(needed - set(row.key or ()))


def _full(quoted_name: str) -> str:
    return f"ALTER TABLE {quoted_name} REPLICA IDENTITY FULL (a short exclusive lock, and more log for each UPDATE)"


def _unreadable(table: Captured) -> Iterator[str]:
    for column in columns_of(table, table.columns):
        if column.generated:
            yield (
                f"table {table.name}: the log leaves out the generated column {quoted(column.real)}, which keys or links are"
                " made of; install without --from-log"
            )
        elif column.kind.name in ("list", "map"):
            yield (
                f"table {table.name}: keys or links are made of {quoted(column.real)}, an array or a composite, which the"
                " log writes in another form; install without --from-log"
            )
