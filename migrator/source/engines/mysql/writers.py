"""Who writes to tables of MariaDB and MySQL: changes that they count, transactions that are open, rights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.source.engines.base import Changes, Open, Writers
from migrator.source.engines.servers import drops_unchecked, split

_COUNTED = sa.text(
    "SELECT COUNT_INSERT + COUNT_UPDATE + COUNT_DELETE FROM performance_schema.table_io_waits_summary_by_table"
    " WHERE OBJECT_TYPE = 'TABLE' AND OBJECT_SCHEMA = :schema AND OBJECT_NAME = :name"
)
# Table by table: only for names that it is given does the server not open all that there are.
_UPDATED = sa.text(
    "SELECT COALESCE(CAST(UPDATE_TIME AS CHAR), '-') FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = :schema AND TABLE_NAME = :name AND TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'"
)
_UNENDED = sa.text(
    "SELECT t.trx_id, COALESCE(p.USER, '') FROM information_schema.INNODB_TRX t"
    " LEFT JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id"
    " WHERE t.trx_rows_modified > 0 AND t.trx_mysql_thread_id <> CONNECTION_ID()"
)
_WRITING = "('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE')"
_RIGHTS = sa.text(
    "SELECT TABLE_SCHEMA, TABLE_NAME, GRANTEE, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES"
    f" WHERE PRIVILEGE_TYPE IN {_WRITING} ORDER BY 1, 2, 3, 4"
)
_DENIED = (1044, 1142, 1227)


def is_denied(error: DBAPIError) -> bool:
    """Whether the server refused what this user may not do."""
    return getattr(error.orig, "args", ("",))[0] in _DENIED


def _changes(connection: Connection, tables: Sequence[str]) -> Changes:
    counts = _may_count(connection)
    query, source = (_COUNTED, "performance_schema") if counts else (_UPDATED, "information_schema.TABLES")
    found = {}
    for name in tables:
        schema, table = split(connection, name)
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
        if not is_denied(error):
            raise
        return False
    return True


def _open(connection: Connection) -> Open:
    try:
        return {str(id_): ("", str(who)) for id_, who in connection.execute(_UNENDED)}, ""
    except DBAPIError as error:
        if not is_denied(error):
            raise
        return None, "the source's user may not see transactions of others; GRANT PROCESS ON *.* to it"


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    wanted = {split(connection, name) for name in tables}
    rights: dict[tuple[str, str], list[str]] = {}
    quote = connection.dialect.identifier_preparer.quote
    for schema, table, grantee, right in connection.execute(_RIGHTS):
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
        if not is_denied(error):
            raise
        return False
    return True


WRITERS = Writers(
    changes=_changes,
    open=_open,
    # Where the next number stands MariaDB and MySQL tell late; they count by table.
    marks_ever="",
    may_write=lambda *_: {},
    read_only=_read_only,
    drops=drops_unchecked("SET FOREIGN_KEY_CHECKS = 0", "SET FOREIGN_KEY_CHECKS = 1"),
)
