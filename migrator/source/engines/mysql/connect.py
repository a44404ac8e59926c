"""PyMySQL connections: read-only snapshots (or plain writes), exact values, one text per key."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from pymysql import converters, err
from pymysql.connections import MAX_PACKET_LEN, MySQLResult
from pymysql.connections import Connection as Session
from pymysql.constants import CLIENT, CR, FIELD_TYPE
from pymysql.cursors import Cursor
from pymysql.protocol import MysqlPacket
from sqlalchemy import Executable
from sqlalchemy.engine import Connection

from migrator.mapping.items.native import _native
from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import LongAnswerError
from migrator.source.engines.base import ConnectionOptions
from migrator.source.engines.mysql.facts import HalfPairs
from migrator.source.engines.mysql.server import is_mariadb

# ── Rows of PyMySQL's text protocol, taken from the received bytes, with columns as text on request ──

_RAW = frozenset(
    {
        *(FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG),
        *(FIELD_TYPE.YEAR, FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL),
        *(FIELD_TYPE.DATE, FIELD_TYPE.TIME, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP),
    }
)
"""Types whose text is all that PyMySQL's converters see of a value."""


def fetched(connection: Connection, statement: Executable, raw: frozenset[int]) -> RawPage:
    """Rows with the columns at these places as text; all as usual if one has another type."""
    driver: Any = connection.connection.driver_connection
    results: list[_Rows] = []

    def read(unbuffered: bool = False) -> int:
        # As Connection._read_query_result() does it for a cursor that keeps its rows.
        driver._result = None
        driver._result = result = _Rows(driver, raw)
        result.read()
        results.append(result)
        return int(result.affected_rows)

    driver._read_query_result = read
    try:
        with connection.execute(statement) as executed:
            rows = list(executed.cursor.fetchall())
    finally:
        del driver._read_query_result
    return RawPage(rows, results[-1].raw, results[-1].whole)


_Converter: TypeAlias = tuple[str | None, Callable[[Any], Any] | None]
"""PyMySQL's for a column: the encoding (None: bytes), and what makes the value of the text (None: it is the value)."""


class BoundedSession(Session):  # type: ignore[misc]
    """Ends the connection if an answer exceeds `answer_bytes`."""

    answer_bytes: int

    def _read_query_result(self, unbuffered: bool = False) -> int:
        # As PyMySQL does it, with results of ours.
        self._result = None
        result: MySQLResult = _Streamed(self) if unbuffered else _Rows(self, frozenset())
        if unbuffered:
            result.init_unbuffered_query()
        else:
            result.read()
        self._result = result
        if result.server_status is not None:
            self.server_status = result.server_status
        return int(result.affected_rows)


class _Streamed(MySQLResult):  # type: ignore[misc]
    connection: Any

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self._left = connection.answer_bytes

    def _read_row_from_packet(self, packet: MysqlPacket) -> RowTree:
        self._left -= len(packet.get_all_data())
        if self._left < 0:
            self.unbuffered_active = False
            self.connection._force_close()
            raise LongAnswerError
        row: RowTree = super()._read_row_from_packet(packet)
        return row


class _Rows(MySQLResult):  # type: ignore[misc]
    """`raw`: places of columns as text; none if one of them has another type."""

    connection: Any
    converters: list[_Converter]
    rows: Any

    def __init__(self, connection: Any, raw: frozenset[int]) -> None:
        super().__init__(connection)
        self.raw = raw

    def whole(self, row: RowTree) -> RowTree:
        values = list(row)
        for place in self.raw:
            convert = self.converters[place][1]
            if values[place] is not None and convert is not None:
                values[place] = convert(values[place])
        return tuple(values)

    def _read_rowdata_packet(self) -> None:
        if not all(self.fields[place].type_code in _RAW for place in self.raw):
            self.raw = frozenset()
        converters: list[_Converter] = self.converters
        self.converters = [
            (encoding, None if place in self.raw else convert)
            for place, (encoding, convert) in enumerate(converters)
        ]
        driver: Any = self.connection
        rows: list[RowTree] = []
        try:
            last = self._taken(_Packets(driver), rows)
        except BaseException:
            # The rest of the answer must not be read as another statement's.
            driver._force_close()
            raise
        finally:
            self.converters = converters
        if not self._check_packet_is_eof(last):
            last.raise_for_error()
        self.connection = None  # as PyMySQL does: they reference each other
        self.affected_rows = len(rows)
        self.rows = tuple(rows)

    def _taken(self, packets: _Packets, rows: list[RowTree]) -> MysqlPacket:
        # A value of a type without a character set is text of any bytes.
        encodings = tuple("latin-1" if encoding == "ascii" else encoding for encoding, _ in self.converters)
        converts = tuple(convert for _, convert in self.converters)
        while True:
            if _native is not None:
                try:
                    packets.position, packets.number = _native.take_rows(
                        packets.data, packets.position, packets.number, encodings, converts, rows
                    )
                except _native.PacketError:
                    raise err.InternalError("Packet of a row malformed") from None
                if packets.is_part():
                    packets.receive()
                    continue
            packet = packets.next()
            if packet.is_eof_packet() or packet.is_error_packet():
                return packet
            rows.append(self._read_row_from_packet(packet))


