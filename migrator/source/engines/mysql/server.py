"""MariaDB and MySQL: connections, errors, server facts, query plans, replicas, and writers of its tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.mapping.model.facts import Column, TableFacts
from migrator.mapping.model.live import RefusalKind
from migrator.runtime.server_errors import mysql_number
from migrator.settings.roles import WRITES, SqlRole
from migrator.source.engines import base, shared
from migrator.source.engines.mysql.facts import QUERIES, RECORDED, literal, quoted

# ── Facts about MariaDB and MySQL servers: plans, statistics, replicas ──

# ── plans ──


def _plan(names: Sequence[str], rows: Sequence[base.Row], page_rows: int) -> base.Plan:
    lines, whole = [], []
    for row in rows:
        named = dict(zip(names, row, strict=True))
        lines.append(", ".join(f"{name}={value}" for name, value in named.items() if value is not None))
        derived = str(named["table"]).startswith("<")
        if named["type"] == "ALL" and not derived and int(named["rows"] or 0) > page_rows:
            whole.append(str(named["table"]))
    return lines, whole


def _expected(names: Sequence[str], rows: Sequence[base.Row]) -> int | None:
    return max(int(dict(zip(names, row, strict=True))["rows"] or 0) for row in rows)


def _explain(dialect: sa.Dialect) -> str:
    """EXPLAIN as a table: MySQL would otherwise follow explain_format, which is a tree in 9.7."""
    return "EXPLAIN PARTITIONS" if getattr(dialect, "is_mariadb", False) else "EXPLAIN FORMAT = TRADITIONAL"


# ── statistics ──


def _rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A quarter of MariaDB's estimate, which samples some pages; None for MySQL, whose figure may be a day old."""
    if getattr(connection.dialect, "is_mariadb", False):
        return shared.part_of(connection, QUERIES["mariadb_rows"], table, of=1, by=4)
    return None


# ── replicas ──

_MARIADB_SERVER = "CONCAT_WS('/', @@hostname, @@port, @@server_id, @@datadir)"
_MARIADB_MARK = f"SELECT '', {_MARIADB_SERVER}, DATABASE(), @@GLOBAL.gtid_current_pos"
_GTID_READ_ONLY = "CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF') OR @@GLOBAL.innodb_read_only"
"""The second setting is an Aurora reader's. Source: AWS Knowledge Center, read-only errors after an Aurora fail-over."""
_MARIADB_STATE = (
    f"SELECT {_MARIADB_SERVER}, DATABASE(), MASTER_GTID_WAIT(:position, 0) = 0, {_GTID_READ_ONLY}"
)
_MYSQL_MARK = "SELECT '', @@server_uuid, DATABASE(), @@GLOBAL.gtid_executed"
_MYSQL_STATE = (
    f"SELECT @@server_uuid, DATABASE(), GTID_SUBSET(:position, @@GLOBAL.gtid_executed), {_GTID_READ_ONLY}"
)


def _gtid_verdict(state: str) -> Callable[[base.Mark, base.Ask], base.Verdict]:
    """A server that does not replicate from the primary never gets its GTIDs, and stays "behind"."""

    def verdict(mark: base.Mark, ask: base.Ask) -> base.Verdict:
        server, database, replayed, read_only = ask(state, {"position": mark.position})
        if database != mark.database:
            raise base.no_replica("this is another database")
        if server == mark.server:
            return "ready"
        if not read_only:
            raise base.no_replica("this server takes writes of its own (read_only is off)")
        if not mark.position:
            raise base.no_replica(
                "url's server writes no binary log with GTIDs, so it cannot be told how far this one is"
            )
        return "ready" if replayed else "behind"

    return verdict


def replication(dialect: sa.Dialect) -> base.Replication:
    return _OF_MARIADB if getattr(dialect, "is_mariadb", False) else _OF_MYSQL


