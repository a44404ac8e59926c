"""MySQL's replication protocol over PyMySQL: events of the binary log after a set of GTIDs, as marks of transactions.

Source: MySQL Reference Manual, "Replication Protocol"; mysql-server, sql/rpl_binlog_sender.cc.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from migrator.mapping.model.live import KeptMark, SlotLag
from migrator.runtime.errors import SourceError
from migrator.runtime.logs import get_logger
from migrator.runtime.values import replace
from migrator.source.capture.log.changes import MarkedTable, RelationMarks, tables_of, whole_table
from migrator.source.capture.log.mysql import events
from migrator.source.capture.log.mysql.gtids import GtidSet
from migrator.source.capture.log.mysql.server import BinlogPosition, binlog_lag, loss, place_of_log
from migrator.source.capture.log.reader import (
    Changed,
    LogInUseError,
    LogPlace,
    Passed,
    Received,
    log_table,
)
from migrator.source.engines.base import Address, ConnectionOptions
from migrator.source.engines.connect import write_engine
from migrator.source.engines.ddl import Ddl
from migrator.source.engines.mysql.capture import home_of
from migrator.source.engines.shared import places
from migrator.source.sql.transactions import Writing, source_error

# ── Effects on rows of a statement in the binary log that has no row events ──

Effect = Literal["emptied", "unknown"]
"""Of a table: its rows were only deleted, or any may have been added or changed."""

_COMMENTS = re.compile(
    r"/\*(?![!+]).*?\*/|(?<!\S)(?:--(?=\s)|#).*?$|/\*[!+]\d*|\*/", re.DOTALL | re.MULTILINE
)
_NAMES = re.compile(r"`((?:[^`]|``)+)`|\"((?:[^\"]|\"\")+)\"|([\w$\x80-\U0010ffff]+)")
_WRITES = r"INSERT|REPLACE|UPDATE|DELETE|LOAD|WITH|CALL|EXECUTE"
_EMPTIES = re.compile(r"TRUNCATE\b|ALTER\b.*?\b(?:DROP|TRUNCATE)\s+PARTITION\b", re.DOTALL)
_UNKNOWN = re.compile(
    rf"(?:{_WRITES})\b|RENAME\s+TABLE\b"
    r"|ALTER\b.*?\b(?:EXCHANGE\s+PARTITION|IMPORT|DISCARD|RENAME(?!\s+(?:COLUMN|INDEX|KEY)\b))",
    re.DOTALL,
)


def effect_of(text: str, schema: str, tables: Iterable[MarkedTable], home: str) -> dict[str, Effect]:
    """The effect of a statement on rows by captured table; too much rather than too little.

    `schema`: the session's.
    `home`: the schema of tables without one in their name.
    """
    plain = _COMMENTS.sub(" ", text).strip()
    words = plain.upper()
    effect: Effect | None = None
    if _EMPTIES.match(words):
        effect = "emptied"
    elif _UNKNOWN.match(words):
        effect = "unknown"
    if effect is None:
        return {}
    named = {_plain(found).casefold() for found in _NAMES.finditer(plain)}
    return {table.name: effect for table in tables if _is_named(table, schema, named, home)}


def _plain(found: re.Match[str]) -> str:
    return str(next(filter(None, found.groups()))).replace("``", "`").replace('""', '"')


def _is_named(table: MarkedTable, schema: str, named: set[str], home: str) -> bool:
    if "\ufffd" in "".join(named):
        # A name that is not in UTF-8 may be the table's.
        return True
    schemas = named | {schema.casefold()}
    return any(
        own in schemas and name in named for own, name in places(table.name.casefold(), home.casefold())
    )


_log = get_logger("log_capture")
_DUMP_GTID = 0x1E
_THROUGH_GTID = 4
_HEARTBEAT_S = 1
_SILENCE_S = 30.0
"""The server sends something every _HEARTBEAT_S seconds; after this long without data the connection is lost."""
_WHOLE_PACKET = 2**24 - 1
_AT_ONCE = 1 << 18
_REFUSED = {
    1227: "the user may not read the log; GRANT REPLICATION SLAVE ON *.* TO it",
    1236: "the server does not have that part of its log, or cannot read it",
}
_ENDED = "the server ended the stream; it is opened again"


class PacketStream:
    def __init__(self, address: Address, name: str, lock: str, place: str) -> None:
        """Raises: LogInUseError if another connection has the lock; SourceError."""
        self._place = place
        self._engine = write_engine(address, ConnectionOptions(name=name, pool_size=1))
        self._received = bytearray()
        self._heard_at = time.monotonic()
        try:
            pooled = self._engine.raw_connection()
            self._connection: Any = pooled.driver_connection
            # Not returned to the pool, which could not use it again.
            pooled.detach()
            self._begin(lock)
        except BaseException as error:
            self.close()
            if isinstance(error, SQLAlchemyError | self._engine.dialect.loaded_dbapi.Error):
                raise source_error(error, place, "connecting to read the log") from None
            raise

    def _begin(self, lock: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, 0)", (lock,))
            if cursor.fetchone() != (1,):
                raise LogInUseError(f"{self._place}: another reader has the log")
            period = _HEARTBEAT_S * 10**9
            for word in ("source", "master"):
                cursor.execute(f"SET @{word}_binlog_checksum = 'CRC32', @{word}_heartbeat_period = {period}")
            # Without one the server would end replicas' connections with the same number.
            cursor.execute("SET @replica_uuid = UUID(), @slave_uuid = UUID()")

    def start(self, read: GtidSet) -> None:
        """Receive all transactions that are not in the set, in the log's order. Raises: SourceError."""
        number, encoded = secrets.randbits(31) | 1 << 31, read.encoded()
        head = struct.pack("<HIIQI", _THROUGH_GTID, number, 0, 4, len(encoded))
        try:
            self._connection._execute_command(_DUMP_GTID, head + encoded)
        except (self._engine.dialect.loaded_dbapi.Error, OSError):
            raise self._error(_ENDED) from None

    def receive(self, wait_s: float) -> bytes | None:
        """Return None if no event came in time. Raises: SourceError if the stream ended."""
        packet = self._packet()
        if packet is None and self._fill(wait_s):
            packet = self._packet()
        if packet is None:
            if time.monotonic() - self._heard_at > _SILENCE_S:
                raise self._error(_ENDED)
            return None
        if packet[0] == 0xFF:
            number = int.from_bytes(packet[1:3], "little")
            raise self._error(f"error {number}: {_REFUSED.get(number, _ENDED)}")
        if packet[0]:
            raise self._error(_ENDED)
        return packet[1:]

    def close(self) -> None:
        with suppress(Exception):
            self._connection._force_close()
        self._engine.dispose()

    def _error(self, why: str) -> SourceError:
        return SourceError(f"{self._place}: reading the log: {why}")

    def _packet(self) -> bytes | None:
        data, at, parts = self._received, 0, []
        while len(data) >= at + 4:
            size = int.from_bytes(data[at : at + 3], "little")
            if len(data) < at + 4 + size:
                return None
            parts.append(bytes(data[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < _WHOLE_PACKET:
                del data[:at]
                return b"".join(parts)
        return None

    def _fill(self, wait_s: float) -> bool:
        socket = self._connection._sock
        try:
            socket.settimeout(wait_s)
            more = socket.recv(_AT_ONCE)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return False
        except (OSError, AttributeError):
            raise self._error(_ENDED) from None
        if not more:
            raise self._error(_ENDED)
        self._received += more
        self._heard_at = time.monotonic()
        return True


# ── The log, for its reader ──

_CLAIM = "UPDATE {log} SET reader = :reader WHERE id = 1"
_ASK = "UPDATE {log} SET asked = asked + 1 WHERE id = 1"
_KEEP = """
    UPDATE {log} SET gtids = :gtids, held = :held, file = :file, place = :place,
        passed_at = GREATEST(passed_at, :at) WHERE id = 1 AND reader = :reader AND tables = :tables
"""
_LOCKED = sa.text("SELECT IS_USED_LOCK(:lock)")
_CHARSETS = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"


def lock_of(ddl: Ddl) -> str:
    """A name that is unique in the whole server."""
    return f"migrator_{hashlib.sha256(log_table(ddl).encode()).hexdigest()[:16]}"


class Binlog:
    def __init__(self, writing: Writing, address: Address, name: str) -> None:
        self._writing = writing
        self._address = address
        self._name = name

    def place(self, connection: Connection, ddl: Ddl) -> LogPlace | None:
        return place_of_log(connection, ddl)

    def loss(self, connection: Connection, place: LogPlace) -> str:
        return loss(connection, place)

    def lag(self, connection: Connection, place: LogPlace, now_s: float) -> SlotLag:
        return binlog_lag(connection, place, now_s, has_reader=self.is_read(connection, place))

    def is_read(self, connection: Connection, _: LogPlace) -> bool:
        lock = lock_of(self._writing.ddl(connection))
        return connection.execute(_LOCKED, {"lock": lock}).scalar() is not None

    def ask(self, connection: Connection, ddl: Ddl) -> BinlogPosition:
        connection.exec_driver_sql(_ASK.format(log=log_table(ddl)))
        return BinlogPosition(_executed(connection))

    def open(self, _: LogPlace) -> BinlogChanges:
        reader, writing = secrets.token_hex(8), self._writing

        def look(connection: Connection, ddl: Ddl) -> tuple[str, str, dict[int, str]]:
            charsets = {int(id_): str(name) for id_, name in connection.exec_driver_sql(_CHARSETS)}
            return lock_of(ddl), home_of(ddl), charsets

        def claim(connection: Connection, ddl: Ddl) -> None:
            connection.execute(sa.text(_CLAIM.format(log=log_table(ddl))), {"reader": reader})

        lock, home, charsets = writing.look("preparing to read the log", look)
        packets = PacketStream(self._address, self._name, lock, writing.place)
        try:
            # A former reader can no longer store what it has not stored yet.
            writing.write("taking the log over", claim)
        except BaseException:
            packets.close()
            raise
        return BinlogChanges(packets, reader, home, events.Decoder(charsets, _converting(writing)))

    def sees(self, connection: Connection, transactions: set[str]) -> bool:
        """Whether the transactions are among the executed ones, as once others see them."""
        return _executed(connection) >= GtidSet.of(",".join(transactions))

    def keep(
        self, connection: Connection, ddl: Ddl, stream: BinlogChanges, place: LogPlace, passed: Passed
    ) -> bool:
        position: BinlogPosition = passed.position
        # In this order: everything executed by then was committed before that moment.
        now = float(connection.exec_driver_sql(f"SELECT {ddl.now}").scalar_one())
        executed = BinlogPosition(_executed(connection))
        values = {
            "gtids": position.read.text(),
            "held": position.held_text(),
            "file": position.file,
            "place": position.place,
            "at": now if position >= executed else passed.at,
            "reader": stream.reader,
            "tables": place.tables,
        }
        return bool(connection.execute(sa.text(_KEEP.format(log=log_table(ddl))), values).rowcount)

    def trial(self, ddl: Ddl) -> str:
        return f"UPDATE {log_table(ddl)} SET asked = asked WHERE 1 = 0"


def _executed(connection: Connection) -> GtidSet:
    return GtidSet.of(str(connection.exec_driver_sql("SELECT @@GLOBAL.gtid_executed").scalar_one()))


def _converting(writing: Writing) -> Callable[[str, bytes], str]:
    """Converts bytes by the server, except in simple cases: Python lacks some of its codecs."""

    @lru_cache(maxsize=10_000)
    def by_server(charset: str, data: bytes) -> str:
        asked = f"SELECT CONVERT(_{charset} X'{data.hex()}' USING utf8mb4)"
        return writing.look(
            "reading a text of the log", lambda connection, _: str(connection.exec_driver_sql(asked).scalar())
        )

    def text(charset: str, data: bytes) -> str:
        if charset in _UTF8:
            return data.decode(errors="surrogateescape")
        if data.isascii() and charset not in _WITHOUT_ASCII:
            return data.decode("ascii")
        return by_server(charset, data)

    return text


_UTF8 = ("utf8mb4", "utf8mb3", "utf8")
_WITHOUT_ASCII = ("ucs2", "utf16", "utf16le", "utf32", "swe7")
_XA = re.compile(r"XA\s+(START|BEGIN|COMMIT|ROLLBACK)\s+(.*)", re.DOTALL | re.IGNORECASE)
_BEGINS = re.compile(r"BEGIN\b", re.IGNORECASE)
_ENDS = re.compile(r"(?:COMMIT|ROLLBACK)\b(?!\s+TO\b)", re.IGNORECASE)
_BLIND = "{}"
"""The image of a change without information on its row: its mark becomes a finding, and verify --repair finds the row."""


class BinlogChanges:
    """`reader`: its name in our row.
    `home`: the database of our tables.
    """

    waits = False

    def __init__(self, packets: PacketStream, reader: str, home: str, decoder: events.Decoder) -> None:
        self.reader = reader
        self._packets = packets
        self._home = home
        self._decoder = decoder
        self._tables: Mapping[str, MarkedTable] = {}
        self._position = BinlogPosition()
        self._out: deque[Received] = deque()
        self._made: dict[int, RelationMarks | None] = {}
        self._asked_place: dict[int, int] = {}
        """By the number of our position table, the position of its column `asked`."""
        self._transaction = _Transaction()
        self._prepared: dict[str, _Transaction] = {}
        self._is_asked = False

    def begin(self, place: LogPlace) -> None:
        self._tables = tables_of(place.tables)
        # Held transactions are sent again.
        self._position = replace(place.position, held=())
        self._packets.start(self._position.read)

    def confirm(self, position: BinlogPosition) -> None:
        """Does nothing: the server keeps its log by age, read or not."""

    def ask(self) -> None:
        """Does nothing: the server sends everything available."""

    def close(self) -> None:
        self._packets.close()

    def receive(self, wait_s: float) -> Received | None:
        if not self._out:
            data = self._packets.receive(wait_s)
            if data is None:
                return None
            event = self._decoder.decode(data)
            if end := events.HEADER.unpack_from(data)[4]:
                self._position = replace(self._position, place=end)
            self._take(event)
        return self._out.popleft() if self._out else Changed()

    def _take(self, event: events.Event | None) -> None:
        match event:
            case events.Begin(gtid=gtid, at=at):
                self._transaction = _Transaction(gtid, at)
            case events.TableMap():
                self._made[event.id] = self._marks_of(event)
            case events.RowsEvent():
                self._rows(event)
            case events.Query(schema=schema, text=text):
                self._query(schema, text.strip())
            case events.End(is_prepared=is_prepared):
                if is_prepared:
                    self._hold()
                else:
                    self._end()
            case events.Rotate(file=file):
                self._position = replace(self._position, file=file)
                self._made.clear()
                self._asked_place.clear()
            case events.Incident():
                self._leave_blind(self._tables.values(), "log_has_a_gap")
            case None:
                pass

    # ── rows ──

    def _marks_of(self, table: events.TableMap) -> RelationMarks | None:
        if (table.schema, table.name) == (self._home, "migrator_log"):
            names = [column.name for column in table.columns]
            self._asked_place |= {table.id: names.index("asked")} if "asked" in names else {}
        known = self._tables.get(f"{table.schema}.{table.name}")
        if known is None and table.schema == self._home:
            known = self._tables.get(table.name)
        return None if known is None else RelationMarks(known, table)

    def _rows(self, rows: events.RowsEvent) -> None:
        changes = rows.changes or ()
        if (place := self._asked_place.get(rows.table)) is not None:
            # A reader's update of the position leaves it unchanged.
            self._is_asked |= any(
                change.old and change.new and change.old[place] != change.new[place] for change in changes
            )
        made = self._made[rows.table]
        if made is None:
            return
        if rows.changes is None:
            self._leave_blind([made.table], "log_lacks_columns")
        kept = (made.kept(change, self._transaction.at) for change in changes)
        self._leave([mark for mark in kept if mark is not None])

    def _leave_blind(self, tables: Iterable[MarkedTable], event: str) -> None:
        names = [table.name for table in tables]
        _log.warning(event, tables=names, remedy="migrator verify --repair")
        self._leave([KeptMark(name, _BLIND, _BLIND, self._transaction.at) for name in names])

    def _leave(self, marks: Sequence[KeptMark]) -> None:
        if self._transaction.xid:
            # Not committed yet.
            self._transaction.marks += marks
        else:
            self._out.append(Changed(marks, self._transaction.name))

    # ── statements, and ends of transactions ──

    def _query(self, schema: str, text: str) -> None:
        if found := _XA.match(text):
            self._xa(found[1].upper(), found[2].partition("/*")[0].strip())
        elif _BEGINS.match(text):
            self._transaction.is_within = True
        elif _ENDS.match(text):
            self._end()
        else:
            self._statement(schema, text)
            if not self._transaction.is_within:
                self._end()

    def _statement(self, schema: str, text: str) -> None:
        effects = effect_of(text, schema, self._tables.values(), self._home)
        emptied = [name for name, effect in effects.items() if effect == "emptied"]
        self._leave([whole_table(self._tables[name], self._transaction.at) for name in emptied])
        if unknown := [self._tables[name] for name in effects if name not in emptied]:
            self._leave_blind(unknown, "log_has_a_statement")

    def _xa(self, word: str, xid: str) -> None:
        if word in ("START", "BEGIN"):
            self._transaction.xid, self._transaction.is_within = xid, True
            return
        prepared = self._prepared.pop(xid, None)
        if prepared is not None:
            self._position = self._position.released(prepared.gtid)
        if word == "COMMIT" and prepared is None:
            # Prepared before capture began: its changes were never read.
            self._leave_blind(self._tables.values(), "log_has_an_older_xa_transaction")
        elif word == "COMMIT" and prepared is not None:
            self._leave(prepared.marks)
        self._end()

    def _hold(self) -> None:
        """Keep the position: a reader that begins before the XA COMMIT gets the transaction again."""
        self._prepared[self._transaction.xid] = self._transaction
        self._position = self._position.holding(self._transaction.gtid)
        self._pass()

    def _end(self) -> None:
        transaction = self._transaction
        if transaction.xid:
            # XA COMMIT … ONE PHASE.
            self._out.append(Changed(transaction.marks, transaction.name))
        self._position = self._position.behind(transaction.gtid)
        self._pass()

    def _pass(self) -> None:
        is_asked, self._is_asked = self._is_asked, False
        self._out.append(Passed(self._position, self._transaction.at, is_asked))


@dataclass
class _Transaction:
    """`xid`: of an XA transaction, whose `marks` wait for its commit.
    `is_within`: its end is a separate event.
    """

    gtid: GtidSet = field(default_factory=GtidSet)
    at: float = 0.0
    xid: str = ""
    marks: list[KeptMark] = field(default_factory=list)
    is_within: bool = False

    @cached_property
    def name(self) -> str:
        return self.gtid.text()
