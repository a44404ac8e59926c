"""Decodes events of MySQL's binary log. Pure.

Source: mysql-server, libs/mysql/binlog/event/*.h.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from msgspec import Struct

from migrator.runtime.errors import SourceError
from migrator.source.capture.log.changes import Row, RowChange, Value
from migrator.source.capture.log.mysql.gtids import GtidSet, gtid

# ── Columns and values of row events, in the form that triggers write ──
# Source: mysql-server, libs/mysql/binlog/event/rows_event.h (metadata of columns), mysys/decimal and sql-common/my_time.cc
# (decimals and times).

Convert: TypeAlias = Callable[[str, bytes], str]
"""The text of bytes in this character set of the server."""

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24, DATE, YEAR = 1, 2, 3, 4, 5, 8, 9, 10, 13
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2, VECTOR, JSON, NEWDECIMAL = 15, 16, 17, 18, 19, 242, 245, 246
ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 247, 248, 252, 253, 254, 255

NUMBERS = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE})
"""Types with a flag for unsigned columns."""
TEXTS = frozenset({STRING, VAR_STRING, VARCHAR, BLOB})
"""Types with a character set; ENUM and SET have a separate one."""
LISTED = frozenset({ENUM, SET})
METADATA = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, JSON, GEOMETRY, VECTOR, TIMESTAMP2, DATETIME2, TIME2), 1),
    **dict.fromkeys((VARCHAR, VAR_STRING, STRING, NEWDECIMAL, BIT, ENUM, SET), 2),
}
"""Bytes of metadata by type."""
_WIDTHS = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, FLOAT: 4, DOUBLE: 8, DATE: 3, YEAR: 1}
_BEFORE_FRACTION = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a decimal, by number of digits."""


