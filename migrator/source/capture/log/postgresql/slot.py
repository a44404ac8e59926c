"""PostgreSQL's log: the replication slot, our row with the position in it, and its messages as marks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.live import SlotLag
from migrator.runtime.errors import SourceError
from migrator.source.capture.log.changes import MarkedTable, RelationMarks, RowChange, tables_of, whole_table
from migrator.source.capture.log.postgresql import protocol
from migrator.source.capture.log.postgresql.protocol import (
    LOG_QUERIES,
    Keepalive,
    SlotInUseError,
    Stream,
    lsn_of,
    lsn_text,
)
from migrator.source.capture.log.reader import Changed, LogInUseError, LogPlace, Passed, Received
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.postgresql.capture import SCHEMA
from migrator.source.sql.transactions import Writing

LOG = f"{SCHEMA}.log"
COLUMNS = (
    "id integer PRIMARY KEY CHECK (id = 1), slot text NOT NULL, system text NOT NULL, lsn pg_lsn NOT NULL,"
    " passed_at double precision NOT NULL, tables text NOT NULL"
)
"""As in LogPlace."""
_SYSTEM = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())"
_LONGEST = 63
"""Bytes of a slot's name. Source: PostgreSQL's documentation, NAMEDATALEN."""


def published(publication: str) -> str:
    """SQL for the identity of the server and a publication (SQL of its name); it changes if the publication is
    re-created.
    """
    return f"{_SYSTEM} || '/' || (SELECT oid FROM pg_catalog.pg_publication WHERE pubname = {publication})"


def slot_of(job: str) -> str:
    """The name of the job's slot, which may contain only lower-case letters, digits and underscores."""
    plain = f"migrator_{re.sub(r'[^a-z0-9_]', '_', job)}"
    if plain == f"migrator_{job}" and len(plain) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 9]}_{hashlib.sha256(job.encode()).hexdigest()[:8]}"


# ── The row, and the slot on the server ──


class ReplicationSlot(Struct, frozen=True):
    """`kept`: bytes of log that the server keeps for it.
    `behind`: bytes written since its confirmed position.
    `room`: bytes that may still be written before it is lost; None without a limit.
    """

    plugin: str
    database: str
    active_pid: int | None
    wal_status: str
    confirmed: int
    kept: int
    behind: int
    room: int | None


_PLACE = sa.text(f"SELECT slot, system, lsn::text AS lsn, passed_at, tables FROM {LOG} WHERE id = 1")
HAS_PUBLICATION = sa.text("SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = :name)")
_HAS_LOG = f"SELECT pg_catalog.to_regclass('{LOG}') IS NOT NULL"
_HERE = sa.text(
    f"SELECT {_SYSTEM} AS server, pg_catalog.current_database() AS database, {published(':slot')} AS published"
)


def place_of_log(connection: Connection) -> LogPlace | None:
    if not connection.exec_driver_sql(_HAS_LOG).scalar_one():
        return None
    row = connection.execute(_PLACE).first()
    return None if row is None else LogPlace(row.slot, row.system, lsn_of(row.lsn), row.passed_at, row.tables)


def slot_named(connection: Connection, name: str) -> ReplicationSlot | None:
    row = connection.execute(LOG_QUERIES["slot"], {"slot": name}).first()
    return (
        None
        if row is None
        else ReplicationSlot(**_whole({**row._mapping, "confirmed": lsn_of(row.confirmed)}))
    )


def _whole(values: Mapping[str, Any]) -> dict[str, Any]:
    numbers = ("kept", "behind", "room")
    return {
        name: int(value) if name in numbers and value is not None else value for name, value in values.items()
    }


def loss(connection: Connection, place: LogPlace) -> str:
    here = connection.execute(_HERE, {"slot": place.slot}).one()
    slot = slot_named(connection, place.slot)
    if here.server != place.system.partition("/")[0]:
        return "this is another server than the one that capture was installed on"
    if slot is None or slot.database != here.database:
        return f"the replication slot {place.slot} is gone (dropped, or lost in a restore or a fail-over)"
    if slot.wal_status == "lost":
        return f"the replication slot {place.slot} was invalidated (max_slot_wal_keep_size, idle_replication_slot_timeout)"
    if here.published is None:
        return f"the publication {place.slot} is gone"
    if here.published != place.system:
        return f"the publication {place.slot} was made again, and changes of before are not published"
    if slot.confirmed > place.position:
        return f"the replication slot {place.slot} was made again, or another program read from it"
    return ""


def slot_lag(connection: Connection, place: LogPlace, now_s: float) -> SlotLag:
    slot, lost = slot_named(connection, place.slot), loss(connection, place)
    seconds = max(0.0, now_s - place.passed_at)
    if slot is None:
        return SlotLag(place.slot, 0, 0, None, seconds, has_reader=False, lost=lost)
    reads = slot.active_pid is not None
    return SlotLag(place.slot, slot.behind, slot.kept, slot.room, seconds, reads, lost)


# ── The log, for its reader ──

PREFIX = "migrator"
"""Of messages by which a process asks a reader to store at once what it has read."""
_ASK = f"SELECT pg_catalog.pg_logical_emit_message(true, '{PREFIX}', '')::text"
_SNAPSHOT = "SELECT pg_catalog.pg_current_snapshot()::text"


