"""PostgreSQL: errors, server facts, query plans, replicas, and writers of its tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Column, Kind, TableFacts
from migrator.mapping.model.live import RefusalKind
from migrator.runtime.server_errors import mysql_number
from migrator.source.engines import base, shared
from migrator.source.engines.catalogue import Recorded
from migrator.source.engines.postgresql.facts import QUERIES

# ── Facts about a PostgreSQL server: plans, statistics, replicas ──

# ── plans ──


def _plan(names: Sequence[str], rows: Sequence[base.Row], page_rows: int) -> base.Plan:
    """A scan without a filter reads the estimated rows; one with a filter reads more."""
    lines, whole = [str(row[0]) for row in rows], []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = _SEQ_SCAN.search(line)
        filtered = "Filter:" in following and page_rows < sys.maxsize
        if match and (filtered or int(match["rows"]) > page_rows):
            whole.append(match["table"].strip('"'))
    return lines, whole


_SEQ_SCAN = re.compile(r'Seq Scan on (?P<table>"(?:[^"]|"")+"|\S+).*? rows=(?P<rows>\d+)')


def _expected(_: Sequence[str], rows: Sequence[base.Row]) -> int | None:
    match = re.search(r" rows=(\d+)", str(rows[0][0]))
    return None if match is None else int(match[1])


# ── statistics ──


def _rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """Three quarters of the last ANALYZE's count minus all changes since."""
    return shared.part_of(connection, QUERIES["rows_at_least"], table, of=3, by=4)


# ── blocks ──


def has_blocks(connection: Connection, table: TableFacts) -> bool:
    """Whether the table can be sampled: views and foreign tables cannot."""
    place = {"schema": table.schema, "name": table.real}
    return bool(connection.execute(QUERIES["has_blocks"], place).scalar())


# ── replicas ──

_MARK = (
    "SELECT CAST((SELECT system_identifier FROM pg_control_system()) AS text),"
    " CAST(pg_postmaster_start_time() AS text), CAST(current_database() AS text),"
    " CAST(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS text)"
)
_STATE = (
    "SELECT CAST((SELECT system_identifier FROM pg_control_system()) AS text),"
    " CAST(pg_postmaster_start_time() AS text), CAST(current_database() AS text), pg_is_in_recovery(),"
    " pg_wal_lsn_diff(pg_last_wal_replay_lsn(), CAST(:position AS pg_lsn))"
)


def _verdict(mark: base.Mark, ask: base.Ask) -> base.Verdict:
    """A promoted replica keeps its cluster's identifier, so only the primary itself may be out of recovery."""
    system, server, database, in_recovery, ahead_bytes = ask(_STATE, {"position": mark.position or None})
    if system != mark.system:
        raise base.no_replica("this server belongs to another cluster")
    if database != mark.database:
        raise base.no_replica("this is another database")
    if not in_recovery:
        if server == mark.server:
            return "ready"
        raise base.no_replica("this server is not a replica: it accepts writes")
    if ahead_bytes is None:
        raise base.no_replica("this server does not report how far it has replayed")
    return "ready" if ahead_bytes >= 0 else "behind"


REPLICATION = base.Replication(
    base.mark_by(_MARK), "SELECT CAST(pg_postmaster_start_time() AS text)", _verdict
)

# ── load ──