class _Packets:
    """`data`: received bytes from `position` on."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.data, self.position, self.number = b"", 0, driver._next_seq_id
        self._left = getattr(driver, "answer_bytes", sys.maxsize)

    def is_part(self) -> bool:
        there = len(self.data) - self.position
        return there < 4 or (there < 4 + (size := self._size()) and size < MAX_PACKET_LEN)

    def receive(self) -> None:
        there = len(self.data) - self.position
        missing = 4 + self._size() - there if there >= 4 else 0
        more = self.driver._read_bytes(missing) if missing > _AT_ONCE else self._read()
        self._left -= len(more)
        if self._left < 0:
            raise LongAnswerError
        self.data, self.position = self.data[self.position :] + more, 0

    def next(self) -> MysqlPacket:
        """One of 16 MB or more comes in parts."""
        parts: list[bytes] = []
        while not parts or len(parts[-1]) == MAX_PACKET_LEN:
            while (there := len(self.data) - self.position) < 4 or there < 4 + self._size():
                self.receive()
            begin, end = self.position + 4, self.position + 4 + self._size()
            if self.data[begin - 1] != self.number:
                raise err.InternalError("Packet sequence number wrong")
            parts.append(self.data[begin:end])
            self.position, self.number = end, (self.number + 1) % 256
        self.driver._next_seq_id = self.number
        return MysqlPacket(b"".join(parts), self.driver.encoding)

    def _size(self) -> int:
        return int.from_bytes(self.data[self.position : self.position + 3], "little")

    def _read(self) -> bytes:
        try:
            more = bytes(self.driver._rfile.read1(_AT_ONCE))
        except OSError as error:
            raise err.OperationalError(CR.CR_SERVER_LOST, f"{_LOST} ({error})") from error
        if not more:
            raise err.OperationalError(CR.CR_SERVER_LOST, _LOST)
        return more


_AT_ONCE = 1 << 16
_LOST = "Lost connection to MySQL server during query"


_MODES = "ANSI_QUOTES,PIPES_AS_CONCAT"
"""With these modes a mapping's SQL means the same as on other engines: "Name" is a name, || joins texts. The list
replaces the server's own, in which NO_ZERO_DATE would refuse to compare with a zero date in a key, and
PAD_CHAR_TO_FULL_LENGTH would change texts."""

_LONGEST_TEXT_BYTES = 2**30
SESSION: Mapping[str, Any] = {
    "time_zone": "+00:00",
    "sql_mode": _MODES,
    # Both would cut an answer without an error.
    "group_concat_max_len": _LONGEST_TEXT_BYTES,
    "sql_select_limit": 2**64 - 1,
}
"""Settings of a session that values depend on."""
PlainCursor = Cursor
_TOLERANT_UTF8 = "migrator_tolerant_utf8"


def from_text(type_code: int, text: str) -> Any:
    return arguments(None)["conv"][type_code](text)


def arguments(password: str | None) -> dict[str, Any]:
    options = {
        "charset": "utf8mb4",
        "use_unicode": True,
        "sql_mode": _MODES,
        # Not MULTI_STATEMENTS. An UPDATE counts the rows that it finds, as on other servers; the journal relies on it.
        "client_flag": CLIENT.FOUND_ROWS,
        "conv": {
            **converters.conversions,
            FIELD_TYPE.TIMESTAMP: _zoned,
            FIELD_TYPE.TIME: converters.convert_time,  # a time of day, not an interval; text for an invalid one
            FIELD_TYPE.BIT: lambda data: int.from_bytes(data, "big"),
            datetime: _literal,
            HalfPairs: lambda text, _: f"_ucs2 X'{text.digits}'",
        },
    }
    # PyMySQL would encode text as Latin-1; servers keep what their own client sends, which is UTF-8.
    return options | ({"password": password.encode()} if password else {})


def prepare(connection: Session[Any], _: object, *, connection_options: ConnectionOptions) -> None:
    prepare_values(connection)
    if not connection_options.writes:
        connection.__class__ = BoundedSession
        connection.answer_bytes = connection_options.answer_bytes
    # For an ALTER TABLE; the server's own limit is a day or a year.
    wait_s = max(1, round(connection_options.lock_wait_s))
    settings = {
        **_limits(connection, connection_options),
        "lock_wait_timeout": wait_s,
        "innodb_lock_wait_timeout": wait_s,
        # Both would refuse a statement by how its rows are found.
        "sql_safe_updates": 0,
        "sql_big_selects": 1,
        **SESSION,
    }
    with connection.cursor() as cursor:
        words = ", ".join(f"SESSION {name} = %s" for name in settings)
        cursor.execute(f"SET {words}", tuple(settings.values()))
        if connection_options.writes:
            cursor.execute(f"SET SESSION sql_mode = '{_MODES},STRICT_ALL_TABLES'")
            # REPEATABLE READ would lock the gap into which a service's next mark is inserted.
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        else:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def prepare_values(connection: Any, *, is_async: bool = False) -> None:
    """Make a connection (PyMySQL's or aiomysql's) return values as ours do; sets the attributes in values_of."""
    conversions = arguments(None)["conv"]
    connection.use_unicode = True
    setattr(connection, _encoding(is_async=is_async), _TOLERANT_UTF8)
    connection.encoders = {kind: encode for kind, encode in conversions.items() if type(kind) is not int}
    connection.decoders = {kind: decode for kind, decode in conversions.items() if type(kind) is int}


def values_of(connection: Any, *, is_async: bool = False) -> dict[str, Any]:
    names = ("use_unicode", _encoding(is_async=is_async), "encoders", "decoders")
    return {name: getattr(connection, name) for name in names}


def _encoding(*, is_async: bool) -> str:
    return "_encoding" if is_async else "encoding"


def _limits(connection: Session[Any], connection_options: ConnectionOptions) -> Mapping[str, float]:
    """Time limits as settings, with the names of MariaDB or MySQL.

    Source: MariaDB Knowledge Base, "max_statement_time" (s), "idle_transaction_timeout" (s); MySQL Reference
    Manual, "max_execution_time" (ms). MySQL has no limit for idle transactions alone: wait_timeout ends idle
    connections.
    """
    of_mariadb = is_mariadb(str(connection.get_server_info()))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT @@{'max_statement_time' if of_mariadb else 'max_execution_time'}")
        (own,) = cursor.fetchone() or (0,)
    idle_s, limit_s = max(1, round(connection_options.idle_s)), connection_options.limit_s(float(own))
    if of_mariadb:
        return {"idle_transaction_timeout": idle_s} | ({"max_statement_time": limit_s} if limit_s else {})
    return {"wait_timeout": idle_s} | (
        {"max_execution_time": max(1, round(limit_s * 1000))} if limit_s else {}
    )


def _zoned(text: str) -> Any:
    """Text if Python has no value for it, as from PyMySQL."""
    moment = converters.convert_datetime(text)
    return moment.replace(tzinfo=UTC) if isinstance(moment, datetime) else moment


def _literal(moment: datetime, mapping: Any = None) -> str:
    """A literal in UTC; PyMySQL's own function would drop the zone."""
    return str(converters.escape_datetime(moment.astimezone(UTC) if moment.tzinfo else moment, mapping))


def _tolerant_utf8(name: str) -> codecs.CodecInfo | None:
    """UTF-8 that decodes every byte, and encodes it again: utf8mb3 columns may contain half a surrogate pair.

    Such a text refuses only its row, and a key with it finds its row; PyMySQL's strict codec would fail the
    whole page.
    """
    if name != _TOLERANT_UTF8:
        return None
    return codecs.CodecInfo(
        name=_TOLERANT_UTF8,
        encode=lambda text, errors="strict": codecs.utf_8_encode(text, "surrogateescape"),
        decode=lambda data, errors="strict": codecs.utf_8_decode(data, "surrogateescape", True),
    )


codecs.register(_tolerant_utf8)
