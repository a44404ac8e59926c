"""Capture from PostgreSQL's log: a publication and a replication slot in place of triggers, installed and inspected."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, columns_of
from migrator.mapping.model.live import MarkedBy, Step, TableCapture
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.source.capture.install import (
    SqlCapture,
    existing_triggers,
    has_tables,
    own_steps,
    refusals,
    trigger_drop_steps,
)
from migrator.source.capture.log.place import (
    COLUMNS,
    HAS_PUBLICATION,
    LOG,
    SYSTEM,
    LogPlace,
    MarkedTable,
    loss,
    marked_table,
    place_of_log,
    slot_named,
    slot_of,
    tables_of,
    tables_text,
)
from migrator.source.capture.log.reader import LogMarks
from migrator.source.engines.ddl import Ddl, respelled
from migrator.source.engines.postgresql.capture import literal, quoted
from migrator.source.engines.postgresql.server import NAMED, named
from migrator.source.sql.transactions import Writing

# ── What capture from the log needs of a PostgreSQL server ──


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
                " made of; install without --by log"
            )
        elif column.kind.name in ("list", "map"):
            yield (
                f"table {table.name}: keys or links are made of {quoted(column.real)}, an array or a composite, which the"
                " log writes in another form; install without --by log"
            )


_PUBLISHED = sa.text("""
    SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = :name ORDER BY 1
""")
_WHOLE = sa.text("""
    SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE p.pubname = :name AND r.prqual IS NULL AND r.prattrs IS NULL
""")
"""Tables of which every row and column is published."""
_PUBLISHES_ALL = sa.text("""
    SELECT EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = :name AND p.pubinsert AND p.pubupdate
        AND p.pubdelete AND p.pubtruncate AND NOT p.pubviaroot)