# Without the right PostgreSQL shows other users' sessions without what they do, so a number would be too low: NULL instead.
_SEEN = "SELECT CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN (SELECT {} FROM {}) END"
_AT_WORK = (
    "pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_LAG = "COALESCE(MAX(EXTRACT(epoch FROM replay_lag)), 0)"
_REPLICAS = "pg_stat_replication"

SERVER = base.Server(
    health="SELECT 'PostgreSQL ' || current_setting('server_version'), EXTRACT(epoch FROM clock_timestamp()),"
    " pg_is_in_recovery(), current_setting('statement_timeout')",
    product=str,
    session=sa.text("SELECT pg_catalog.pg_backend_pid()"),
    sends_to_the_end=False,
    rows_at_least=_rows_at_least,
    explain=lambda _: "EXPLAIN",
    plan=_plan,
    expected=_expected,
    replication=lambda _: REPLICATION,
    hides_rows=True,
    recorded=Recorded(
        select="SELECT s.query, s.calls FROM pg_stat_statements s JOIN pg_catalog.pg_database d ON d.oid = s.dbid"
        " WHERE d.datname = current_database() AND s.calls > 0",
        hidden="<insufficient privilege>",
        advice="add pg_stat_statements to shared_preload_libraries, restart the server, and run CREATE EXTENSION"
        " pg_stat_statements in this database",
        grant="GRANT pg_read_all_stats TO the user of the source",
    ),
    strains={"load": _SEEN.format("COUNT(*)", _AT_WORK), "replica lag": _SEEN.format(_LAG, _REPLICAS)},
    strains_need="GRANT pg_read_all_stats TO the user of the source",
)


# ── Writers of tables of PostgreSQL: counted changes, open transactions, rights and how to revoke them ──


PUBLIC = "PUBLIC"


def _changes(connection: Connection, tables: Sequence[str]) -> base.Changes:
    rows = connection.execute(QUERIES["counted_changes"], named(connection, tables))
    return {f"{schema}.{name}": str(count) for schema, name, count in rows}, "pg_stat_user_tables", ""


def _open(connection: Connection) -> base.Open:
    """Writers' locks until their transaction ends, including prepared ones; every user may see them."""
    rows = connection.execute(QUERIES["open_transactions"])
    tables = ((holder, f"{schema}.{name}", str(who)) for holder, schema, name, who in rows)
    return {f"{holder} {table}": (table, who) for holder, table, who in tables}, ""


def _may_write(connection: Connection, tables: Sequence[str]) -> Mapping[str, Sequence[str]]:
    roles: dict[str, set[str]] = {}
    rows = connection.execute(QUERIES["rights_to_write"], named(connection, tables))
    for schema, table, _, _, role, *_ in rows:
        roles.setdefault(f"{schema}.{table}", set()).add(PUBLIC if role is None else str(role))
    return {name: sorted(roles[name]) for name in tables if name in roles}


def named(connection: Connection, tables: Sequence[str]) -> dict[str, list[str]]:
    home = shared.default_schema(connection)
    places = [place for name in dict.fromkeys(tables) for place in shared.places(name, home)]
    return {"schemas": [schema for schema, _ in places], "names": [table for _, table in places]}


def _read_only(connection: Connection, tables: Sequence[str]) -> Iterator[str]:
    quote = connection.dialect.identifier_preparer.quote
    rights: dict[tuple[str, str], list[str]] = {}
    granting = set()
    rows = connection.execute(QUERIES["rights_to_write"], named(connection, tables))
    for _, _, own_schema, own, role, right, is_grantable in rows:
        key = (f"{quote(own_schema)}.{quote(own)}", PUBLIC if role is None else quote(str(role)))
        if right not in rights.setdefault(key, []):
            rights[key].append(str(right))
        if is_grantable:
            granting.add(key)
    for key, granted in rights.items():
        # A role with grant option may have granted the right on, which needs CASCADE to be revoked.
        yield f"REVOKE {', '.join(granted)} ON {key[0]} FROM {key[1]}{' CASCADE' if key in granting else ''}"
    if above := [" ".join(str(name).split()) for (name,) in connection.execute(QUERIES["may_write_all"])]:
        yield f"-- superusers and members of pg_write_all_data may write all the same: {', '.join(above)}"


def _drops(names: Sequence[str]) -> list[str]:
    return [f"DROP TABLE {', '.join(names)}"] if names else []


WRITERS = base.Writers(
    changes=_changes,
    open=_open,
    marks_ever="SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('{mark}', 'id')::regclass), 0)",
    may_write=_may_write,
    read_only=_read_only,
    drops=_drops,
)


# ── Explanations of errors of PostgreSQL and psycopg ──

SEES_ALL_ROWS = (
    "let the table's owner, or a superuser, run ALTER ROLE … BYPASSRLS for it (or name the owner in the source's URL,"
    " where the table has no FORCE ROW LEVEL SECURITY)"
)


def _reasons(cause: BaseException) -> Iterator[str]:
    # PyMySQL's errors also have an SQLSTATE, but the server's own number is more specific.
    if not mysql_number(cause):
        yield from shared.by_sqlstate(cause)


def _hidden_rows(cause: BaseException) -> str | None:
    """Explain hidden rows, which are an error since `row_security` is off on all our connections.

    Source: PostgreSQL's src/backend/utils/misc/rls.c, the only function with this message, which is in the
    server's language.
    """
    diag = getattr(cause, "diag", None)
    if getattr(diag, "source_function", None) != "check_enable_rls":
        return None
    named = re.search(
        r"[\"“”„«»](?P<table>[^\"“”„«»]+)[\"“”«»]", getattr(diag, "message_primary", None) or ""
    )
    table = f" of table {named['table'].strip()}" if named else " of a table"
    return f"row level security{table} would hide rows from this user; {SEES_ALL_ROWS}"


def _is_connecting(cause: BaseException) -> bool:
    return type(cause).__name__ == "OperationalError" and type(cause).__module__.startswith("psycopg")


ERRORS = base.Errors(_reasons, _is_connecting, _hidden_rows)


# ── Rows written into PostgreSQL: values as texts that take the column's own type, refusals by SQLSTATE, sequences ──

# ── values ──


def _bound(column: Column, value: Any) -> Any:
    """Text without a cast: it takes the column's type, and a long one is an error.

    Source: PostgreSQL's documentation, "Value Storage"; an explicit CAST to varchar(n) would cut.
    """
    if value is None or isinstance(value, bytes):
        return value
    base.refuse_inexact(column, value)
    base.refuse_longer(column, value)
    return _text(column.kind, value)


def _text(kind: Kind, value: Any) -> str:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if kind.name == "list":
        return _array(kind.element or Kind("plain"), value)
    if kind.name != "map":
        return base.as_text(kind, value)
    if kind.element is not None:
        pairs = (f'"{_escaped(name)}"=>{_quoted(kind.element, one)}' for name, one in value.items())
        return ", ".join(pairs)
    # A field that is NULL is nothing between two commas.
    fields = (
        "" if value.get(name) is None else _quoted(field, value[name], twice='""')
        for name, field in kind.fields
    )
    return f"({','.join(fields)})"


def _array(element: Kind, values: Any) -> str:
    texts = (
        _array(element, one) if isinstance(one, list) and element.name != "json" else _quoted(element, one)
        for one in values
    )
    return f"{{{','.join(texts)}}}"


def _quoted(kind: Kind, value: Any, twice: str = '\\"') -> str:
    return "NULL" if value is None else f'"{_escaped(_text(kind, value), twice)}"'


def _escaped(text: str, twice: str = '\\"') -> str:
    return text.replace("\\", "\\\\").replace('"', twice)


# ── refusals ──

_BY_STATE: dict[str, RefusalKind] = {
    "23503": "foreign key",
    "23001": "foreign key",
    "23505": "unique",
    "23P01": "unique",
    "23502": "not null",
    "23514": "value",
    "P0001": "trigger",
}
"""Source: PostgreSQL's documentation, "PostgreSQL Error Codes"."""


def _refusal(error: BaseException) -> RefusalKind | None:
    state = getattr(error, "sqlstate", None) or ""
    # A driver that cannot encode a NUL in a text fails before it sends anything.
    is_value = state.startswith("22") or type(error).__name__ == "DataError"
    return _BY_STATE.get(state) or ("value" if is_value else None)


# ── counters ──


def _move_counters(connection: Connection, table: TableFacts) -> None:
    quote = connection.dialect.identifier_preparer.quote_identifier
    place = quote(table.real) if table.schema is None else f"{quote(table.schema)}.{quote(table.real)}"
    named_in = {"table": table.real, "schema": table.schema or ""}
    for row in connection.execute(QUERIES["sequences"], named_in).all():
        highest = connection.exec_driver_sql(f"SELECT max({quote(row.column)}) FROM {place}").scalar()
        sequence = f"{quote(row.schema)}.{quote(row.name)}"
        last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()
        if isinstance(highest, (int, Decimal)) and (highest > last or (highest == last and not is_called)):
            connection.execute(sa.text("SELECT setval(:oid, :at)"), {"oid": row.oid, "at": int(highest)})


def _unchanging(connection: Connection, place: str) -> frozenset[str]:
    """GENERATED ALWAYS AS IDENTITY: an INSERT may set it, but no UPDATE may name it."""
    return frozenset(connection.execute(QUERIES["always_generated"], {"table": place}).scalars())


def _begin(connection: Connection) -> None:
    # A refusal must occur at its statement, not at the commit.
    connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
    connection.exec_driver_sql("SET LOCAL migrator.reverse = 'on'")


ROWS = base.RowWriting(
    prepare=lambda _: None,
    begin=_begin,
    end=lambda _: None,
    bound=_bound,
    upserts=True,
    defer="SET CONSTRAINTS ALL DEFERRED",
    overriding=" OVERRIDING SYSTEM VALUE",
    locks=" FOR UPDATE",
    refusal=_refusal,
    move_counters=_move_counters,
    unchanging=_unchanging,
)
