"""What the source keeps of capture from its log: a row with the slot, how far it is copied, and what marks are made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from migrator.mapping.model.facts import Captured, columns_of
from migrator.mapping.model.live import SlotLag
from migrator.source.capture.log.decoder import lsn_of
from migrator.source.engines.ddl import spelling_of
from migrator.source.engines.postgresql.capture import SCHEMA

LOG = f"{SCHEMA}.log"
COLUMNS = (
    "id integer PRIMARY KEY CHECK (id = 1), slot text NOT NULL, system text NOT NULL, lsn pg_lsn NOT NULL,"
    " passed_at double precision NOT NULL, tables text NOT NULL"
)
"""`lsn`: all before it is among our marks; `passed_at`: when what stands there was committed, seconds since 1970; `tables`:
as MarkedTables.text gives it."""
SYSTEM = "(SELECT system_identifier::text FROM pg_catalog.pg_control_system())"
_LONGEST = 63
"""Bytes of the name of a slot. Source: PostgreSQL's documentation, NAMEDATALEN."""


def slot_of(job: str) -> str:
    """The name of the job's slot and publication. A slot's name has small letters, digits and underscores only."""
    plain = f"migrator_{re.sub(r'[^a-z0-9_]', '_', job)}"
    if plain == f"migrator_{job}" and len(plain) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 9]}_{hashlib.sha256(job.encode()).hexdigest()[:8]}"


# ── What marks are made of, kept at the install: the reader knows no mapping ──


class MarkedTable(Struct, frozen=True):
    """`columns`: (written name, real name) of those that images hold. `watched`: real names; None: any update is marked.
    `words`: as spelling_of() gives them."""

    name: str
    columns: tuple[tuple[str, str], ...]
    watched: frozenset[str] | None
    words: Mapping[str, Sequence[str]]

    @property
    def reals(self) -> set[str]:
        """Real names of the columns that images hold."""
        return {real for _, real in self.columns}


def marked_table(captured: Captured) -> MarkedTable:
    columns = tuple((column.name, column.real) for column in columns_of(captured, captured.columns))
    watched = None
    if captured.watched is not None:
        watched = frozenset(column.real for column in columns_of(captured, captured.watched))
    return MarkedTable(captured.name, columns, watched, spelling_of(captured))


def tables_text(tables: Sequence[Captured]) -> str:
    """The tables as JSON, in one form."""
    made = {}
    for table in map(marked_table, tables):
        made[table.name] = {
            "columns": dict(table.columns),
            "watched": None if table.watched is None else sorted(table.watched),
            "words": {name: list(words) for name, words in table.words.items()},
        }
    return json.dumps(made, sort_keys=True)


def tables_of(text: str) -> dict[str, MarkedTable]:
    return {
        name: MarkedTable(
            name,
            tuple(table["columns"].items()),
            None if table["watched"] is None else frozenset(table["watched"]),
            table["words"],
        )
        for name, table in json.loads(text).items()
    }


# ── The row, and the slot as the server has it ──


class LogPlace(Struct, frozen=True):
    """How far the log is copied."""

    slot: str
    system: str
    lsn: int
    passed_at: float
    tables: str


class ReplicationSlot(Struct, frozen=True):
    """A replication slot. `kept`: bytes of the log that the server keeps for it; `behind`: bytes that were written since its
    confirmed position. `room`: bytes that may still be written before it is lost; None without a limit."""

    plugin: str
    database: str
    active_pid: int | None
    wal_status: str
    confirmed: int
    kept: int
    behind: int
    room: int | None


_PLACE = sa.text(f"SELECT slot, system, lsn::text AS lsn, passed_at, tables FROM {LOG} WHERE id = 1")
_SLOT = sa.text("""
    SELECT plugin, coalesce(database, '') AS database, active_pid, coalesce(wal_status, 'reserved') AS wal_status,
        coalesce(confirmed_flush_lsn, '0/0')::text AS confirmed,
        coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn), 0) AS kept,
        coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), confirmed_flush_lsn), 0) AS behind,
        safe_wal_size AS room
    FROM pg_catalog.pg_replication_slots WHERE slot_name = :slot
""")
HAS_PUBLICATION = sa.text("SELECT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = :name)")
_HAS_LOG = f"SELECT pg_catalog.to_regclass('{LOG}') IS NOT NULL"
_HERE = f"SELECT {SYSTEM}, pg_catalog.current_database()"


def place_of_log(connection: Connection) -> LogPlace | None:
    """None where the log is not captured."""
    if not connection.exec_driver_sql(_HAS_LOG).scalar_one():
        return None
    row = connection.execute(_PLACE).first()
    return None if row is None else LogPlace(row.slot, row.system, lsn_of(row.lsn), row.passed_at, row.tables)


def slot_named(connection: Connection, name: str) -> ReplicationSlot | None:
    row = connection.execute(_SLOT, {"slot": name}).first()
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
    """Why changes may be missing in what the slot still gives; '' where none is."""
    system, database = connection.exec_driver_sql(_HERE).one()
    slot = slot_named(connection, place.slot)
    if system != place.system:
        return "this is another server than the one that capture was installed on"
    if slot is None or slot.database != database:
        return f"the replication slot {place.slot} is gone (dropped, or lost in a restore or a fail-over)"
    if slot.wal_status == "lost":
        return f"the replication slot {place.slot} was invalidated (max_slot_wal_keep_size, idle_replication_slot_timeout)"
    if not connection.execute(HAS_PUBLICATION, {"name": place.slot}).scalar_one():
        return f"the publication {place.slot} is gone"
    if slot.confirmed > place.lsn:
        return f"the replication slot {place.slot} was made again, or another program read from it"
    return ""


# ── The lag, as `status` shows it ──


def slot_lag(connection: Connection, place: LogPlace, now_s: float) -> SlotLag:
    slot, lost = slot_named(connection, place.slot), loss(connection, place)
    seconds = max(0.0, now_s - place.passed_at)
    if slot is None:
        return SlotLag(place.slot, 0, 0, None, seconds, has_reader=False, lost=lost)
    reads = slot.active_pid is not None
    return SlotLag(place.slot, slot.behind, slot.kept, slot.room, seconds, reads, lost)
