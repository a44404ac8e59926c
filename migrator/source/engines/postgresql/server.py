"""What PostgreSQL says of itself, of plans, of how many rows there are, and of how far a replica has come."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import TableFacts
from migrator.source.engines.base import Explaining, Plan, Row, Server, part_of
from migrator.source.engines.replication import Ask, Mark, Replication, Verdict, no_replica

# ── plans ──


def _plan(names: Sequence[str], rows: Sequence[Row], page_rows: int) -> Plan:
    """A scan without a filter is of as many rows as the estimate says; with one, of more than it says."""
    lines = [str(row[0]) for row in rows]
    return lines, list(_sequential(lines, page_rows))


_SEQ_SCAN = re.compile(r'Seq Scan on (?P<table>"(?:[^"]|"")+"|\S+).*? rows=(?P<rows>\d+)')


def _sequential(lines: Sequence[str], page_rows: int) -> Iterator[str]:
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        found = _SEQ_SCAN.search(line)
        filtered = "Filter:" in following and page_rows < sys.maxsize
        if found and (filtered or int(found["rows"]) > page_rows):
            yield found["table"].strip('"')


def _expected(_: Sequence[str], rows: Sequence[Row]) -> int | None:
    found = re.search(r" rows=(\d+)", str(rows[0][0]))
    return None if found is None else int(found[1])


# ── statistics ──

# Changes since the last ANALYZE may all have been deletes. Of a table that was emptied since, nothing is known (-1).
_ROWS = sa.text("""
    SELECT CAST(SUM(GREATEST(t.reltuples, 0)) AS bigint)
        - CAST(SUM(COALESCE(pg_stat_get_mod_since_analyze(t.oid), 0)) AS bigint)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) p (id)
    JOIN pg_catalog.pg_class t ON t.oid = p.id AND t.relkind = 'r'
    WHERE c.relkind IN ('r', 'p') AND n.nspname = COALESCE(:schema, current_schema()) AND c.relname = :name
""")


def _rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """Three quarters of what the last ANALYZE found, less all changes since."""
    return part_of(connection, _ROWS, table, of=3, by=4)


# ── blocks ──

_BLOCKS = sa.text("""
    SELECT bool_and(t.relkind IN ('r', 'p', 'm'))
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid)) p (id)
    JOIN pg_catalog.pg_class t ON t.oid = p.id
    WHERE n.nspname = COALESCE(:schema, current_schema()) AND c.relname = :name
""")


def has_blocks(connection: Connection, table: TableFacts) -> bool:
    """Whether it is a table of PostgreSQL's own: of views and foreign tables it samples nothing."""
    return bool(connection.execute(_BLOCKS, {"schema": table.schema, "name": table.real}).scalar())


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


def _mark(ask: Ask) -> Mark:
    return Mark(*(str(part or "") for part in ask(_MARK, {})))


def _verdict(mark: Mark, ask: Ask) -> Verdict:
    """A replica that was promoted keeps its cluster's identifier: only the very server may be out of recovery."""
    system, server, database, in_recovery, ahead_bytes = ask(_STATE, {"position": mark.position or None})
    if system != mark.system:
        raise no_replica("this server belongs to another cluster")
    if database != mark.database:
        raise no_replica("this is another database")
    if not in_recovery:
        if server == mark.server:
            return "ready"
        raise no_replica("this server is no replica (any more), it takes writes of its own")
    if ahead_bytes is None:
        raise no_replica("this server does not say how far it has replayed")
    return "ready" if ahead_bytes >= 0 else "behind"


REPLICATION = Replication(_mark, "SELECT CAST(pg_postmaster_start_time() AS text)", _verdict)

SERVER = Server(
    health="SELECT 'PostgreSQL ' || current_setting('server_version'), EXTRACT(epoch FROM clock_timestamp()),"
    " pg_is_in_recovery(), current_setting('statement_timeout')",
    product=str,
    session=sa.text("SELECT pg_catalog.pg_backend_pid()"),
    sends_to_the_end=False,
    rows_at_least=_rows_at_least,
    explaining=Explaining("EXPLAIN", lambda _: "", _plan, _expected),
    replication=lambda _: REPLICATION,
    hides_rows=True,
)