class SlotLog:
    def __init__(self, writing: Writing, connect: Callable[[], Stream]) -> None:
        self._writing = writing
        self._connect = connect

    def place(self, connection: Connection, _: Ddl) -> LogPlace | None:
        return place_of_log(connection)

    def loss(self, connection: Connection, place: LogPlace) -> str:
        return loss(connection, place)

    def lag(self, connection: Connection, place: LogPlace, now_s: float) -> SlotLag:
        return slot_lag(connection, place, now_s)

    def is_read(self, connection: Connection, place: LogPlace) -> bool:
        slot = slot_named(connection, place.slot)
        return slot is not None and slot.active_pid is not None

    def ask(self, connection: Connection, _: Ddl) -> int:
        return lsn_of(str(connection.exec_driver_sql(_ASK).scalar_one()))

    def open(self, place: LogPlace) -> SlotChanges:
        stream = self._connect()
        try:
            stream.start(place.slot, place.slot)
        except SlotInUseError as error:
            stream.close()
            raise LogInUseError(str(error)) from None
        except SourceError:
            stream.close()
            raise
        return SlotChanges(self._writing, stream)

    def sees(self, connection: Connection, transactions: set[int]) -> bool:
        snapshot = str(connection.exec_driver_sql(_SNAPSHOT).scalar_one())
        return all(protocol.is_visible(xid, snapshot) for xid in transactions)

    def keep(
        self, connection: Connection, _: Ddl, stream: SlotChanges, place: LogPlace, passed: Passed
    ) -> bool:
        lsn = lsn_text(passed.position)
        values = {"lsn": lsn, "at": passed.at, "slot": place.slot, "tables": place.tables}
        return bool(connection.execute(sa.text(LOG_QUERIES.text("keep", log=LOG)), values).rowcount)

    def trial(self, _: Ddl) -> str:
        return f"UPDATE {LOG} SET lsn = lsn WHERE 1 = 0"


class SlotChanges:
    def __init__(self, writing: Writing, stream: Stream) -> None:
        self._writing = writing
        self._stream = stream
        self._slot = ""
        self._tables: Mapping[str, MarkedTable] = {}
        self._relations: dict[int, list[RelationMarks]] = {}
        self._lsn = self._xid = 0
        self._at = 0.0
        self._is_within = self._is_asked = False

    @property
    def waits(self) -> bool:
        return self._stream.waits

    def begin(self, place: LogPlace) -> None:
        self._slot, self._tables, self._lsn = place.slot, tables_of(place.tables), place.position

    def confirm(self, position: int) -> None:
        self._stream.confirm(position)

    def ask(self) -> None:
        self._stream.ask()

    def close(self) -> None:
        self._stream.close()

    def receive(self, wait_s: float) -> Received | None:
        received = self._stream.receive(wait_s)
        if received is None:
            return None
        if not isinstance(received, Keepalive):
            return self._taken(protocol.decode(received))
        if received.wants_reply:
            self._stream.confirm(0)
        if self._is_within or received.lsn <= self._lsn:
            return Changed()
        self._lsn = received.lsn
        return Passed(received.lsn, received.at)

    def _taken(self, message: protocol.Message | None) -> Received:
        match message:
            case protocol.Begin(at=at, xid=xid):
                self._is_within, self._at, self._xid = True, at, xid
            case protocol.Commit(end_lsn=end_lsn):
                is_asked, self._is_asked = self._is_asked, False
                self._is_within, self._lsn = False, end_lsn
                return Passed(end_lsn, self._at, is_asked)
            case protocol.Relation() as relation:
                self._relations[relation.oid] = self._marks_of(relation)
            case RowChange() as change:
                made = (one.kept(change, self._at) for one in self._relations[change.relation])
                return Changed([mark for mark in made if mark is not None], self._xid)
            case protocol.Truncate(relations=oids):
                tables = {one.table.name: one.table for oid in oids for one in self._relations[oid]}
                return Changed([whole_table(table, self._at) for table in tables.values()], self._xid)
            case protocol.Emitted(prefix=prefix):
                self._is_asked |= prefix == PREFIX
            case None:
                pass
        return Changed()

    def _marks_of(self, relation: protocol.Relation) -> list[RelationMarks]:
        """Marks of the tables that it is, or is a partition of; a dropped partition may have been any table's."""

        def work(connection: Connection, _: Ddl) -> tuple[set[str], bool, set[str]]:
            rows = connection.execute(
                LOG_QUERIES["ancestors"], {"oid": relation.oid, "slot": self._slot}
            ).all()
            is_published = any(row.is_published for row in rows)
            return (
                {row.name for row in rows},
                is_published,
                set(connection.scalars(LOG_QUERIES["partitioned"])),
            )

        names, is_published, partitioned = self._writing.look("looking at a partition", work)
        known = (names | {f"{relation.schema}.{relation.name}"}) & self._tables.keys()
        if not known and not is_published:
            held = {column.name for column in relation.columns}
            known = {name for name in partitioned & self._tables.keys() if self._tables[name].reals <= held}
        return [RelationMarks(self._tables[name], relation) for name in sorted(known)]
