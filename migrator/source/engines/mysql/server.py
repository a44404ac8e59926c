"""What MariaDB and MySQL say of themselves, of plans, of how many rows there are, and of how far a replica has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.facts import TableFacts
from migrator.source.engines.base import Explaining, Plan, Row, Server, part_of
from migrator.source.engines.replication import Ask, Mark, Replication, Verdict, no_replica

# ── plans ──


def _plan(names: Sequence[str], rows: Sequence[Row], page_rows: int) -> Plan:
    lines, whole = [], []
    for row in rows:
        named = dict(zip(names, row, strict=True))
        lines.append(", ".join(f"{name}={value}" for name, value in named.items() if value is not None))
        derived = str(named["table"]).startswith("<")
        if named["type"] == "ALL" and not derived and int(named["rows"] or 0) > page_rows:
            whole.append(str(named["table"]))
    return lines, whole


def _expected(names: Sequence[str], rows: Sequence[Row]) -> int | None:
    return max(int(dict(zip(names, row, strict=True))["rows"] or 0) for row in rows)


def _partitions(dialect: sa.Dialect) -> str:
    """MySQL says by itself from which partitions it reads."""
    return " PARTITIONS" if getattr(dialect, "is_mariadb", False) else ""


# ── statistics ──

# Not of a versioned table, where rows that are history count.
_MARIADB = sa.text("""
    SELECT TABLE_ROWS FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB'
        AND TABLE_SCHEMA = COALESCE(:schema, DATABASE()) AND TABLE_NAME = :name
""")


def _rows_at_least(connection: Connection, table: TableFacts) -> int | None:
    """A quarter of what MariaDB expects, which samples some pages; MySQL keeps none younger than a day."""
    if getattr(connection.dialect, "is_mariadb", False):
        return part_of(connection, _MARIADB, table, of=1, by=4)
    return None


# ── replicas ──

_MARIADB_SERVER = "CONCAT_WS('/', @@hostname, @@port, @@server_id, @@datadir)"
_MARIADB_MARK = f"SELECT '', {_MARIADB_SERVER}, DATABASE(), @@GLOBAL.gtid_current_pos"
_GTID_READ_ONLY = "CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF') OR @@GLOBAL.innodb_read_only"
"""The second is what a reader of Aurora says. Source: AWS Knowledge Center, read-only errors after a fail-over of Aurora."""
_MARIADB_STATE = (
    f"SELECT {_MARIADB_SERVER}, DATABASE(), MASTER_GTID_WAIT(:position, 0) = 0, {_GTID_READ_ONLY}"
)
_MYSQL_MARK = "SELECT '', @@server_uuid, DATABASE(), @@GLOBAL.gtid_executed"
_MYSQL_STATE = (
    f"SELECT @@server_uuid, DATABASE(), GTID_SUBSET(:position, @@GLOBAL.gtid_executed), {_GTID_READ_ONLY}"
)


def _gtid_verdict(state: str) -> Callable[[Mark, Ask], Verdict]:
    """A server that replays nothing of the primary's never has its GTIDs, and so is behind for ever."""

    def verdict(mark: Mark, ask: Ask) -> Verdict:
        server, database, replayed, read_only = ask(state, {"position": mark.position})
        if database != mark.database:
            raise no_replica("this is another database")
        if server == mark.server:
            return "ready"
        if not read_only:
            raise no_replica("this server takes writes of its own (read_only is off)")
        if not mark.position:
            raise no_replica(
                "url's server writes no binary log with GTIDs, so nobody can tell how far this one is"
            )
        return "ready" if replayed else "behind"

    return verdict


def replication(dialect: sa.Dialect) -> Replication:
    """MariaDB's or MySQL's: each has positions of its own form."""
    return _OF_MARIADB if getattr(dialect, "is_mariadb", False) else _OF_MYSQL


def _mark_by(query: str) -> Callable[[Ask], Mark]:
    return lambda ask: Mark(*(str(part or "") for part in ask(query, {})))


_OF_MARIADB = Replication(_mark_by(_MARIADB_MARK), f"SELECT {_MARIADB_SERVER}", _gtid_verdict(_MARIADB_STATE))
_OF_MYSQL = Replication(_mark_by(_MYSQL_MARK), "SELECT @@server_uuid", _gtid_verdict(_MYSQL_STATE))


def is_mariadb(version: str) -> bool:
    """By what the server says of its version."""
    return "mariadb" in version.lower()


def _product(version: str) -> str:
    return version if is_mariadb(version) else f"MySQL {version}"


SERVER = Server(
    # MariaDB and MySQL call their time-out by different names; the one that is asked for and not there is an error.
    health="SELECT VERSION(), UNIX_TIMESTAMP(), @@read_only, ''",
    product=_product,
    session=sa.text("SELECT CONNECTION_ID()"),
    sends_to_the_end=True,
    rows_at_least=_rows_at_least,
    explaining=Explaining("EXPLAIN", _partitions, _plan, _expected),
    replication=replication,
    hides_rows=False,
)