""")
_PUBLISH = "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"
_FORGET = f"DELETE FROM {LOG}"
_DROP_LOG = f"DROP TABLE IF EXISTS {LOG}"
_RELEASE_S = 30.0
"""So long a slot is waited for that a relay still reads: the relay sees within seconds that it is to stop."""
_SLOT_WAIT = "SET LOCAL lock_timeout = '60s'"
"""A slot is made when all transactions that write just then have ended; nothing waits for it meanwhile."""


class LogCapture(SqlCapture):
    """SqlCapture of PostgreSQL, which may be captured from its log as well. `marks`: those that the log is copied to."""

    def __init__(
        self, writing: Writing, job: str, marks: LogMarks, wait: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__(writing)
        self._job = job
        self._marks = marks
        self._wait = wait

    def at_once(self) -> LogCapture:
        return LogCapture(self._writing.at_once(), self._job, self._marks, self._wait)

    def refusals(self, tables: Sequence[Captured], marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by != "log":
            return super().refusals(tables, marked_by)

        def work(connection: Connection, ddl: Ddl) -> list[str]:
            return [
                *refusals(connection, ddl, tables, by_triggers=False),
                *server_faults(connection, slot_of(self._job)),
                *table_faults(connection, tables),
            ]

        return self._writing.look("looking for what the log needs", work)

    def limits(self, marked_by: MarkedBy = "triggers") -> list[str]:
        if marked_by != "log":
            return super().limits(marked_by)
        return self._writing.look(
            "looking for what a slot costs", lambda connection, _: list(server_limits(connection))
        )

    def install_steps(
        self, tables: Sequence[Captured], job: str, marked_by: MarkedBy = "triggers"
    ) -> list[Step]:
        place, lost = self._placed()
        if marked_by != "log":
            steps = super().install_steps(tables, job, marked_by)
            self.means = "triggers"
            return steps if place is None else [*steps, *self._to_triggers(place, lost)]
        self.means = MEANS

        def work(connection: Connection, ddl: Ddl) -> list[Step]:
            own = self._own_steps(connection, ddl, job)
            return [*own, *_log_steps(connection, ddl, tables, slot_of(job), place, lost)]

        return self._writing.look("comparing the publication", work)

    def uninstall_steps(self) -> list[Step]:
        return [*self._log_away(), *super().uninstall_steps()]

    def taken_away(self, tables: Sequence[str]) -> str:
        if self.means == MEANS:
            return "the replication slot, the publication and our tables are taken away"
        return super().taken_away(tables)

    def do(self, step: Step) -> None:
        if _is_switch(step):
            # Triggers leave the marks by now; what is only in the log goes with the slot.
            self._marks.drain()
        if any("pg_drop_replication_slot" in statement for statement in step.statements):
            self._drop_slot(step)
            return
        super().do(step)

    def states(self, tables: Sequence[Captured]) -> list[TableCapture]:
        installation = self.installation()
        if installation is None or installation.marked_by != "log":
            self.means = "triggers"
            return super().states(tables)
        self.means = MEANS

        def work(connection: Connection, ddl: Ddl) -> list[TableCapture]:
            place = place_of_log(connection)
            refused = dict.fromkeys(one.table for one in existing_triggers(connection, ddl) if one.refuses)
            own = {table.name for table in tables}
            return [
                *_states(connection, tables, place),
                *(TableCapture(name, "refused") for name in refused if name not in own),
            ]

        return self._writing.look("comparing the publication", work)

    # ── steps ──

    def _placed(self) -> tuple[LogPlace | None, str]:
        def work(connection: Connection, _: Ddl) -> tuple[LogPlace | None, str]:
            place = place_of_log(connection)
            return place, "" if place is None else loss(connection, place)

        return self._writing.look("looking at the replication slot", work)

    def _own_steps(self, connection: Connection, ddl: Ddl, job: str) -> list[Step]:
        table = f"CREATE TABLE IF NOT EXISTS {LOG} ({COLUMNS})"
        own = own_steps(connection, ddl, job, "log")
        if own:
            first = own[0]
            undo = (_DROP_LOG, *first.undo) if first.undo else ()
            return [Step("", (*first.statements, table), undo), *own[1:]]
        has_log = connection.exec_driver_sql(f"SELECT to_regclass('{LOG}') IS NOT NULL").scalar_one()
        return [] if has_log else [Step("", (table,), (_DROP_LOG,))]

    def _to_triggers(self, place: LogPlace, lost: str) -> list[Step]:
        def switch(connection: Connection, ddl: Ddl) -> Step:
            values = "marked_by = 'triggers'" + (f", installation = '{uuid.uuid4().hex}'" if lost else "")
            return Step("", (f"UPDATE {ddl.ticket} SET {values} WHERE id = 1", _FORGET))

        step = self._writing.look("comparing triggers", switch)
        if lost:
            # Nothing can be copied any more, and the new installation id shows that changes may be missing.
            step = replace(step, statements=tuple(reversed(step.statements)))
        return [step, *(step for step in self._log_away() if step.statements != (_FORGET,))]

    def _log_away(self) -> list[Step]:
        """The slot goes first: while it is there the server keeps its log for it."""

        def work(connection: Connection, _: Ddl) -> list[Step]:
            name, place = slot_of(self._job), place_of_log(connection)
            slot = slot_named(connection, name)
            is_ours = (
                slot is not None
                and slot.database == connection.exec_driver_sql("SELECT current_database()").scalar_one()
            )
            steps = [Step("", (_FORGET,))] if place is not None else []
            steps += [Step("", (_drop_slot_sql(name),))] if is_ours else []
            if connection.execute(HAS_PUBLICATION, {"name": name}).scalar_one():
                steps.append(Step("", (f"DROP PUBLICATION {quoted(name)}",)))
            if connection.exec_driver_sql(f"SELECT to_regclass('{LOG}') IS NOT NULL").scalar_one():
                steps.append(Step("", (_DROP_LOG,)))
            self.means = MEANS if steps else self.means
            return steps

        return self._writing.look("looking for the publication", work)

    def _drop_slot(self, step: Step) -> None:
        """Raises: SettingsError where a relay goes on reading it."""
        self._marks.leave()
        end = time.monotonic() + _RELEASE_S
        while (pid := self._reader_pid()) is not None:
            if time.monotonic() > end:
                what = f"the replication slot {slot_of(self._job)} is read by the server's process {pid}"
                raise SettingsError(f"{what}; stop the job's relays, then give the same command again")
            self._wait(0.2)
        super().do(step)

    def _reader_pid(self) -> int | None:
        def work(connection: Connection, _: Ddl) -> int | None:
            slot = slot_named(connection, slot_of(self._job))
            return None if slot is None else slot.active_pid

        return self._writing.look("looking at the replication slot", work)


MEANS = "publication and slot"


def _is_switch(step: Step) -> bool:
    """From the log to triggers, where the log can still be read."""
    return len(step.statements) == 2 and step.statements[1] == _FORGET


def _drop_slot_sql(name: str) -> str:
    return f"SELECT pg_catalog.pg_drop_replication_slot({literal(name)})"


def _log_steps(
    connection: Connection,
    ddl: Ddl,
    tables: Sequence[Captured],
    name: str,
    place: LogPlace | None,
    lost: str,
) -> Iterator[Step]:
    """What is to be done until the slot gives all changes of the tables. The publication comes first: a slot looks for it
    at the moment of each change."""
    slot = slot_named(connection, name)
    goes_on = slot is not None and place is not None and not lost
    text = tables_text(tables)
    if goes_on and place is not None and place.tables != text:
        # First: of a table that is not among these a change would be passed by.
        yield from _kept_steps(place.tables, text)
    if not goes_on and place is not None:
        renamed = f"UPDATE {ddl.ticket} SET installation = '{uuid.uuid4().hex}' WHERE id = 1"
        yield Step("", (_FORGET, renamed))
    if not goes_on and slot is not None:
        yield Step("", (_drop_slot_sql(name),))
    yield from _publication_steps(connection, tables, name, waits=goes_on)
    if not goes_on:
        yield Step("", (_SLOT_WAIT, _create_slot(connection, name)), (_drop_slot_sql(name),))
        yield Step("", (_first_place(name, text),))
    yield from _from_others(connection, ddl, tables)


def _kept_steps(before: str, now: str) -> Iterator[Step]:
    """Steps that keep what marks are made of, a table at a time."""
    kept, wanted = json.loads(before), json.loads(now)
    for name in sorted(kept.keys() | wanted.keys()):
        if kept.get(name) == wanted.get(name):
            continue
        kept = {other: table for other, table in kept.items() if other != name}
        kept |= {name: wanted[name]} if name in wanted else {}
        text = json.dumps(kept, sort_keys=True)
        yield Step(name, (f"UPDATE {LOG} SET tables = {literal(text)} WHERE id = 1",))


def _create_slot(connection: Connection, name: str) -> str:
    version = int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one())
    failover = ", failover => true" if version >= 170_000 else ""
    return f"SELECT pg_catalog.pg_create_logical_replication_slot({literal(name)}, 'pgoutput'{failover})"


def _first_place(name: str, text: str) -> str:
    now = "extract(epoch FROM clock_timestamp())"
    return (
        f"INSERT INTO {LOG} (id, slot, system, lsn, passed_at, tables) SELECT 1, slot_name, {SYSTEM}, confirmed_flush_lsn,"
        f" {now}, {literal(text)} FROM pg_catalog.pg_replication_slots WHERE slot_name = {literal(name)}"
    )


def _publication_steps(
    connection: Connection, tables: Sequence[Captured], name: str, *, waits: bool
) -> Iterator[Step]:
    """`waits`: the slot is there, so that no slot's making waits for transactions that write the table just now."""
    publication = quoted(name)
    if not connection.execute(HAS_PUBLICATION, {"name": name}).scalar_one():
        yield Step(
            "",
            (f"CREATE PUBLICATION {publication} WITH ({_PUBLISH})",),
            (f"DROP PUBLICATION {publication}",),
        )
    elif not connection.execute(_PUBLISHES_ALL, {"name": name}).scalar_one():
        yield Step("", (f"ALTER PUBLICATION {publication} SET ({_PUBLISH})",))
    there = set(connection.scalars(_PUBLISHED, {"name": name}))
    partly = there - set(connection.scalars(_WHOLE, {"name": name}))
    for table in tables:
        if table.name in partly:
            yield Step(table.name, (f"ALTER PUBLICATION {publication} DROP TABLE {_quoted(table)}",))
        if table.name not in there - partly:
            add = f"ALTER PUBLICATION {publication} ADD TABLE {_quoted(table)}"
            yield Step(table.name, (_after_writers(table, add) if waits else add,))
    for extra in sorted(there - {table.name for table in tables}):
        schema, _, real = extra.partition(".")
        yield Step(extra, (f"ALTER PUBLICATION {publication} DROP TABLE {quoted(schema)}.{quoted(real)}",))


