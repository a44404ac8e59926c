"""Rows of PyMySQL's text protocol, taken from what the connection received in one pass, with columns as text where wanted.

PyMySQL makes an object of each row's packet and calls three functions for each value, which is most of what a page costs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

from pymysql import err
from pymysql.connections import MAX_PACKET_LEN, MySQLResult
from pymysql.connections import Connection as Session
from pymysql.constants import CR, FIELD_TYPE
from pymysql.protocol import MysqlPacket
from sqlalchemy import Executable
from sqlalchemy.engine import Connection

from migrator.mapping.model.edges import RawPage
from migrator.mapping.model.table import RowTree
from migrator.runtime.errors import LongAnswerError

_RAW = frozenset(
    {
        *(FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG),
        *(FIELD_TYPE.YEAR, FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL),
        *(FIELD_TYPE.DATE, FIELD_TYPE.TIME, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP),
    }
)
"""Types whose text is all that PyMySQL's converters see of a value."""


def fetched(connection: Connection, statement: Executable, raw: frozenset[int]) -> RawPage:
    """The rows of a SELECT, with the columns at these places as text; all as usual where one has another type."""
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
    """A connection that ends where an answer has more bytes than `answer_bytes`."""

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
    """The result of a statement whose rows are taken one by one."""

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
    """The result of a statement. `raw`: places of columns as text; none where one of them has another type."""

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
            # What is left of the answer must not be read as that of another statement.
            driver._force_close()
            raise
        finally:
            self.converters = converters
        if not self._check_packet_is_eof(last):
            last.raise_for_error()
        self.connection = None  # as PyMySQL does: each holds the other else
        self.affected_rows = len(rows)
        self.rows = tuple(rows)

    def _taken(self, packets: _Packets, rows: list[RowTree]) -> MysqlPacket:
        """The packet behind all rows, which are added to `rows`."""
        take = _taker(tuple((encoding, convert is not None) for encoding, convert in self.converters))
        converts = [convert for _, convert in self.converters]
        while True:
            packets.position, packets.number = take(
                packets.data, packets.text, packets.position, packets.number, converts, rows.append
            )
            if packets.is_part():
                packets.receive()
                continue
            packet = packets.next()
            if packet.is_eof_packet() or packet.is_error_packet():
                return packet
            rows.append(self._read_row_from_packet(packet))


class _Packets:
    """What a connection receives. `data`: bytes from `position` on; `text`: the same, a character a byte."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.data, self.text, self.position, self.number = b"", "", 0, driver._next_seq_id
        self._left = getattr(driver, "answer_bytes", sys.maxsize)

    def is_part(self) -> bool:
        """Whether the next packet is not there as a whole, and can be."""
        there = len(self.data) - self.position
        return there < 4 or (there < 4 + (size := self._size()) and size < MAX_PACKET_LEN)

    def receive(self) -> None:
        """Adds what came meanwhile, at least one byte. Raises: as PyMySQL does."""
        there = len(self.data) - self.position
        missing = 4 + self._size() - there if there >= 4 else 0
        more = self.driver._read_bytes(missing) if missing > _AT_ONCE else self._read()
        self._left -= len(more)
        if self._left < 0:
            raise LongAnswerError
        self.data = self.data[self.position :] + more
        self.text, self.position = self.data.decode("latin-1"), 0

    def next(self) -> MysqlPacket:
        """The next packet as PyMySQL has it; one of 16 MB or more comes in parts."""
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


# ── The function that takes rows of one form ──


@functools.lru_cache(maxsize=500)
def _taker(forms: tuple[tuple[str | None, bool], ...]) -> Callable[..., tuple[int, int]]:
    """Takes rows as long as there are whole ones in usual packets, and says where it ended, with the next packet's number.

    `forms`: of each column its encoding (None for bytes), and whether its values are converted.
    """
    names: dict[str, Any] = {"long": _long}
    lines = []
    for place, (encoding, converts) in enumerate(forms):
        v, source = f"v{place}", "data" if encoding is None else "text"
        lines += [
            "n = data[at]",
            "if n < 251:",
            f"    {v} = {source}[at + 1 : at + 1 + n]",
            "    at += 1 + n",
            "elif n == 251:",
            f"    {v} = None",
            "    at += 1",
            "else:",
            f"    {v}, at = long(data, {source}, at)",
        ]
        if encoding not in (None, "ascii"):
            lines += [
                f"if {v} and not {v}.isascii():",
                f"    {v} = {v}.encode('latin-1').decode({encoding!r})",
            ]
        if converts:
            lines += [f"if {v} is not None:", f"    {v} = convert{place}({v})"]
    converts_used = [place for place, (_, converts) in enumerate(forms) if converts]
    head = [f"    convert{place} = converts[{place}]" for place in converts_used]
    values = "".join(f"v{place}, " for place in range(len(forms)))
    body = "\n".join("        " + line for line in lines)
    exec(_TAKE.format(head="\n".join(head), body=body, values=values), names)
    function: Callable[..., tuple[int, int]] = names["take"]
    return function


_TAKE = """
def take(data, text, position, number, converts, append):
    there = len(data)
{head}
    while position + 4 < there:
        size = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        end = position + 4 + size
        at = position + 4
        if end > there or data[position + 3] != number or data[at] > 251:
            break
{body}
        append(({values}))
        position = end
        number = number + 1 & 255
    return position, number
"""
"""Packets that begin with more than 251 are the end, an error, or a row whose first value is long: PyMySQL reads those."""


def _long(data: bytes, values: Any, at: int) -> tuple[Any, int]:
    """A value of more than 250 bytes, and where the next one begins."""
    width = _WIDTHS[data[at]]
    begin = at + 1 + width
    end = begin + int.from_bytes(data[at + 1 : begin], "little")
    return values[begin:end], end


_WIDTHS = {252: 2, 253: 3, 254: 8}
