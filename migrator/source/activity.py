"""What PostgreSQL, MariaDB, MySQL and SQLite count of changes, each in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.ports.activity import Looked
from migrator.source import grants
from migrator.source.capture.design import Ddl
from migrator.source.capture.writing import Writing

# PostgreSQL counts what a partition takes there alone, wherever it was written to. By the functions that the view
# pg_stat_user_tables is made of: joined to it, the server visits every table once for every table.
_STATISTICS = sa.text(
    "SELECT n.nspname, c.relname, SUM(pg_stat_get_tuples_inserted(t.id) + pg_stat_get_tuples_updated(t.id)"
    f" + pg_stat_get_tuples_deleted(t.id)) FROM {grants.NAMED}"
    " CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) t (id)"
    " WHERE c.relkind IN ('r', 'p') GROUP BY 1, 2"
)
_COUNTED = sa.text(
    "SELECT COUNT_INSERT + COUNT_UPDATE + COUNT_DELETE FROM performance_schema.table_io_waits_summary_by_table"
    " WHERE OBJECT_TYPE = 'TABLE' AND OBJECT_SCHEMA = :schema AND OBJECT_NAME = :name"
)
# Table by table: only for names that it is given does the server not open all that there are.
_UPDATED = sa.text(
    "SELECT COALESCE(CAST(UPDATE_TIME AS CHAR), '-') FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name AND TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'"
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
_UNENDED = sa.text(
    "SELECT t.trx_id, COALESCE(p.USER, '') FROM information_schema.INNODB_TRX t"
    " LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id"
    " WHERE t.trx_rows_modified > 0 AND t.trx_mysql_thread_id <> CONNECTION_ID()"
)
_DENIED = (1044, 1142, 1227)


class SqlActivity:
    """`writing`: connections to the source itself, never to a replica."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def look(self, tables: Sequence[str]) -> Looked:
        def work(connection: Connection) -> Looked:
            found, source, blind = _LOOKS[connection.dialect.name](connection, tables)
            whole = _marks_ever(connection, self._writing.ddl(connection))
            opened, unseen = _OPEN[connection.dialect.name](connection)
            ours = {id_: one for id_, one in (opened or {}).items() if not one[0] or one[0] in tables}
            counted = {name: found[name] for name in tables if name in found}
            return Looked(
                counted,
                whole,
                source,
                blind,
                None if opened is None else {id_: table for id_, (table, _) in ours.items()},
                unseen,
                who={id_: who for id_, (_, who) in ours.items() if who},
                may_write=grants.writers_of(connection, tables),
            )

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
            return grants.read_only_sql(connection, tables)

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


def _postgresql(connection: Connection, tables: Sequence[str]) -> Seen:
    rows = connection.execute(_STATISTICS, grants.named(connection, tables))
    return {f"{schema}.{name}": str(count) for schema, name, count in rows}, "pg_stat_user_tables", ""


def _mysql(connection: Connection, tables: Sequence[str]) -> Seen:
    counts = _may_count(connection)
    query, source = (_COUNTED, "performance_schema") if counts else (_UPDATED, "information_schema.TABLES")
    found = {}
    for name in tables:
        schema, table = grants.split(connection, name)
        count = connection.execute(query, {"schema": schema, "name": table}).scalar()
        if count is not None:
            found[name] = str(count)
    return found, source, ""


def _may_count(connection: Connection) -> bool:
    """Whether the server counts by table, and tells this user: a right on a table of its own does not go so far."""
    if not connection.exec_driver_sql("SELECT @@performance_schema").scalar_one():
        return False
    try:
        connection.execute(_COUNTED, {"schema": "", "name": ""})
    except DBAPIError as error:
        if getattr(error.orig, "args", ("",))[0] not in _DENIED:
            raise
        return False
    return True


def _sqlite(connection: Connection, tables: Sequence[str]) -> Seen:
    return {}, "marks", "SQLite counts no changes by table"


_LOOKS: Mapping[str, Callable[[Connection, Sequence[str]], Seen]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "sqlite": _sqlite,
}
Open = tuple[dict[str, tuple[str, str]] | None, str]
"""Table and user of each transaction; why they cannot be seen."""


def _open_postgresql(connection: Connection) -> Open:
    """Locks that a write takes and holds until its transaction ends, prepared ones too; anybody may see them."""
    rows = connection.execute(_LOCKED)
    return {
        f"{holder} {schema}.{name}": (f"{schema}.{name}", str(who)) for holder, schema, name, who in rows
    }, ""


def _open_mysql(connection: Connection) -> Open:
    try:
        return {str(id_): ("", str(who)) for id_, who in connection.execute(_UNENDED)}, ""
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


def _quoted(connection: Connection, name: str) -> str:
    schema, _, table = name.rpartition(".")
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(table)}" if schema else quote(table)