_OF_MARIADB = base.Replication(
    base.mark_by(_MARIADB_MARK), f"SELECT {_MARIADB_SERVER}", _gtid_verdict(_MARIADB_STATE)
)
_OF_MYSQL = base.Replication(base.mark_by(_MYSQL_MARK), "SELECT @@server_uuid", _gtid_verdict(_MYSQL_STATE))


def is_mariadb(version: str) -> bool:
    return "mariadb" in version.lower()


SERVER = base.Server(
    # MariaDB and MySQL have different names for the time-out, and asking for the wrong one is an error.
    health="SELECT VERSION(), UNIX_TIMESTAMP(), @@read_only, ''",
    product=lambda version: version if is_mariadb(version) else f"MySQL {version}",
    session=sa.text("SELECT CONNECTION_ID()"),
    sends_to_the_end=True,
    rows_at_least=_rows_at_least,
    explain=_explain,
    plan=_plan,
    expected=_expected,
    replication=replication,
    hides_rows=False,
    recorded=RECORDED,
    strains={"load": shared.MYSQL_AT_WORK},
    strains_need="GRANT PROCESS ON *.* TO the user of the source",
)


# ── Writers of tables of MariaDB and MySQL: counted changes, open transactions, rights ──

_DENIED = (1044, 1142, 1227)


def is_denied(error: DBAPIError) -> bool:
    return getattr(error.orig, "args", ("",))[0] in _DENIED


Result = TypeVar("Result")


def _unless_denied(execute: Callable[[], Result]) -> Result | None:
    try:
        return execute()
    except DBAPIError as error:
        if not is_denied(error):
            raise
        return None


def _changes(connection: Connection, tables: Sequence[str]) -> base.Changes:
    named, source = ("counted_changes", "performance_schema")
    if not _may_count(connection):
        named, source = ("update_time", "information_schema.TABLES")
    per_table, inspector = {}, sa.inspect(connection)
    for name in tables:
        schema, table = shared.split(inspector, name)
        count = connection.execute(QUERIES[named], {"schema": schema, "name": table}).scalar()
        if count is not None:
            per_table[name] = str(count)
    return per_table, source, ""


def _may_count(connection: Connection) -> bool:
    if not connection.exec_driver_sql("SELECT @@performance_schema").scalar_one():
        return False
    trial = {"schema": "", "name": ""}
    return _unless_denied(lambda: connection.execute(QUERIES["counted_changes"], trial)) is not None


def _open(connection: Connection) -> base.Open:
    rows = _unless_denied(lambda: connection.execute(QUERIES["open_transactions"]))
    if rows is None:
        return None, "the source's user may not see transactions of others; GRANT PROCESS ON *.* to it"
    return {str(id_): ("", str(who)) for id_, who in rows}, ""


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    inspector = sa.inspect(connection)
    split_names = {shared.split(inspector, name) for name in tables}
    rights: dict[tuple[str, str], list[str]] = {}
    for schema, table, grantee, right in connection.execute(QUERIES["rights_to_write"]):
        if (schema, table) in split_names:
            place = shared.shown(connection, schema, table, quote="`")
            rights.setdefault((place, str(grantee)), []).append(str(right))
    for (table, grantee), granted in rights.items():
        yield f"REVOKE {', '.join(granted)} ON {table} FROM {grantee}"
    if not _sees_all(connection):
        what = "-- the source's user is shown its own rights alone: which others may write is not known here"
        yield f"{what}; use a user that may SELECT from mysql.*"
    yield "-- rights on whole schemas or servers (SHOW GRANTS) must also be revoked"


def _sees_all(connection: Connection) -> bool:
    trial = "SELECT 1 FROM mysql.tables_priv LIMIT 0"
    return _unless_denied(lambda: connection.exec_driver_sql(trial)) is not None