class LogColumn(Struct, frozen=True):
    """A column of a table at the time of the change.

    `first`, `second`: metadata of the type `code`.
    `charset`: 'binary' for bytes.
    `members`: of an ENUM or SET, in that character set.
    """

    name: str
    code: int
    first: int
    second: int
    convert: Convert
    unsigned: bool = False
    charset: str = ""
    members: tuple[bytes, ...] = ()
    is_key: bool = True

    def taken(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The value at this position, and the next position. Raises: ValueError for an unknown type."""
        if prefix := self._prefix():
            size = int.from_bytes(data[at : at + prefix], "little")
            at += prefix
        else:
            size = self._size()
        if at + size > len(data):
            raise ValueError("cut")
        return data[at : at + size], at + size

    def _prefix(self) -> int:
        if self.code in (VARCHAR, VAR_STRING, STRING):
            return 2 if self._length() > 255 else 1
        return self.first if self.code in (BLOB, JSON, GEOMETRY, VECTOR) else 0

    def _length(self) -> int:
        if self.code == STRING:
            # The two highest bits of lengths of 256 and more are in those of the type, inverted.
            return self.second | (((self.first & 0x30) ^ 0x30) << 4)
        return self.first | self.second << 8

    def _size(self) -> int:
        if (width := _WIDTHS.get(self.code)) is not None:
            return width
        if (width := _BEFORE_FRACTION.get(self.code)) is not None:
            return width + (self.first + 1) // 2
        if self.code == NEWDECIMAL:
            return sum(_group_bytes(digits) for digits in (self.first - self.second, self.second))
        if self.code == BIT:
            return self.second + bool(self.first)
        if self.code in LISTED:
            return self.second
        raise ValueError(f"type {self.code}")

    def written(self, value: bytes) -> str:
        """Return the same text as our triggers (source/engines/mysql/capture.py)."""
        if self.code in TEXTS:
            return self._text(value)
        if self.code in LISTED:
            return f"TEXT:{self._listed(int.from_bytes(value, 'little'))}"
        word, write = _WRITTEN.get(self.code, ("", _unwritten))
        return f"{word}:{write(self, value)}"

    def _text(self, value: bytes) -> str:
        if self.charset == "binary":
            # The log omits trailing zeros of BINARY(n).
            padded = value.ljust(self._length(), b"\0") if self.code == STRING else value
            return f"HEX:{padded.hex().upper()}"
        if self.charset == "ucs2":
            return f"UCS2:{value.hex().upper()}"
        return f"TEXT:{self.convert(self.charset, value)}"

    def _listed(self, number: int) -> str:
        if self.code == ENUM:
            # 0 is an invalid value, which reads as an empty text.
            chosen = self.members[number - 1 : number] if number else ()
        else:
            chosen = tuple(member for place, member in enumerate(self.members) if number >> place & 1)
        return ",".join(self.convert(self.charset, member) for member in chosen)


def _unwritten(column: LogColumn, _: bytes) -> str:
    raise ValueError(f"type {column.code}")


def _integer(column: LogColumn, value: bytes) -> str:
    return str(int.from_bytes(value, "little", signed=not column.unsigned))


def _float(_: LogColumn, value: bytes) -> str:
    return repr(struct.unpack("<f" if len(value) == 4 else "<d", value)[0])


def _year(_: LogColumn, value: bytes) -> str:
    return str(1900 + value[0]) if value[0] else "0000"


def _bit_text(_: LogColumn, value: bytes) -> str:
    return str(int.from_bytes(value, "big"))


def _group_bytes(digits: int) -> int:
    return digits // 9 * 4 + _DIGIT_BYTES[digits % 9]


def _decimal(column: LogColumn, value: bytes) -> str:
    """Groups of nine digits in four bytes, the odd ones outermost; the first bit is the sign, negative ones are inverted."""
    is_negative = not value[0] & 0x80
    data = bytes([value[0] ^ 0x80, *value[1:]])
    if is_negative:
        data = bytes(byte ^ 0xFF for byte in data)
    scale = column.second
    whole = column.first - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    digits, at = "", 0
    for count in groups:
        size = _group_bytes(count)
        digits += str(int.from_bytes(data[at : at + size], "big")).zfill(count) if count else ""
        at += size
    before, after = digits[:whole].lstrip("0") or "0", digits[whole:]
    return f"{'-' if is_negative else ''}{before}{'.' if scale else ''}{after}"


def _date(_: LogColumn, value: bytes) -> str:
    number = int.from_bytes(value, "little")
    return f"{number >> 9:04d}-{number >> 5 & 15:02d}-{number & 31:02d}"


def _fraction(column: LogColumn, number: int) -> str:
    """`column.first`: number of digits shown; an even number is stored."""
    shown = column.first
    stored = (shown + 1) // 2 * 2
    return f".{str(number).zfill(stored)[:shown]}" if shown else ""


def _split(column: LogColumn, value: bytes) -> tuple[int, int]:
    bits = (column.first + 1) // 2 * 8
    number = int.from_bytes(value, "big")
    return number >> bits, number & (1 << bits) - 1


def _moment(column: LogColumn, value: bytes) -> str:
    seconds, fraction = _split(column, value)
    return f"{seconds}{_fraction(column, fraction)}"


def _datetime(column: LogColumn, value: bytes) -> str:
    number, fraction = _split(column, value)
    day, time = divmod(number - (1 << 39), 1 << 17)
    month = day >> 5
    text = f"{month // 13:04d}-{month % 13:02d}-{day & 31:02d} {_clock(time)}"
    return text + _fraction(column, fraction)


def _time(column: LogColumn, value: bytes) -> str:
    bits = (column.first + 1) // 2 * 8
    number = int.from_bytes(value, "big") - (1 << 23 + bits)
    time, fraction = divmod(abs(number), 1 << bits)
    return f"{'-' if number < 0 else ''}{_clock(time)}{_fraction(column, fraction)}"


def _clock(number: int) -> str:
    return f"{number >> 12 & 1023:02d}:{number >> 6 & 63:02d}:{number & 63:02d}"


_WRITTEN: dict[int, tuple[str, Callable[[LogColumn, bytes], str]]] = {
    **dict.fromkeys((TINY, SHORT, INT24, LONG, LONGLONG), ("LONGLONG", _integer)),
    YEAR: ("LONGLONG", _year),
    BIT: ("LONGLONG", _bit_text),
    FLOAT: ("DOUBLE", _float),
    DOUBLE: ("DOUBLE", _float),
    NEWDECIMAL: ("NEWDECIMAL", _decimal),
    DATE: ("DATE", _date),
    TIME2: ("TIME", _time),
    DATETIME2: ("DATETIME", _datetime),
    TIMESTAMP2: ("EPOCH", _moment),
}


HEADER = struct.Struct("<IBIIIH")
"""Seconds, type, server, size, end in the file, flags."""
_CHECKSUM = 4


class Begin(Struct, frozen=True):
    """A transaction. `at`: commit time, seconds since 1970."""

    gtid: GtidSet
    at: float


class Query(Struct, frozen=True):
    schema: str
    text: str


class End(Struct, frozen=True):
    """`is_prepared`: XA PREPARE, before XA COMMIT or XA ROLLBACK."""

    is_prepared: bool = False


class TableMap(Struct, frozen=True):
    """`columns`: empty if the log does not name them."""

    id: int
    schema: str
    name: str
    columns: tuple[LogColumn, ...]


class RowsEvent(Struct, frozen=True):
    """Row changes of one table. `changes` None: unreadable ones."""

    table: int
    changes: Sequence[RowChange] | None


class Rotate(Struct, frozen=True):
    file: str


class Incident(Struct, frozen=True):
    """The server could not write all changes to its log."""


Event: TypeAlias = Begin | Query | End | TableMap | RowsEvent | Rotate | Incident

_ADVICE = "the server may be of a version that this migrator does not know; nothing was skipped"
_UNREAD = {
    34: "a transaction without GTID; keep gtid_mode = ON",
    40: "a compressed transaction; SET PERSIST binlog_transaction_compression = OFF, and no session may turn it on",
}


class Decoder:
    """Decodes events in order. `charsets`: by number of the collation."""

    def __init__(self, charsets: Mapping[int, str], convert: Convert) -> None:
        self._charsets = charsets
        self._convert = convert
        self._has_checksum = True
        self._maps: dict[int, TableMap] = {}

    def decode(self, data: bytes) -> Event | None:
        """None for an event that concerns no row. Raises: SourceError if it is truncated, or cannot be read."""
        seconds, kind, _, _, end, _ = HEADER.unpack_from(data)
        # Events that the server makes for us are in no file, and their checksum is independent of the file's setting.
        is_made = not end or not seconds
        has_checksum = _is_checked(data) if is_made else self._has_checksum
        if kind == _FORMAT:
            self._has_checksum = bool(data[-_CHECKSUM - 1])
            return None
        if kind in _UNREAD:
            raise SourceError(f"the log has {_UNREAD[kind]}")
        read = _KINDS.get(kind)
        if read is None:
            return None
        size = len(data) - (_CHECKSUM if has_checksum else 0)
        try:
            event = read(self, _Buffer(data[HEADER.size : size]), kind)
        except (struct.error, ValueError, IndexError, KeyError) as error:
            raise SourceError(
                f"the log has an event of kind {kind} that cannot be read ({error}); {_ADVICE}"
            ) from None
        if isinstance(event, TableMap):
            self._maps[event.id] = event
        if isinstance(event, Rotate):
            # Table numbers start over after a restart of the server, which begins a file.
            self._maps.clear()
        return event

    def _begin(self, buffer: _Buffer, _: int) -> Begin:
        buffer.at = 1
        source, number = str(UUID(bytes=buffer.raw(16))), buffer.number(8)
        buffer.at += 1 + 16
        # A transaction from another server has a second time, of its commit there.
        return Begin(gtid(source, number), (buffer.number(7) & (1 << 55) - 1) / 1e6)

    def _begin_tagged(self, buffer: _Buffer, _: int) -> Begin:
        """Numbered fields, in order: 1 UUID, 2 number, 3 tag, 6 commit time."""
        for _skipped in range(3):
            buffer.variable()
        uuid, number, tag, at = b"", 0, "", 0
        while buffer.left():
            field = buffer.variable()
            if field == 1:
                uuid = bytes(buffer.variable() for _byte in range(16))
            elif field == 3:
                tag = buffer.raw(buffer.variable()).decode()
            else:
                value = buffer.variable()
                number = value >> 1 if field == 2 else number
                at = value if field == 6 else at
        return Begin(gtid(":".join(filter(None, (str(UUID(bytes=uuid)), tag))), number), at / 1e6)

    def _query(self, buffer: _Buffer, kind: int) -> Query:
        buffer.at = 8
        schema = buffer.number(1)
        buffer.at += 2
        variables = buffer.number(2)
        # For LOAD DATA the file's name and its place in the statement follow.
        buffer.at += variables + (13 if kind == _LOAD else 0)
        name = buffer.raw(schema)
        buffer.at += 1
        return Query(*(text.decode(errors="replace") for text in (name, buffer.rest())))

    def _end(self, buffer: _Buffer, kind: int) -> End:
        return End(is_prepared=kind == _XA_PREPARE and not buffer.number(1))

    def _rotate(self, buffer: _Buffer, _: int) -> Rotate:
        buffer.at = 8
        return Rotate(buffer.rest().decode())

    def _incident(self, _: _Buffer, __: int) -> Incident:
        return Incident()

    def _partial(self, buffer: _Buffer, _: int) -> RowsEvent:
        return RowsEvent(buffer.number(6), None)

    # ── tables ──

    def _table(self, buffer: _Buffer, _: int) -> TableMap:
        number = buffer.number(6)
        buffer.at += 2
        schema, name = buffer.name(), buffer.name()
        codes = buffer.raw(buffer.length())
        metadata = _Buffer(buffer.raw(buffer.length()))
        buffer.at += (len(codes) + 7) // 8
        forms = [_form(code, metadata) for code in codes]
        columns = tuple(self._columns(forms, dict(_fields(buffer))))
        return TableMap(number, schema, name, columns)

    def _columns(self, forms: list[tuple[int, int, int]], more: Mapping[int, bytes]) -> Iterator[LogColumn]:
        """Return no columns if they have no names, as with binlog_row_metadata = MINIMAL."""
        if _NAMES not in more:
            return
        codes = [code for code, _, _ in forms]
        unsigned = iter(_bits(more.get(_SIGNS, b"")))
        charsets = [
            iter(self._of_columns(more, ids, sum(code in kinds for code in codes)))
            for ids, kinds in (((2, 3), TEXTS), ((10, 11), LISTED))
        ]
        members = {ENUM: iter(_lists(more.get(6, b""))), SET: iter(_lists(more.get(5, b"")))}
        for name, (code, first, second) in zip(_texts(more[_NAMES]), forms, strict=True):
            yield LogColumn(
                name.decode(),
                code,
                first,
                second,
                self._convert,
                next(unsigned) if code in NUMBERS else False,
                next(charsets[code in LISTED]) if code in TEXTS or code in LISTED else "",
                next(members[code]) if code in LISTED else (),
            )

    def _of_columns(self, more: Mapping[int, bytes], ids: tuple[int, int], count: int) -> list[str]:
        default, listed = (_Buffer(more[id_]) if id_ in more else None for id_ in ids)
        if listed is not None:
            return [self._charsets[listed.length()] for _ in range(count)]
        if default is None:
            return []
        usual = self._charsets[default.length()]
        others = {}
        while default.left():
            place = default.length()
            others[place] = self._charsets[default.length()]
        return [others.get(place, usual) for place in range(count)]

    # ── rows ──

    def _rows(self, buffer: _Buffer, kind: int) -> RowsEvent:
        number = buffer.number(6)
        buffer.at += 2
        more = buffer.number(2)
        buffer.at += more - 2
        count = buffer.length()
        sides = 2 if kind == _UPDATE else 1
        present = [buffer.bits(count) for _ in range(sides)]
        table = self._maps[number]
        if len(table.columns) != count or not all(map(all, present)):
            # Without names, or with binlog_row_image other than FULL.
            return RowsEvent(number, None)
        return RowsEvent(number, list(_changes(buffer, table, kind)))


def _is_checked(data: bytes) -> bool:
    return zlib.crc32(data[:-_CHECKSUM]) == int.from_bytes(data[-_CHECKSUM:], "little")


def _changes(buffer: _Buffer, table: TableMap, kind: int) -> Iterator[RowChange]:
    while buffer.left():
        row = _row(buffer, table.columns)
        if kind == _UPDATE:
            yield RowChange("update", table.id, row, _row(buffer, table.columns))
        elif kind == _WRITE:
            yield RowChange("insert", table.id, None, row)
        else:
            yield RowChange("delete", table.id, row, None)


def _row(buffer: _Buffer, columns: Sequence[LogColumn]) -> Row:
    values: list[Value] = []
    for column, is_null in zip(columns, buffer.bits(len(columns)), strict=True):
        value, buffer.at = (None, buffer.at) if is_null else column.taken(buffer.data, buffer.at)
        values.append(value)
    return tuple(values)


def _form(code: int, metadata: _Buffer) -> tuple[int, int, int]:
    size = METADATA.get(code, 0)
    first = metadata.number(1) if size else 0
    second = metadata.number(1) if size == 2 else 0
    # ENUM and SET come as texts.
    return (first, first, second) if code == STRING and first in LISTED else (code, first, second)


_SIGNS, _NAMES = 1, 4
"""Numbers of optional metadata fields of a table."""


def _fields(buffer: _Buffer) -> Iterator[tuple[int, bytes]]:
    while buffer.left():
        kind = buffer.number(1)
        yield kind, buffer.raw(buffer.length())


def _bits(data: bytes) -> Iterator[bool]:
    """Bits, the highest of each byte first."""
    for byte in data:
        yield from (bool(byte >> place & 1) for place in range(7, -1, -1))


def _texts(data: bytes) -> Iterator[bytes]:
    buffer = _Buffer(data)
    while buffer.left():
        yield buffer.raw(buffer.length())


def _lists(data: bytes) -> Iterator[tuple[bytes, ...]]:
    buffer = _Buffer(data)
    while buffer.left():
        yield tuple(buffer.raw(buffer.length()) for _ in range(buffer.length()))


class _Buffer:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def left(self) -> bool:
        return self.at < len(self.data)

    def raw(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise ValueError("cut")
        found = self.data[self.at : end]
        self.at = end
        return found

    def rest(self) -> bytes:
        return self.raw(len(self.data) - self.at)

    def number(self, size: int) -> int:
        return int.from_bytes(self.raw(size), "little")

    def length(self) -> int:
        first = self.number(1)
        return first if first < 251 else self.number({252: 2, 253: 3, 254: 8}[first])

    def variable(self) -> int:
        """The ones at the end of the first byte are the number of further bytes."""
        first = self.data[self.at]
        more = 0
        while first >> more & 1:
            more += 1
        if more == 8:
            self.at += 1
            return self.number(8)
        return self.number(more + 1) >> more + 1

    def name(self) -> str:
        found = self.raw(self.number(1)).decode()
        self.at += 1
        return found

    def bits(self, count: int) -> list[bool]:
        number = self.number((count + 7) // 8)
        return [bool(number >> place & 1) for place in range(count)]


_FORMAT, _LOAD, _XA_PREPARE, _WRITE, _UPDATE = 15, 18, 38, 30, 31
_KINDS: Mapping[int, Callable[[Decoder, _Buffer, int], Event]] = {
    2: Decoder._query,
    4: Decoder._rotate,
    16: Decoder._end,
    _LOAD: Decoder._query,
    19: Decoder._table,
    26: Decoder._incident,
    _WRITE: Decoder._rows,
    _UPDATE: Decoder._rows,
    32: Decoder._rows,
    33: Decoder._begin,
    _XA_PREPARE: Decoder._end,
    39: Decoder._partial,
    42: Decoder._begin_tagged,
}
