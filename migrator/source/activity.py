"""ports.activity.Activity by SQL: what PostgreSQL, MariaDB, MySQL and SQLite count of changes, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.ports.activity import Looked
from migrator.source.capture.design import Ddl
from migrator.source.capture.writing import Writing

_STATISTICS = sa.text(
    "SELECT schemaname, relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_catalog.pg_stat_user_tables"
)
_COUNTED = sa.text(
    "SELECT OBJECT_SCHEMA, OBJECT_NAME, COUNT_INSERT + COUNT_UPDATE + COUNT_DELETE"
    " FROM performance_schema.table_io_waits_summary_by_table WHERE OBJECT_SCHEMA NOT IN ('mysql', 'performance_schema')"
)
_UPDATED = sa.text(
    "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(CAST(UPDATE_TIME AS CHAR), '-') FROM information_schema.TABLES"
    " WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'"
)
_LOCKED = sa.text(
    "SELECT DISTINCT l.virtualtransaction, n.nspname, c.relname FROM pg_catalog.pg_locks l"
    " JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()"
    " AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())"
    " AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')"
)
_UNENDED = sa.text(
    "SELECT trx_id FROM information_schema.INNODB_TRX WHERE trx_rows_modified > 0 AND trx_mysql_thread_id <> CONNECTION_ID()"
)
_DENIED = (1044, 1142, 1227)
_GRANTED = {
    "postgresql": sa.text(
        "SELECT table_schema, table_name, grantee, privilege_type FROM information_schema.role_table_grants"
        " WHERE privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') ORDER BY 1, 2, 3, 4"
    ),
    "mysql": sa.text(
        "SELECT TABLE_SCHEMA, TABLE_NAME, GRANTEE, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES"
        " WHERE PRIVILEGE_TYPE IN ('INSERT', 'UPDATE', 'DELETE') ORDER BY 1, 2, 3, 4"
    ),
}


class SqlActivity:
    """`writing`: connections to the source itself, never to a replica."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def look(self, tables: Sequence[str]) -> Looked:
        def work(connection: Connection) -> Looked:
            found, source, blind = _LOOKS[connection.dialect.name](connection)
            whole = _marks_ever(connection, self._writing.ddl(connection))
            written, unseen = _OPEN[connection.dialect.name](connection)
            if written is not None:
                written = {id_: table for id_, table in written.items() if not table or table in tables}
            counted = {name: found[name] for name in tables if name in found}
            return Looked(counted, whole, source, blind, written, unseen)

        return self._writing.read("looking at changes", work)

    def views(self) -> set[str]:
        def work(connection: Connection) -> set[str]:
            inspector = sa.inspect(connection)
            has_both = connection.dialect.name == "postgresql"
            return {
                *inspector.get_view_names(),
                *(inspector.get_materialized_view_names() if has_both else ()),
            }

        return self._writing.read("listing views", work)

    def waiting(self) -> Mapping[str, int]:
        def work(connection: Connection, ddl: Ddl) -> dict[str, int]:
            query = f"SELECT table_name, COUNT(*) FROM {ddl.mark} GROUP BY table_name"
            return {str(name or ""): int(count) for name, count in connection.exec_driver_sql(query)}

        return self._writing.write("counting marks", work)

    def read_only_sql(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            dialect = connection.dialect.name
            if dialect == "sqlite":
                return [
                    "-- SQLite has no users: take the right to write from the file (chmod a-w), once nothing of ours writes"
                ]
            wanted = {_split(connection, name): _quoted(connection, name) for name in tables}
            rights: dict[tuple[str, str], list[str]] = {}
            for schema, table, grantee, right in connection.execute(_GRANTED[dialect]):
                if (schema, table) in wanted:
                    who = str(grantee) if dialect == "mysql" else _grantee(connection, str(grantee))
                    rights.setdefault((wanted[schema, table], who), []).append(str(right))
            found = [
                f"REVOKE {', '.join(granted)} ON {table} FROM {who}"
                for (table, who), granted in rights.items()
            ]
            if dialect == "mysql":
                found.append("-- rights on whole schemas or servers (SHOW GRANTS) are to be taken away, too")
            return found

        return self._writing.read("reading grants", work)

    def drop_sql(self, tables: Sequence[str]) -> list[str]:
        def work(connection: Connection) -> list[str]:
            names = [_quoted(connection, name) for name in tables]
            if connection.dialect.name == "postgresql":
                return [f"DROP TABLE {', '.join(names)}"] if names else []
            off, on = _UNCHECKED[connection.dialect.name]
            return [off, *(f"DROP TABLE {name}" for name in names), on]

        return self._writing.read("naming tables", work)


_UNCHECKED = {
    "mysql": ("SET FOREIGN_KEY_CHECKS = 0", "SET FOREIGN_KEY_CHECKS = 1"),
    "sqlite": ("PRAGMA foreign_keys = OFF", "PRAGMA foreign_keys = ON"),
}
Seen = tuple[dict[str, str], str, str]


def _postgresql(connection: Connection) -> Seen:
    rows = connection.execute(_STATISTICS)
    return {f"{schema}.{name}": str(count) for schema, name, count in rows}, "pg_stat_user_tables", ""


def _mysql(connection: Connection) -> Seen:
    own = str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one())
    enabled = connection.exec_driver_sql("SELECT @@performance_schema").scalar_one()
    query, source = (_COUNTED, "performance_schema") if enabled else (_UPDATED, "information_schema.TABLES")
    found = {}
    for schema, name, count in connection.execute(query):
        found[f"{schema}.{name}"] = str(count)
        if schema == own:
            found[str(name)] = str(count)
    return found, source, ""