WRITERS = base.Writers(
    changes=_changes,
    open=_open,
    # MariaDB and MySQL report the next auto-increment number late; they count by table instead.
    marks_ever="",
    may_write=lambda *_: {},
    read_only=_read_only,
    drops=shared.drops_unchecked("SET FOREIGN_KEY_CHECKS = 0", "SET FOREIGN_KEY_CHECKS = 1"),
)


# ── Explanations of errors of MariaDB, MySQL and PyMySQL ──

_CANNOT_CONNECT = frozenset({2002, 2003, 2005, 2012, 2026})


def _reasons(cause: BaseException) -> Iterator[str]:
    if number := mysql_number(cause):
        # A server of another kind may wait for our first word: that is no connection that broke.
        is_silent = number == 2013 and "timed out" in str(cause)
        if not is_silent and (reason := shared.explanations("mysql").get(str(number))):
            yield reason
        yield from shared.by_sqlstate(cause)


ERRORS = base.Errors(_reasons, lambda cause: mysql_number(cause) in _CANNOT_CONNECT, lambda _: None)


# ── Rows written into MariaDB and MySQL: values in the form of the column, refusals by the server's numbers ──


def _prepare(connection: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = CONCAT(@@SESSION.sql_mode, ',NO_AUTO_VALUE_ON_ZERO')")
        cursor.execute("SET @migrator_reverse = DATABASE()")


def _bound(column: Column, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, bytes)):
        return value
    base.refuse_inexact(column, value)
    base.refuse_longer(column, value)
    name = column.kind.name
    if name == "bits":
        return int(value, 2)
    if name == "set":
        return ",".join(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        # The session's zone is UTC; MariaDB takes no offset in a moment.
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    if name == "float":
        # The greatest FLOAT, as short as it is written, is out of its own range.
        return base.single(value) if column.kind.single else float(value)
    return base.as_text(column.kind, value)


_BY_NUMBER: dict[int, RefusalKind] = {
    **dict.fromkeys((1216, 1217, 1451, 1452), "foreign key"),
    **dict.fromkeys((1062, 1169, 1586), "unique"),
    **dict.fromkeys((1048, 1364), "not null"),
    **dict.fromkeys((1264, 1265, 1292, 1366, 1406, 1411, 1690, 3140, 3819, 4025), "value"),
    1644: "trigger",
}
"""Source: MariaDB Knowledge Base, "MariaDB Error Code Reference"; MySQL Reference Manual, "Server Error Messages"."""


def _move_counters(connection: Connection, table: TableFacts) -> None:
    """Move MariaDB's sequences: SETVAL only moves up. InnoDB moves AUTO_INCREMENT past each inserted number."""
    quote = connection.dialect.identifier_preparer.quote_identifier
    place = quote(table.real) if table.schema is None else f"{quote(table.schema)}.{quote(table.real)}"
    named_in = {"table": table.real, "schema": table.schema}
    for name, default in connection.execute(QUERIES["sequences"], named_in).all():
        highest = connection.exec_driver_sql(f"SELECT max({quote(name)}) FROM {place}").scalar()
        if isinstance(highest, (int, Decimal)):
            sequence = default[len("nextval(") : -1]
            connection.exec_driver_sql(f"SELECT SETVAL({sequence}, {int(highest)}, 1)")


ROWS = base.RowWriting(
    prepare=_prepare,
    begin=lambda _: None,
    end=lambda _: None,
    bound=_bound,
    upserts=False,
    defer="",
    overriding="",
    locks=" FOR UPDATE",
    refusal=lambda error: _BY_NUMBER.get(mysql_number(error)),
    move_counters=_move_counters,
    unchanging=lambda *_: frozenset(),
)


# ── Rights on MariaDB and MySQL: needed ones, missing ones, and their GRANT ──

_SEQUENCE = re.compile(
    r"""nextval\((?P<quote>[`"])(?P<schema>.+)(?P=quote)\.(?P=quote)(?P<name>.+)(?P=quote)\)"""
)
"""The server quotes names as the session does."""
_MAKES = ("CREATE", "SELECT", "INSERT", "UPDATE", "DELETE", "DROP")


def _needed(
    connection: Connection,
    role: SqlRole,
    read: Collection[base.Place],
    captured: Collection[base.Place],
    written: Collection[base.Place],
) -> Iterator[base.Grant]:
    """A trigger runs with its creator's rights, who reads the changed row's columns; existing triggers are shown
    only to users who may create some.
    """
    home = str(connection.exec_driver_sql("SELECT DATABASE()").scalar_one())
    for name, rights in (("migrator_ticket", role.ticket), ("migrator_mark", role.mark)):
        for right in _MAKES if role.installs else rights:
            yield base.Grant("table", home, name, right)
    if connection.execute(QUERIES["has_log"], {"home": home}).scalar_one():
        # Capture reads the log (source/capture/log/).
        rights = ("SELECT", "UPDATE") if set(role.mark) - {"SELECT"} else role.ticket[:1]
        yield from (
            base.Grant("table", home, "migrator_log", right)
            for right in (_MAKES if role.installs else rights)
        )
        if role.installs or role.mark:
            yield base.Grant("attribute", "", "", "REPLICATION CLIENT")
        if role.installs or "DELETE" in role.mark:
            yield base.Grant("attribute", "", "", "REPLICATION SLAVE")
    for schema, name in captured:
        yield base.Grant("table", schema, name, "TRIGGER")
        if role.installs:
            yield base.Grant("table", schema, name, "SELECT")
    # MariaDB shows a table's triggers to users who may write it, MySQL only to users who may create some.
    rights = WRITES if getattr(connection.dialect, "is_mariadb", False) else (*WRITES, "TRIGGER")
    yield from (base.Grant("table", schema, name, right) for schema, name in written for right in rights)
    for schema, table in written:
        for row in connection.execute(QUERIES["sequences"], {"table": table, "schema": schema}):
            if found := _SEQUENCE.fullmatch(row.COLUMN_DEFAULT):
                quote = found["quote"]
                owner, sequence = (found[part].replace(quote * 2, quote) for part in ("schema", "name"))
                # An INSERT needs both, even with an explicit number.
                yield from (base.Grant("table", owner, sequence, right) for right in ("SELECT", "INSERT"))
    yield from (base.Grant("table", schema, name, "SELECT") for schema, name in read)


def _missing(connection: Connection, grants: Sequence[base.Grant]) -> list[base.Grant]:
    may = rights_of_user(connection)
    return [grant for grant in grants if not may(grant.right, grant.schema, grant.name)]


def _statement(grants: Sequence[base.Grant], user: str) -> str:
    first = grants[0]
    name, _, host = user.rpartition("@") if "@" in user else (user, "", "%")
    on = "*.*" if first.kind == "attribute" else f"{quoted(first.schema)}.{quoted(first.name)}"
    rights = ", ".join(grant.right for grant in grants)
    return f"GRANT {rights} ON {on} TO {literal(name)}@{literal(host)}"


def rights_of_user(connection: Connection) -> Callable[..., bool]:
    """A test for a right on a schema or a table. Rights of roles are not listed, so they are assumed."""
    rights = list(connection.execute(QUERIES["granted"]))
    by_role = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar() not in (None, "", "NONE")

    def may(right: str, schema: str, name: str = "") -> bool:
        return by_role or any(
            row.right_name == right
            and (row.name in ("", name) and (row.schema in ("", schema) or is_like(schema, row.schema)))
            for row in rights
        )

    return may


def is_like(name: str, pattern: str) -> bool:
    """Whether a name matches the pattern of a GRANT, in which % and _ are wildcards unless escaped."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return bool(
        re.fullmatch(
            "".join(signs.get(character) or re.escape(character[-1]) for character in parts), name, re.DOTALL
        )
    )


GRANTING = base.Granting(_needed, _missing, _statement)