def _after_writers(table: Captured, statement: str) -> str:
    """The statement after all writers of the table have ended; as one, since printed steps have no transaction."""
    return f"DO $migrator$ BEGIN LOCK TABLE {_quoted(table)} IN SHARE MODE; {statement}; END $migrator$"


def _from_others(connection: Connection, ddl: Ddl, tables: Sequence[Captured]) -> Iterator[Step]:
    """Triggers, or services, have left the marks so far. Both do for a moment: a mark too many does no harm."""
    if not has_tables(connection, ddl):
        return
    marked_by = connection.exec_driver_sql(f"SELECT marked_by FROM {ddl.ticket} WHERE id = 1").scalar()
    if marked_by != "log":
        yield Step("", (f"UPDATE {ddl.ticket} SET marked_by = 'log' WHERE id = 1",))
    yield from trigger_drop_steps(connection, ddl, tables)


def _quoted(captured: Captured) -> str:
    table = captured.table
    return quoted(table.real) if table.schema is None else f"{quoted(table.schema)}.{quoted(table.real)}"


# ── states ──


def _states(
    connection: Connection, tables: Sequence[Captured], place: LogPlace | None
) -> Iterator[TableCapture]:
    if place is None or loss(connection, place):
        yield from (TableCapture(table.name, "lost") for table in tables)
        return
    published = set(connection.scalars(_PUBLISHED, {"name": place.slot}))
    whole = set(connection.scalars(_WHOLE, {"name": place.slot}))
    if not connection.execute(_PUBLISHES_ALL, {"name": place.slot}).scalar_one():
        whole = set()
    kept, not_held = tables_of(place.tables), unheld(connection, tables)
    for table in tables:
        yield _state(table, kept, not_held, is_published=table.name in whole)
    for name in sorted(published - {table.name for table in tables}):
        yield TableCapture(name, "extra")


def _state(
    table: Captured,
    kept: Mapping[str, MarkedTable],
    not_held: Mapping[str, tuple[str, ...]],
    *,
    is_published: bool,
) -> TableCapture:
    before, now = kept.get(table.name), marked_table(table)
    if before is None or not is_published:
        return TableCapture(table.name, "missing")
    if table.name in not_held:
        return TableCapture(table.name, "unidentified", (), not_held[table.name])
    old, new = _named(before), _named(now)
    if old != new or (before.watched is None) != (now.watched is None):
        return TableCapture(table.name, "stale", tuple(sorted(new - old)), tuple(sorted(old - new)))
    is_swapped, gone = respelled(table, before.words)
    if is_swapped or gone:
        return TableCapture(table.name, "stale", (), gone)
    return TableCapture(table.name, "captured")


def _named(table: MarkedTable) -> set[str]:
    return {real for _, real in table.columns} | (table.watched or set())
