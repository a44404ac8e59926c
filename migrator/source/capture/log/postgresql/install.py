"""Capture from PostgreSQL's log: a publication and a replication slot instead of triggers, installed and inspected."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, columns_of
from migrator.mapping.model.live import Step, TableCapture
from migrator.runtime.errors import SettingsError
from migrator.source.capture.log.changes import tables_text
from migrator.source.capture.log.install import LogCapture
from migrator.source.capture.log.postgresql.protocol import LOG_QUERIES
from migrator.source.capture.log.postgresql.slot import (
    COLUMNS,
    HAS_PUBLICATION,
    LOG,
    published,
    slot_named,
    slot_of,
)
from migrator.source.capture.log.reader import LogPlace
from migrator.source.engines.catalogue import qualified, quoted
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.postgresql.capture import literal
from migrator.source.engines.postgresql.facts import QUERIES
from migrator.source.engines.postgresql.server import named
from migrator.source.engines.shared import split

# ── Requirements of capture from the log on a PostgreSQL server ──


OLDEST = 150_000
_OLDEST_THAT_FAILS_OVER = 170_000


def _replicated(connection: Connection, tables: Collection[str]) -> sa.CursorResult[Any]:
    query = sa.text(LOG_QUERIES.text("tables", named=QUERIES.text("named")))
    return connection.execute(query, named(connection, list(tables)))


def server_faults(connection: Connection, slot: str) -> Iterator[str]:
    row = connection.execute(LOG_QUERIES["server"]).one()
    own = slot_named(connection, slot)
    if row.version < OLDEST:
        yield "capture from the log needs PostgreSQL 15 or newer; install without --by log"
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
        place = f"of database {own.database} (plugin {own.plugin})" if own.database else "a physical one"
        yield (
            f"the replication slot {slot} is {place}, perhaps of another job of this name; give this job another `name:`, or"
            " drop the slot if nothing reads it"
        )


def server_limits(connection: Connection) -> Iterator[str]:
    row = connection.execute(LOG_QUERIES["server"]).one()
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
    else:
        yield (
            "the slot survives a fail-over only to a standby with sync_replication_slots = on, hot_standby_feedback = on, a"
            " primary_slot_name and a dbname in primary_conninfo; name that slot in synchronized_standby_slots here"
        )
    yield (
        "a published table must keep its replica identity: the server refuses UPDATE and DELETE of one that loses its"
        " primary key, and of a partition that is attached without one"
    )
    yield "DETACH, ATTACH and DROP of a partition are not in the log; run `migrator verify --repair` after them"


def table_faults(connection: Connection, tables: Sequence[Captured]) -> Iterator[str]:
    by_name = {table.name: table for table in tables}
    for row in _replicated(connection, by_name):
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
                f" log would not show which rows a change concerned; its owner can run {_full(row.quoted)}"
            )
    for table in tables:
        yield from _unreadable(table)


def unheld(connection: Connection, tables: Sequence[Captured]) -> dict[str, tuple[str, ...]]:
    by_name = {table.name: table for table in tables}
    found: dict[str, tuple[str, ...]] = {}
    for row in _replicated(connection, by_name):
        if missing := _missing(row, by_name[row.name]):
            found[row.name] = tuple(sorted({*found.get(row.name, ()), *missing}))
    return found


def _missing(row: sa.Row[Any], captured: Captured) -> list[str]:
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
                " made of; install without --by log"
            )
        elif column.kind.name in ("list", "map"):
            yield (
                f"table {table.name}: keys or links are made of {quoted(column.real)}, an array or a composite, which the"
                " log writes in another form; install without --by log"
            )


_PUBLISH = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"
_RELEASE_S = 30.0
"""Wait for a slot that a relay still reads: the relay notices within seconds that it must stop."""
_SLOT_WAIT = "SET LOCAL lock_timeout = '60s'"
"""A slot is created once all transactions that are writing at that time have ended; they do not wait for it."""


class SlotCapture(LogCapture):
    means_of_log = "publication and slot"
    taken_words = "the replication slot, the publication and our tables are removed"
    literal = staticmethod(literal)
    log_limits = staticmethod(server_limits)
    create_log = staticmethod(lambda _: f"CREATE TABLE IF NOT EXISTS {LOG} ({COLUMNS})")

    def do(self, step: Step) -> None:
        if any("pg_drop_replication_slot" in statement for statement in step.statements):
            self._drop_slot(step)
            return
        super().do(step)

    def _faults(self, connection: Connection, _: Ddl, tables: Sequence[Captured]) -> Iterator[str]:
        yield from server_faults(connection, slot_of(self._job))
        yield from table_faults(connection, tables)

    def _begin_steps(
        self, connection: Connection, _: Ddl, tables: Sequence[Captured], place: LogPlace | None, lost: str
    ) -> Iterator[Step]:
        """The publication comes first: a slot looks it up at the time of each change."""
        name = slot_of(self._job)
        goes_on = place is not None and not lost
        if not goes_on and slot_named(connection, name) is not None:
            yield Step("", (_drop_slot_sql(name),))
        yield from _publication_steps(connection, tables, name, waits=goes_on)
        if not goes_on:
            yield Step("", (_SLOT_WAIT, _create_slot(connection, name)), (_drop_slot_sql(name),))
            yield Step("", (_first_place(name, tables_text(tables)),))

    def _end_steps(self, connection: Connection) -> Iterator[Step]:
        """The slot goes first: while it exists the server keeps its log for it."""
        name = slot_of(self._job)
        slot = slot_named(connection, name)
        here = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        if slot is not None and slot.database == here:
            yield Step("", (_drop_slot_sql(name),))
        if connection.execute(HAS_PUBLICATION, {"name": name}).scalar_one():
            yield Step("", (f"DROP PUBLICATION {quoted(name)}",))

    def _unlogged(
        self, connection: Connection, _: Ddl, place: LogPlace, tables: Sequence[Captured]
    ) -> Mapping[str, TableCapture]:
        published = set(connection.scalars(LOG_QUERIES["published"], {"name": place.slot}))
        whole = set(connection.scalars(LOG_QUERIES["whole"], {"name": place.slot}))
        if not connection.execute(LOG_QUERIES["publishes_all"], {"name": place.slot}).scalar_one():
            whole = set()
        own = {table.name for table in tables}
        not_held = unheld(connection, tables)
        return {
            **{name: TableCapture(name, "extra") for name in published - own},
            **{name: TableCapture(name, "unidentified", (), gone) for name, gone in not_held.items()},
            **{name: TableCapture(name, "missing") for name in own - whole},
        }

    def _drop_slot(self, step: Step) -> None:
        """Raises: SettingsError if a relay keeps reading it."""
        self._marks.leave()
        end = time.monotonic() + _RELEASE_S
        while (pid := self._reader_pid()) is not None:
            if time.monotonic() > end:
                what = f"the replication slot {slot_of(self._job)} is read by the server's process {pid}"
                raise SettingsError(f"{what}; stop the job's relays, then run the same command again")
            self._wait(0.2)
        super().do(step)

    def _reader_pid(self) -> int | None:
        def work(connection: Connection, _: Ddl) -> int | None:
            slot = slot_named(connection, slot_of(self._job))
            return None if slot is None else slot.active_pid

        return self._writing.look("looking at the replication slot", work)


def _drop_slot_sql(name: str) -> str:
    return f"SELECT pg_catalog.pg_drop_replication_slot({literal(name)})"


def _create_slot(connection: Connection, name: str) -> str:
    version = int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one())
    failover = ", failover => true" if version >= 170_000 else ""
    return f"SELECT pg_catalog.pg_create_logical_replication_slot({literal(name)}, 'pgoutput'{failover})"


def _first_place(name: str, text: str) -> str:
    now = "extract(epoch FROM clock_timestamp())"
    return (
        f"INSERT INTO {LOG} (id, slot, system, lsn, passed_at, tables) SELECT 1, slot_name, {published('slot_name')},"
        f" confirmed_flush_lsn, {now}, {literal(text)} FROM pg_catalog.pg_replication_slots"
        f" WHERE slot_name = {literal(name)}"
    )


def _publication_steps(
    connection: Connection, tables: Sequence[Captured], name: str, *, waits: bool
) -> Iterator[Step]:
    """`waits`: add each table after its present writers have ended, as the creation of a slot, which exists, would."""
    publication = quoted(name)
    if not connection.execute(HAS_PUBLICATION, {"name": name}).scalar_one():
        yield Step(
            "",
            (f"CREATE PUBLICATION {publication} WITH ({_PUBLISH})",),
            (f"DROP PUBLICATION {publication}",),
        )
    elif not connection.execute(LOG_QUERIES["publishes_all"], {"name": name}).scalar_one():
        yield Step("", (f"ALTER PUBLICATION {publication} SET ({_PUBLISH})",))
    there = set(connection.scalars(LOG_QUERIES["published"], {"name": name}))
    partly = there - set(connection.scalars(LOG_QUERIES["whole"], {"name": name}))
    for table in tables:
        if table.name in partly:
            yield Step(table.name, (f"ALTER PUBLICATION {publication} DROP TABLE {_quoted(table)}",))
        if table.name not in there - partly:
            add = f"ALTER PUBLICATION {publication} ADD TABLE {_quoted(table)}"
            yield Step(table.name, (_after_writers(table, add) if waits else add,))
    inspector = sa.inspect(connection)
    for extra in sorted(there - {table.name for table in tables}):
        place = qualified(*split(inspector, extra))
        yield Step(extra, (f"ALTER PUBLICATION {publication} DROP TABLE {place}",))


def _after_writers(table: Captured, statement: str) -> str:
    """The statement after all writers of the table have ended. It is one, since printed steps have no transaction."""
    return f"DO $migrator$ BEGIN LOCK TABLE {_quoted(table)} IN SHARE MODE; {statement}; END $migrator$"


def _quoted(captured: Captured) -> str:
    table = captured.table
    return quoted(table.real) if table.schema is None else f"{quoted(table.schema)}.{quoted(table.real)}"