def _sqlite(connection: Connection) -> Seen:
    return {}, "marks", "SQLite counts no changes by table"


_LOOKS: Mapping[str, Callable[[Connection], Seen]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
}
Open = tuple[dict[str, str] | None, str]


def _open_postgresql(connection: Connection) -> Open:
    """Locks that a write takes and holds until its transaction ends, prepared ones too; anybody may see them."""
    rows = connection.execute(_LOCKED)
    return {f"{holder} {schema}.{name}": f"{schema}.{name}" for holder, schema, name in rows}, ""


def _open_mysql(connection: Connection) -> Open:
    try:
        return {str(id_): "" for (id_,) in connection.execute(_UNENDED)}, ""
    except DBAPIError as error:
        if getattr(error.orig, "args", ("",))[0] not in _DENIED:
            raise
        return None, "the source's user may not see transactions of others; GRANT PROCESS ON *.* to it"


def _open_sqlite(connection: Connection) -> Open:
    """This look is a transaction that writes itself: SQLite allows no other one meanwhile."""
    return {}, ""


_OPEN: Mapping[str, Callable[[Connection], Open]] = {
    "postgresql": _open_postgresql,
    "mysql": _open_mysql,
    "sqlite": _open_sqlite,
}
_EVER = {
    "postgresql": "SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('{mark}', 'id')::regclass), 0)",
    # Where the next number stands MariaDB and MySQL tell late; they count by table.
    "mysql": "",
    "sqlite": "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = '{mark}'), 0)",
}


def _marks_ever(connection: Connection, ddl: Ddl) -> int | None:
    """A number that grows with every mark that is left; None where nothing is captured."""
    inspector, query = sa.inspect(connection), _EVER[connection.dialect.name]
    schema, _, name = ddl.mark.replace('"', "").replace("`", "").rpartition(".")
    if not query or not inspector.has_table(name, schema or None):
        return None
    return int(connection.exec_driver_sql(query.format(mark=ddl.mark)).scalar_one() or 0)


def _split(connection: Connection, name: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema or str(sa.inspect(connection).default_schema_name), table


def _quoted(connection: Connection, name: str) -> str:
    schema, _, table = name.rpartition(".")
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(table)}" if schema else quote(table)


def _grantee(connection: Connection, name: str) -> str:
    return name if name == "PUBLIC" else connection.dialect.identifier_preparer.quote(name)
