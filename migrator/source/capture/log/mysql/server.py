"""MySQL's binary log: settings, files and transactions; our row with the position in it; and its capture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from migrator.mapping.model.facts import Captured, columns_of
from migrator.mapping.model.live import SlotLag, Step, TableCapture
from migrator.runtime.errors import SourceError
from migrator.runtime.values import replace
from migrator.source.capture.install import has_log
from migrator.source.capture.log.changes import tables_text
from migrator.source.capture.log.install import LogCapture
from migrator.source.capture.log.mysql.gtids import GtidSet
from migrator.source.capture.log.reader import LogPlace, log_table
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.mysql.capture import cascades, declared_word, home_of
from migrator.source.engines.mysql.facts import literal, quoted
from migrator.source.engines.mysql.server import is_denied, is_mariadb, rights_of_user

# ── Our row ──

COLUMNS = (
    "id INT NOT NULL PRIMARY KEY, gtids LONGTEXT NOT NULL, held LONGTEXT NOT NULL, file VARCHAR(255) NOT NULL,"
    " place BIGINT NOT NULL, passed_at DOUBLE NOT NULL, tables LONGTEXT NOT NULL, reader VARCHAR(64) NOT NULL,"
    " asked BIGINT NOT NULL"
)
"""`gtids`, `held`, `file`, `place`: as in BinlogPosition. `reader`: the only one that may write the row. `asked`: number of
requests to store what was read.
"""
_FORM = "ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"


class BinlogPosition(Struct, frozen=True):
    """`read`: transactions read to their end.
    `held`: prepared XA transactions without a commit; a reader that begins here reads them again.
    `file`, `place`: of the next event, for messages.
    """

    read: GtidSet = GtidSet()
    held: tuple[GtidSet, ...] = ()
    file: str = ""
    place: int = 0

    def __ge__(self, other: BinlogPosition) -> bool:
        return self.received >= other.received

    def __gt__(self, other: BinlogPosition) -> bool:
        return self.received > other.received

    @property
    def received(self) -> GtidSet:
        received = self.read
        for held in self.held:
            received = received.plus(held)
        return received

    def held_text(self) -> str:
        return ",".join(held.text() for held in self.held)

    def behind(self, gtid: GtidSet) -> BinlogPosition:
        return replace(self, read=self.read.plus(gtid))

    def holding(self, gtid: GtidSet) -> BinlogPosition:
        return replace(self, held=(*self.held, gtid))

    def released(self, gtid: GtidSet) -> BinlogPosition:
        held = tuple(other for other in self.held if other != gtid)
        return replace(self, read=self.read.plus(gtid), held=held)


def create_log(ddl: Ddl) -> str:
    return f"CREATE TABLE IF NOT EXISTS {log_table(ddl)} ({COLUMNS}) {_FORM}"


def first_place(connection: Connection, ddl: Ddl, tables: str) -> str:
    file, place = _end_of_log(connection)
    return (
        f"INSERT INTO {log_table(ddl)} (id, gtids, held, file, place, passed_at, tables, reader, asked)"
        f" VALUES (1, @@GLOBAL.gtid_executed, '', {literal(file)}, {place}, {ddl.now}, {literal(tables)}, '', 0)"
    )


def place_of_log(connection: Connection, ddl: Ddl) -> LogPlace | None:
    if not has_log(connection):
        return None
    chosen = f"SELECT gtids, held, file, place, passed_at, tables FROM {log_table(ddl)} WHERE id = 1"
    row = connection.execute(sa.text(chosen)).first()
    if row is None:
        return None
    held = (GtidSet.of(row.held),) if row.held else ()
    position = BinlogPosition(GtidSet.of(row.gtids), held, row.file, row.place)
    return LogPlace("", "", position, row.passed_at, row.tables)


def loss(connection: Connection, place: LogPlace) -> str:
    """Why changes may be missing from the rest of the log; '' if none is."""
    executed, purged, mode = connection.exec_driver_sql(
        "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged, @@GLOBAL.gtid_mode"
    ).one()
    position: BinlogPosition = place.position
    if mode != "ON":
        return f"gtid_mode is {mode}, so transactions have no place in the binary log"
    if not GtidSet.of(executed) >= position.received:
        return "this server lacks transactions that were read (another server, a restore, RESET BINARY LOGS)"
    if not position.read >= GtidSet.of(purged):
        return "the server purged its binary log before it was read (binlog_expire_logs_seconds, PURGE BINARY LOGS)"
    return ""


# ── The files of the log ──

_RDS = "/rdsdbbin"
_NEEDS_CLIENT = "this user may not see the binary logs; GRANT REPLICATION CLIENT ON *.* TO it"


def binlog_lag(connection: Connection, place: LogPlace, now_s: float, *, has_reader: bool) -> SlotLag:
    position: BinlogPosition = place.position
    files = _files(connection)
    names = [name for name, _ in files]
    first = names.index(position.file) if position.file in names else 0
    behind = sum(size for _, size in files[first:]) - (position.place if position.file in names else 0)
    kept_bytes = sum(size for _, size in files)
    seconds = max(0.0, now_s - place.passed_at)
    lost = loss(connection, place)
    return SlotLag(
        "", max(0, behind), kept_bytes, None, seconds, has_reader, lost, keeps_s=keeps_s(settings(connection))
    )


def _files(connection: Connection) -> list[tuple[str, int]]:
    try:
        rows = connection.exec_driver_sql("SHOW BINARY LOGS")
        return [(str(row[0]), int(row[1])) for row in rows]
    except DBAPIError as error:
        if not is_denied(error):
            raise
    raise SourceError(_NEEDS_CLIENT)


def _end_of_log(connection: Connection) -> tuple[str, int]:
    files = _files(connection)
    return files[-1] if files else ("", 0)


# ── Settings of the server that the log requires ──

_NAMES = (
    "basedir",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_transaction_compression",
    "gtid_mode",
    "innodb_native_foreign_keys",
    "log_bin",
    "log_replica_updates",
    "version",
)
_NEEDED = {
    "log_bin": (
        "ON",
        "the server keeps no binary log; remove skip-log-bin and restart (RDS: turn automated backups on)",
    ),
    "binlog_format": ("ROW", "{}"),
    "binlog_row_image": ("FULL", "{}"),
    "binlog_row_metadata": ("FULL", "{}"),
    "binlog_row_value_options": ("", "{}"),
    "binlog_transaction_compression": ("OFF", "{}"),
    "gtid_mode": (
        "ON",
        "gtid_mode is {value}: enforce_gtid_consistency = ON first, then gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON,"
        " in this order (RDS and Aurora: gtid-mode and enforce_gtid_consistency in the parameter group)",
    ),
    "log_replica_updates": (
        "ON",
        "the log lacks what a replica applies; set log_replica_updates = ON and restart",
    ),
}
"""By variable its required value, and the fault of any other."""


def settings(connection: Connection) -> dict[str, str]:
    names = ", ".join(map(literal, _NAMES))
    rows = connection.exec_driver_sql(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name): str(value) for name, value in rows}


def setting_faults(found: Mapping[str, str]) -> Iterator[str]:
    if is_mariadb(found["version"]):
        yield (
            "the binary log of MariaDB is not read: it lacks rows that a cascading foreign key changes, and its GTIDs are of"
            " another kind; install without --by log"
        )
        return
    if "binlog_row_metadata" not in found:
        yield "capture from the log needs MySQL 8.0.14 or newer; install without --by log"
        return
    for name, (value, advice) in _NEEDED.items():
        here = found.get(name, value)
        if here.upper() != value:
            usual = (
                f"{name} is {here or 'empty'}; SET PERSIST {name} = {value or literal('')} (RDS and Aurora: in the parameter"
                " group), then end sessions that began before"
            )
            yield advice.replace("{value}", here) if advice != "{}" else usual


def logs_cascades(found: Mapping[str, str]) -> bool:
    """Whether the log contains rows that cascading foreign keys change: from MySQL 9.6 on, unless the option is
    set.
    """
    return found.get("innodb_native_foreign_keys", "ON") == "OFF"


def right_faults(connection: Connection, home: str) -> Iterator[str]:
    may, user = (
        rights_of_user(connection),
        str(connection.exec_driver_sql("SELECT CURRENT_USER()").scalar_one()),
    )
    user = "@".join(literal(part) for part in user.rsplit("@", 1))
    if missing := [right for right in ("REPLICATION SLAVE", "REPLICATION CLIENT") if not may(right, "")]:
        yield f"this user may not read the log; GRANT {', '.join(missing)} ON *.* TO {user}"
    needed = [] if has_log(connection) else ["CREATE"]
    needed += ["SELECT", "INSERT", "UPDATE", "DELETE", "DROP"]
    if missing := [right for right in needed if not may(right, home, "migrator_log")]:
        grant = f"GRANT {', '.join(missing)} ON {quoted(home)}.migrator_log TO {user}"
        yield f"this user lacks {', '.join(missing)} on our table migrator_log in database {home}; {grant}"


_UNREADABLE = {
    **dict.fromkeys(("json", "vector"), "a document or a vector, which the log writes in another form"),
    **dict.fromkeys(
        (
            *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
            *("geomcollection", "geometrycollection"),
        ),
        "a geometry, which the log writes in another form",
    ),
}


def table_faults(
    connection: Connection, found: Mapping[str, str], tables: Sequence[Captured], home: str
) -> Iterator[str]:
    for table in tables:
        for column in columns_of(table, table.columns):
            if why := _UNREADABLE.get(declared_word(column)):
                yield (
                    f"table {table.name}: keys or links are made of {quoted(column.real)}, {why}; install without --by log"
                )
    yield from cascaded(connection, found, tables, home).values()


def cascaded(
    connection: Connection, found: Mapping[str, str], tables: Sequence[Captured], home: str
) -> dict[str, str]:
    if logs_cascades(found):
        return {}
    by_name = {(table.table.schema or home, table.table.real): table.name for table in tables}
    return {
        by_name[key.child]: (
            f"table {by_name[key.child]}: its foreign key {key.name} has an action (ON DELETE {key.on_delete}, ON UPDATE"
            f" {key.on_update}), and before MySQL 9.6, or with innodb_native_foreign_keys = ON, the log lacks the rows that"
            " it changes; install without --by log"
        )
        for key in cascades(connection)
        if key.child in by_name
    }


# ── Retention of the log ──


def keeps_s(found: Mapping[str, str]) -> float | None:
    if found.get("binlog_expire_logs_auto_purge") == "OFF" or found["basedir"].startswith(_RDS):
        return None
    return float(found.get("binlog_expire_logs_seconds", "0")) or None


def server_limits(connection: Connection) -> Iterator[str]:
    found = settings(connection)
    kept_s = keeps_s(found)
    if found["basedir"].startswith(_RDS):
        yield (
            "RDS and Aurora purge the binary log as soon as they can: CALL mysql.rds_set_configuration('binlog retention"
            " hours', 168); a relay that is stopped for longer loses changes"
        )
    elif kept_s is not None:
        yield (
            f"the server purges its binary log after {kept_s / 3600:,.0f} hours (binlog_expire_logs_seconds), read or not: a"
            " relay that is stopped for longer loses changes, and `migrator verify --repair` is needed then"
        )
    else:
        yield "the server keeps its binary log without a limit of time; look at `capture status` before PURGE BINARY LOGS"
    yield (
        "the log lacks what a session writes with sql_log_bin = 0; binlog_format = STATEMENT, ALTER TABLE … EXCHANGE"
        " PARTITION and RENAME TABLE leave a finding: run `migrator verify --repair` after them"
    )


# ── Capture from the binary log, installed and inspected ──


class BinlogCapture(LogCapture):
    means_of_log = "binary log and place"
    taken_words = "our place in the binary log and our tables are removed"
    literal = staticmethod(literal)
    log_limits = staticmethod(server_limits)
    create_log = staticmethod(create_log)

    def _faults(self, connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> Iterator[str]:
        found, home = settings(connection), home_of(ddl)
        yield from setting_faults(found)
        if not is_mariadb(found["version"]):
            yield from right_faults(connection, home)
            yield from table_faults(connection, found, tables, home)

    def _begin_steps(
        self, connection: Connection, ddl: Ddl, tables: Sequence[Captured], place: LogPlace | None, lost: str
    ) -> Iterator[Step]:
        if place is None or lost:
            yield Step("", (first_place(connection, ddl, tables_text(tables)),))

    def _unlogged(
        self, connection: Connection, ddl: Ddl, place: LogPlace, tables: Sequence[Captured]
    ) -> Mapping[str, TableCapture]:
        names, found = {table.name for table in tables}, settings(connection)
        if not any(setting_faults(found)):
            names = set(cascaded(connection, found, tables, home_of(ddl)))
        return {name: TableCapture(name, "missing") for name in names}
